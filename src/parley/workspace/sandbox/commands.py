"""Where the commands of a session run: in the sandbox of the settings, in one for readers, or outside.

Each policy has a launcher, and a supervisor that stays as long as commands come (process/processes.py). A policy is
computed again before each command, because settings, working directories and files change; a different policy gets
another launcher.

What the sandbox refused is told from what a command wrote. A refused system call is an ordinary error for a program:
`cat: /home/me/.ssh/id_rsa: Permission denied`. Most programs name the file. If the policy refuses that file, the
sandbox is the reason, and the model is told so; otherwise the error has nothing to do with the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import msgspec

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.sandbox.base import (
    HostRefusal,
    NetworkPolicy,
    SandboxedCommand,
    SandboxKind,
    SandboxOffer,
    SandboxPolicy,
    find_root,
    is_beneath,
    proxy_environment,
)
from parley.workspace.sandbox.cleanup import ProtectedFiles
from parley.workspace.sandbox.egress.proxy import EgressProxy
from parley.workspace.sandbox.launcher import SandboxFolders, SandboxLauncher
from parley.workspace.sandbox.protected import ProtectedPaths, find_protected, outer_repository
from parley.workspace.sandbox.protected_entries import FolderIndex
from parley.workspace.search_path import with_trusted_path

DROPPED_VARIABLES = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
"""They name sockets that commands cannot use."""
AskHost = Callable[[str, int], Awaitable[bool]]
MAX_LAUNCHERS = 8
"""How many policies are remembered: the settings of a session change rarely."""
ERRORS = re.compile(
    r"Read-only file system|Permission denied|Operation not permitted|Device or resource busy|File exists|No such file",
    re.IGNORECASE,
)
QUOTED_PATH = re.compile(r"['\"‘“`]([^'\"’”`\n]+)['\"’”`]")
PLAIN_PATH = re.compile(r"(?<![\w/])((?:/|\./|\.\./|~/)?[\w.@+-][^\s:'\"]*|/)(?=[:\s'\"]|$)")
NETWORK_ERRORS = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|getaddrinfo|EAI_AGAIN|ENOTFOUND|unable to resolve host",
    re.IGNORECASE,
)
SOCKET_ERRORS = re.compile(r"socket.{0,40}(Operation not permitted|EPERM)", re.IGNORECASE)
MAX_LINES = 400
MAX_VIOLATIONS = 10
NO_NETWORK = "the network: commands in the sandbox can reach only the hosts that the settings allow, through a proxy"
NO_SOCKET = "a socket: commands in the sandbox may not use Unix sockets"
NO_LANDLOCK_NETWORK = "the network: commands have no network under Landlock; install bubblewrap"


class SandboxConfig(Struct, frozen=True, kw_only=True):
    """What the settings and the rules say at the moment."""

    enabled: bool = False
    allows_outside: bool = True
    confines_readers: bool = True
    confines_hooks: bool = False
    confines_servers: bool = False
    policy: SandboxPolicy
    """Without protected files, which are found when they are needed."""
    reader_policy: SandboxPolicy
    editor_policy: SandboxPolicy
    hidden_variables: tuple[str, ...] = ()
    ignored_violations: Mapping[str, tuple[str, ...]] = {}
    is_excluded: Callable[[str], bool] = lambda command: False
    """Whether the settings let a command run outside."""


class SandboxPlace:
    """A place in a sandbox."""

    def __init__(self, kind: SandboxKind, launcher: SandboxLauncher, config: SandboxConfig, proxy: EgressProxy) -> None:
        self.kind = kind
        self.confinement: SandboxLauncher | None = launcher
        self._launcher = launcher
        self._config = config
        self._proxy = proxy

    def adapt(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment of the command."""
        hidden = {*DROPPED_VARIABLES, *self._config.hidden_variables}
        found = {name: value for name, value in environment.items() if name not in hidden}
        found |= {"TMPDIR": self._launcher.temp, "PARLEY_SANDBOX": self.kind}
        if self.kind == "bubblewrap" and not self._launcher.policy.network.is_closed:
            found |= proxy_environment(with_socks=self._launcher.policy.network.own_socks_port is not None)
        return found

    def find_violations(self, command: str, output: str) -> list[str]:
        """What the sandbox refused to a command that has ended, one sentence each."""
        policy = self._launcher.policy
        found = self._launcher.after_command()
        found += find_violations(policy, output, self.kind)
        found += [f"{refusal.host}:{refusal.port}: {refusal.reason}" for refusal in self._proxy.take_refusals()]
        ignored = [
            text
            for pattern, texts in self._config.ignored_violations.items()
            if pattern == "*" or pattern in command
            for text in texts
        ]
        return [line for line in dict.fromkeys(found) if not any(text in line for text in ignored)]


class OutsidePlace:
    """Outside of the sandbox, for a command that the settings exclude.

    Programs in folders that commands may change are not found there, also not by the programs that it starts.
    """

    kind: SandboxKind = "none"
    confinement: SandboxLauncher | None = None

    def __init__(self, writable: tuple[str, ...]) -> None:
        self._writable = writable

    def adapt(self, environment: Mapping[str, str]) -> dict[str, str]:
        return with_trusted_path(environment, self._writable)

    def find_violations(self, command: str, output: str) -> list[str]:
        return []


CommandPlace = SandboxPlace | OutsidePlace


class ProtectedTree:
    """The protected files of the writable folders."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._repositories = tuple(dict.fromkeys(path for root in roots for path in outer_repository(root)))
        self.index = FolderIndex((*roots, *self._repositories))
        self._searched: Mapping[str, object] | None = None
        self._found = ProtectedPaths()

    def find(self) -> ProtectedPaths:
        """Search again if something has changed."""
        self.index.refresh()
        if self._searched != self.index.entries:
            self._searched = self.index.entries
            self._found = find_protected(self.index, self._repositories)
        return self._found


class CommandSandbox:
    """Decides where the commands of a session run."""

    def __init__(
        self,
        read_config: Callable[[], SandboxConfig],
        detect: Callable[[], SandboxOffer],
        make_folders: Callable[[], SandboxFolders],
        make_proxy: Callable[[Callable[[], NetworkPolicy], AskHost, Callable[[HostRefusal], None]], EgressProxy],
        read_config_without_project: Callable[[], SandboxConfig],
    ) -> None:
        self._read_config = read_config
        self._read_config_without_project = read_config_without_project
        """What the user's own hooks and servers are subject to."""
        self._detect = detect
        self._make_folders = make_folders
        self._make_proxy = make_proxy
        self._folders: SandboxFolders | None = None
        self._launchers: dict[SandboxPolicy, SandboxLauncher] = {}
        self._proxies: dict[Callable[[], SandboxConfig], EgressProxy] = {}
        """By the configuration that they obey."""
        self._ask_host: AskHost | None = None
        self._report_refusal: Callable[[str], None] = lambda text: None
        self._has_warned = False
        self._trees: dict[tuple[str, ...], ProtectedTree] = {}

    async def place(self, command: SandboxedCommand) -> CommandPlace | None:
        """The place; None for outside of a sandbox. Raises ToolError if the command must be confined and cannot be."""
        config = self._read_config()
        self._ask_host, self._report_refusal = command.ask_host, command.report_refusal
        must = command.scope.confined == "sandbox"
        wants_outside = command.wants_outside and config.allows_outside
        if must or (config.enabled and not wants_outside):
            offer = await self._find_offer()
            if offer.kind != "none" and not must and config.is_excluded(command.command):
                return OutsidePlace(config.policy.writable)
            if offer.kind != "none":
                return self._open(offer, await self._protect(config.policy, command.folders), config)
            if must:
                raise ToolError(f"The command was allowed because it runs in the sandbox, but {offer.reason}.")
            return None
        if command.scope.confined and config.confines_readers and not config.enabled:
            offer = await self._find_offer()
            if offer.kind != "none" and command.scope.confined == "editor":
                return await self._open_for_edits(offer, config, command.folders)
            if offer.kind != "none":
                policy, folders = config.reader_policy, map(os.path.realpath, command.folders)
                readable = tuple(dict.fromkeys((*policy.readable, *folders)))
                return self._open(offer, msgspec.structs.replace(policy, readable=readable), config)
        return None

    async def place_program(self, kind: Literal["hook", "server"], *, by_project: bool) -> SandboxPlace | None:
        """The place of a command hook or a stdio MCP server. Raises ToolError."""
        read = self._read_config if by_project else self._read_config_without_project
        config = read()
        wanted = config.confines_hooks if kind == "hook" else config.confines_servers
        if not wanted or not config.enabled:
            return None
        offer = await self._find_offer()
        if offer.kind == "none":
            raise ToolError(f"It must run in the sandbox, but {offer.reason}.")
        return self._open(offer, await self._protect(config.policy, ()), config, read)

    def accept(self, path: str) -> None:
        """A file tool has changed a file. If it is protected, the change is not undone after the next command."""
        for launcher in self._launchers.values():
            launcher.accept(path)

    def describe(self) -> SandboxKind:
        """What confines commands in this session."""
        return self._detect().kind if self._read_config().enabled else "none"

    async def close(self) -> None:
        """The session has ended, and all its commands."""
        for proxy in self._proxies.values():
            await proxy.close()
        if self._folders is not None:
            shutil.rmtree(self._folders.temp, ignore_errors=True)

    async def _find_offer(self) -> SandboxOffer:
        return await asyncio.to_thread(self._detect)

    async def _protect(self, policy: SandboxPolicy, folders: tuple[str, ...]) -> SandboxPolicy:
        """The policy with the protected files of this moment."""
        if policy.filesystem_disabled:
            return policy
        writable = list_writable(policy, folders)
        found = await self._find_protected(writable)
        return msgspec.structs.replace(
            policy,
            searched=writable,
            writable=tuple(dict.fromkeys((*writable, *found.writable))),
            protected=found.read_only,
            restored=found.restored,
        )

    async def _open_for_edits(
        self, offer: SandboxOffer, config: SandboxConfig, folders: tuple[str, ...]
    ) -> SandboxPlace | None:
        """The place of a command that edits; None if it cannot be confined.

        Protected files are read-only, but nothing is restored afterwards: the names that the command creates were
        decided on, and others may work in the same folder. Landlock knows no exceptions, so there commands are not
        allowed without approval while another one runs, and not confined if there are exceptions.
        """
        policy = config.editor_policy
        writable = list_writable(policy, folders)
        if offer.kind == "landlock":
            has_exceptions = any(is_beneath(path, root) for path in policy.read_only for root in writable)
            policy = msgspec.structs.replace(policy, writable=writable)
            return None if has_exceptions else self._open(offer, policy, config)
        found = await self._find_protected(writable)
        kept = [path for path in found.writable if any(is_beneath(path, root) for root in writable)]
        policy = msgspec.structs.replace(policy, writable=(*writable, *kept), protected=found.existing)
        return self._open(offer, policy, config)

    async def _find_protected(self, writable: tuple[str, ...]) -> ProtectedPaths:
        if writable not in self._trees:
            if len(self._trees) >= MAX_LAUNCHERS:
                self._trees.pop(next(iter(self._trees)))
            self._trees[writable] = await asyncio.to_thread(ProtectedTree, writable)
        return self._trees[writable].find()

    def _open(
        self,
        offer: SandboxOffer,
        policy: SandboxPolicy,
        config: SandboxConfig,
        read_config: Callable[[], SandboxConfig] | None = None,
    ) -> SandboxPlace:
        launcher = self._launchers.get(policy)
        if offer.kind == "landlock" and policy.network.names_hosts and not self._has_warned:
            self._has_warned = True
            self._report_refusal(f"sandbox.network has no effect: {NO_LANDLOCK_NETWORK.partition(': ')[2]}.")
        proxy = self._open_proxy(read_config or self._read_config)
        if launcher is None:
            if self._folders is None:
                self._folders = self._make_folders()
            if len(self._launchers) >= MAX_LAUNCHERS:
                self._launchers.pop(next(iter(self._launchers)))
            has_network = offer.kind == "bubblewrap" and not policy.network.is_closed
            launcher = self._launchers[policy] = SandboxLauncher(
                offer,
                policy,
                self._folders,
                self._watch(offer, policy),
                proxy.serve if has_network else None,
            )
        return SandboxPlace(offer.kind, launcher, config, proxy)

    def _watch(self, offer: SandboxOffer, policy: SandboxPolicy) -> ProtectedFiles:
        """What is restored after a command: names that mounts cannot protect, and everything under Landlock."""
        tree = self._trees.get(policy.searched)
        index = FolderIndex(()) if tree is None else tree.index
        mounted = () if offer.kind == "bubblewrap" else policy.protected
        return ProtectedFiles(index, (*mounted, *policy.restored))

    async def _ask(self, host: str, port: int) -> bool:
        if self._ask_host is None or not self._read_config().policy.network.asks:
            return False
        return await self._ask_host(host, port)

    def _open_proxy(self, read_config: Callable[[], SandboxConfig]) -> EgressProxy:
        if read_config not in self._proxies:
            self._proxies[read_config] = self._make_proxy(
                lambda: read_config().policy.network,
                self._ask,
                lambda refusal: self._report_refusal(refusal.reason),
            )
        return self._proxies[read_config]


def list_writable(policy: SandboxPolicy, folders: tuple[str, ...]) -> tuple[str, ...]:
    """What is writable with these folders, without what is denied: a denial counts more than any permission."""
    paths = dict.fromkeys((*policy.writable, *map(os.path.realpath, folders)))
    return tuple(path for path in paths if not any(is_beneath(path, denied) for denied in policy.denied_write))


def find_violations(policy: SandboxPolicy, output: str, kind: SandboxKind) -> list[str]:
    """One sentence for each refusal that the output shows."""
    found: list[str] = []
    lines = output.splitlines()
    for line in [*lines[: MAX_LINES // 2], *lines[MAX_LINES // 2 :][-MAX_LINES // 2 :]]:
        if ERRORS.search(line) and not policy.filesystem_disabled:
            found += explain_paths(policy, line)
        if NETWORK_ERRORS.search(line):
            found.append(NO_LANDLOCK_NETWORK if kind == "landlock" else NO_NETWORK)
        elif SOCKET_ERRORS.search(line) and (kind == "landlock" or not policy.network.all_unix_sockets):
            found.append(NO_LANDLOCK_NETWORK if kind == "landlock" else NO_SOCKET)
    return list(dict.fromkeys(found))[:MAX_VIOLATIONS]


def explain_paths(policy: SandboxPolicy, line: str) -> list[str]:
    # The path is next to the error: `bash: line 1: /etc/x: Read-only file system`.
    error = ERRORS.search(line)
    before = line if error is None else line[: error.start()]
    words = [*reversed(QUOTED_PATH.findall(line)), *reversed(PLAIN_PATH.findall(before)), *PLAIN_PATH.findall(line)]
    for word in dict.fromkeys(words):
        path = os.path.normpath(os.path.join(policy.cwd, os.path.expanduser(word)))
        if reason := explain_path(policy, path, line):
            return [f"{path}: {reason}"]
    return []


def explain_path(policy: SandboxPolicy, path: str, line: str) -> str:
    """Why the policy refuses a path; "" if it does not."""
    hidden = find_root(path, policy.unreadable)
    shown = find_root(path, (*policy.writable, *policy.readable))
    if hidden is not None and (shown is None or len(shown) < len(hidden)):
        return "reading it is not allowed in the sandbox"
    root = find_root(path, policy.writable)
    if any(is_beneath(path, kept) for kept in policy.read_only):
        return "writing it is not allowed in the sandbox"
    if any(is_beneath(path, kept) for kept in policy.protected):
        return "it is protected in the sandbox, because it decides what runs later"
    if root is None and re.search(r"Read-only|Permission denied", line, re.IGNORECASE) and looks_like_path(path):
        return "it is outside of the folders that commands in the sandbox may change"
    return ""


def looks_like_path(path: str) -> bool:
    """Whether a word of an error message is a path, and not just any word."""
    return os.path.lexists(path) or (os.path.isdir(os.path.dirname(path)) and os.path.dirname(path) != "/")
