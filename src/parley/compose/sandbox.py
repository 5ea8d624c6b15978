"""The sandbox of a session: what the settings, the rules and the working directories say about it."""

from __future__ import annotations

import functools
import glob
import os
import shutil
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.compose.launch_context import LaunchContext
from parley.compose.permissions import open_policy_without_project
from parley.permissions.base import PathsAndHosts, Policy
from parley.permissions.boundary import list_excluded
from parley.settings.base import MergedSettings
from parley.workspace.process.processes import private_folder
from parley.workspace.search_path import is_found_untrusted
from parley.workspace.sensitive_names import KEY_NAMES, KEY_PATHS

if TYPE_CHECKING:
    from parley.workspace.sandbox.base import HostRefusal, NetworkPolicy, SandboxOffer, SandboxPolicy
    from parley.workspace.sandbox.commands import CommandSandbox, SandboxConfig
    from parley.workspace.sandbox.egress.proxy import EgressProxy
    from parley.workspace.sandbox.launcher import SandboxFolders


HIDDEN_ELSEWHERE = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/var/backups"),
    *("/etc/sudoers", "/etc/sudoers.d", "/etc/ssl/private"),
)
SYSTEM_FOLDERS = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "sbin", "snap", "sys", "usr"}
    | {"tmp", "run"}  # commands have their own
)
"""The folders at the root that readers see, apart from the working directories and programs on PATH."""
OTHER_PRIVATE_FOLDER = "sandbox-files"
"""In the configuration folder, if the usual one in the temporary folder is not ours."""
GIT_CONFIG = (".gitconfig", ".config/git")
MAX_MATCHES = 1000
"""How many files a pattern with `*` stands for, at most."""


@functools.cache
def find_offer(bwrap: str | None = None, weaker_nested: bool = False) -> SandboxOffer:
    """What this machine offers; looked up once."""
    from parley.workspace.sandbox.base import detect

    return detect(bwrap, weaker_nested=weaker_nested)


def offer_for(merged: MergedSettings, *, is_remote: bool = False) -> SandboxOffer:
    """What the machine that runs the commands offers."""
    if is_remote:
        from parley.workspace.sandbox.base import SandboxOffer

        return SandboxOffer(kind="none", reason="commands run in a remote workspace, which has no sandbox")
    return find_offer(merged.get("sandbox.bwrapPath"), merged.is_on("sandbox.enableWeakerNestedSandbox"))


def make_sandbox(launch: LaunchContext, session_id: str, policy: Policy, *, asks: bool) -> CommandSandbox:
    """Built when the first command runs. `asks`: whether the client can be asked about hosts."""
    from parley.workspace.sandbox.commands import CommandSandbox

    settings, list_rules = launch.settings, policy.list_paths_and_hosts
    reader = ConfigReader(launch, lambda: settings.merged, list_rules, policy, asks=asks)
    known: dict[int, tuple[MergedSettings, PathsAndHosts]] = {}

    def list_rules_without_project() -> PathsAndHosts:
        own = settings.without_project
        if own is settings.merged:
            return list_rules()
        if id(own) not in known:
            known.clear()
            known[id(own)] = own, open_policy_without_project(launch).list_paths_and_hosts()
        return known[id(own)][1]

    without_project = ConfigReader(
        launch, lambda: settings.without_project, list_rules_without_project, policy, asks=asks
    )
    return CommandSandbox(
        reader.read,
        lambda: offer_for(launch.settings.merged, is_remote=launch.remote is not None),
        lambda: make_folders(launch, session_id),
        functools.partial(make_proxy, launch.warn),
        without_project.read,
    )


def make_folders(launch: LaunchContext, session_id: str) -> SandboxFolders:
    """Create the private folders of a session. Raises ToolError if another user owns one of them."""
    from parley.workspace.sandbox.launcher import SandboxFolders

    root = private_root(launch)
    if root.name == OTHER_PRIVATE_FOLDER:
        launch.warn(f"the usual folder for temporary files belongs to another user; {root} is used instead")
    private = functools.partial(private_folder, root.parent, root.name)
    return SandboxFolders(
        temp=str(private("sandbox", session_id)),
        empty=str(private("empty")),
        records=str(private("placeholders")),
        quarantine=str(root / "refused" / session_id),
    )


def private_root(launch: LaunchContext) -> Path:
    """The folder for temporary files of sessions, in which commands of the sandbox may write."""
    temporary = os.path.realpath(launch.environment.get("CLAUDE_CODE_TMPDIR") or "/tmp")
    usual = Path(temporary, f"parley-{os.getuid()}")
    try:
        status = os.lstat(usual)
    except OSError:
        return usual
    # Another user may have taken the name, so that no command could run.
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return usual if is_ours else Path(os.path.realpath(launch.config), OTHER_PRIVATE_FOLDER)


def make_proxy(
    warn: Callable[[str], None],
    read_policy: Callable[[], NetworkPolicy],
    ask: Callable[[str, int], Awaitable[bool]],
    on_refusal: Callable[[HostRefusal], None],
) -> EgressProxy:
    from parley.workspace.sandbox.egress.proxy import EgressPolicy, EgressProxy, OwnProxies, read_patterns

    network = read_policy()

    @functools.lru_cache(maxsize=1)
    def compile_policy(network: NetworkPolicy) -> EgressPolicy:
        return EgressPolicy(
            allowed=read_patterns(network.allowed_domains, warn), denied=read_patterns(network.denied_domains, warn)
        )

    return EgressProxy(
        lambda: compile_policy(read_policy()),
        ask=ask,
        own=OwnProxies(http=network.own_http_port, socks=network.own_socks_port),
        on_refusal=on_refusal,
    )


class ConfigReader:
    """Reads the configuration of the sandbox from the settings in effect, again if something has changed."""

    def __init__(
        self,
        launch: LaunchContext,
        read_settings: Callable[[], MergedSettings],
        list_rules: Callable[[], PathsAndHosts],
        policy: Policy,
        *,
        asks: bool,
    ) -> None:
        self._launch = launch
        self._read_settings = read_settings
        self._list_rules = list_rules
        self._asks = asks
        self._policy = policy
        self._key: tuple[object, ...] = ()
        self._config: SandboxConfig | None = None
        self._has_patterns = False
        """Whether a path has a `*`, so that new files must be looked for."""

    def read(self) -> SandboxConfig:
        merged, listed = self._read_settings(), self._policy.list_folders()
        key = (id(merged), listed, self._list_rules())
        if self._config is None or key != self._key or self._has_patterns:
            self._key, self._config = key, self._build(merged, listed)
        return self._config

    def _build(self, merged: MergedSettings, listed: tuple[str, ...]) -> SandboxConfig:
        from parley.workspace.sandbox.commands import SandboxConfig

        patterns = tuple(merged.get("sandbox.excludedCommands", ()))
        variables = [entry.get("name") for entry in dictionaries(merged.get("sandbox.credentials.envVars", ()))]
        ignored = merged.get("sandbox.ignoreViolations", {})
        policy = self._build_policy(merged, listed)
        return SandboxConfig(
            enabled=self._launch.settings.merged.is_on("sandbox.enabled") or self._launch.options.require_sandbox,
            allows_outside=merged.get("sandbox.allowUnsandboxedCommands") is not False,
            confines_readers=merged.get("sandbox.confineReaders") is not False,
            confines_hooks=merged.is_on("sandbox.confineHooks"),
            confines_servers=merged.is_on("sandbox.confineMcpServers"),
            policy=policy,
            reader_policy=self._build_reader_policy(listed),
            editor_policy=self._build_editor_policy(policy, listed),
            hidden_variables=tuple(name for name in variables if isinstance(name, str)),
            ignored_violations={
                pattern: tuple(text for text in texts if isinstance(text, str))
                for pattern, texts in ignored.items()
                if isinstance(texts, list)
            },
            is_excluded=lambda command: self._is_excluded(command, patterns, policy.writable),
        )

    def _is_excluded(self, command: str, patterns: tuple[str, ...], writable: tuple[str, ...]) -> bool:
        """Not if a command of the sandbox could have put the program there."""

        programs = list_excluded(command, patterns, str(self._launch.home))
        environment = self._launch.settings.child_environment() if programs else {}
        return bool(programs) and not any(is_found_untrusted(name, environment, writable) for name in programs)

    def _build_policy(self, merged: MergedSettings, listed: tuple[str, ...]) -> SandboxPolicy:
        from parley.workspace.sandbox.base import SandboxPolicy
        from parley.workspace.sandbox.launcher import installation_paths

        paths = functools.partial(self._list_paths, merged)
        files = [entry.get("path") for entry in dictionaries(merged.get("sandbox.credentials.files", ()))]
        rules = self._list_rules()
        allow_read = paths("allowRead")
        writable = self.list_writable()
        hidden = [*self._keys(), *HIDDEN_ELSEWHERE, *rules.no_read, *(path for path in files if isinstance(path, str))]
        denied_read = [*paths("denyRead"), *self._resolve(hidden)]
        own = [path for path in installation_paths() if path not in writable]
        denied_write = [*paths("denyWrite"), *self._resolve(rules.no_edit)]
        return SandboxPolicy(
            cwd=os.path.realpath(self._launch.cwd),
            writable=unique(writable),
            denied_write=unique(denied_write),
            read_only=unique([*denied_write, *paths("denyRead"), *own]),
            unreadable=unique(path for path in denied_read if path not in allow_read),
            readable=unique([*allow_read, *self._programs()]),
            network=self._build_network(merged),
            filesystem_disabled=merged.is_on("sandbox.filesystem.disabled"),
            weaker_nested=merged.is_on("sandbox.enableWeakerNestedSandbox"),
            nested_user_namespaces=merged.is_on("sandbox.allowNestedUserNamespaces"),
        )

    def list_writable(self) -> list[str]:
        """The folders and files that the session, or a command in the sandbox, can change."""
        rules = self._policy.list_paths_and_hosts()  # this also loads the rules, which add working directories
        folders = [os.path.realpath(path) for path in (self._launch.cwd, *self._policy.list_folders())]
        paths = (*self._list_paths(self._launch.settings.merged, "allowWrite"), *self._resolve(rules.edit))
        return [*folders, *(path for path in paths if os.path.lexists(path))]

    def _list_paths(self, merged: MergedSettings, key: str) -> list[str]:
        """The paths of a list in `sandbox.filesystem`."""
        return self._resolve(merged.get(f"sandbox.filesystem.{key}", ()))

    def _keys(self) -> list[str]:
        """The files and folders with credentials in the home folder. `allowRead` shows them to commands again."""
        names = sorted(KEY_NAMES | KEY_PATHS)
        return [
            *(os.path.join(self._launch.home, name) for name in names),
            *(str(self._launch.config / name) for name in (".credentials.json", "mcp-logins.json")),
        ]

    def _build_editor_policy(self, policy: SandboxPolicy, listed: tuple[str, ...]) -> SandboxPolicy:
        """Commands that only edit change the working directories, and what rules allow to edit, and nothing else."""
        from parley.workspace.sandbox.base import SandboxPolicy

        rules = self._list_rules()
        folders = [os.path.realpath(path) for path in (self._launch.cwd, *listed)]
        allowed = [path for path in self._resolve(rules.edit_roots) if os.path.isdir(path) and path != "/"]
        return SandboxPolicy(
            cwd=policy.cwd,
            writable=unique([*folders, *allowed]),
            denied_write=policy.denied_write,
            read_only=policy.read_only,
            unreadable=policy.unreadable,
            readable=unique([*policy.readable, *self._resolve(rules.read_roots)]),
        )

    def _build_network(self, merged: MergedSettings) -> NetworkPolicy:
        from parley.workspace.sandbox.base import NetworkPolicy

        rules = self._list_rules()
        managed_only = merged.is_on("sandbox.network.allowManagedDomainsOnly")
        given = merged.get("sandbox.network.allowedDomains", ())
        return NetworkPolicy(
            allowed_domains=unique([*given, *(() if managed_only else rules.hosts)]),
            denied_domains=unique([*merged.get("sandbox.network.deniedDomains", ()), *rules.no_hosts]),
            asks=self._asks and not merged.is_on("sandbox.network.strictAllowlist") and not managed_only,
            all_unix_sockets=merged.is_on("sandbox.network.allowAllUnixSockets"),
            own_http_port=merged.get("sandbox.network.httpProxyPort"),
            own_socks_port=merged.get("sandbox.network.socksProxyPort"),
        )

    def _build_reader_policy(self, listed: tuple[str, ...]) -> SandboxPolicy:
        """Commands that only read see the working directories and the system, and change nothing."""
        from parley.workspace.sandbox.base import SandboxPolicy

        rules = self._list_rules()
        folders = [os.path.realpath(path) for path in (self._launch.cwd, *listed)]
        top = [os.path.join("/", name) for name in os.listdir("/") if name not in SYSTEM_FOLDERS]
        hidden = [path for path in top if os.path.isdir(path) and not os.path.islink(path)]
        config = [os.path.join(self._launch.home, name) for name in GIT_CONFIG]
        return SandboxPolicy(
            cwd=os.path.realpath(self._launch.cwd),
            writable=(),
            unreadable=unique([*hidden, *self._resolve([*self._keys(), *HIDDEN_ELSEWHERE, *rules.no_read])]),
            readable=unique(
                [
                    *(*folders, *self._programs(), *self._repositories(folders)),
                    *self._resolve([*config, *rules.read_roots]),
                ]
            ),
        )

    def _repositories(self, folders: list[str]) -> list[str]:
        from parley.workspace.sandbox.protected import outer_repository

        return [path for folder in folders for path in outer_repository(folder)]

    def _programs(self) -> list[str]:
        """Folders of programs that a policy may hide: those on PATH below /tmp or the home folder."""
        search_path = self._launch.settings.child_environment().get("PATH", "").split(":")
        home, found = os.path.realpath(self._launch.home), []
        for folder in (os.path.realpath(path) for path in search_path if os.path.isabs(path)):
            if folder.startswith(home + "/"):
                # Programs need files beside their folder: ~/.pyenv/shims needs ~/.pyenv.
                found.append(os.path.join(home, folder[len(home) + 1 :].split("/")[0]))
            elif not folder.startswith(("/usr/", "/bin", "/sbin")):
                found.append(folder)
        return [path for path in found if os.path.isdir(path)]

    def _resolve(self, paths: Iterable[str]) -> list[str]:
        """Absolute, real paths; a pattern stands for the files that match it now."""
        found: list[str] = []
        for path in paths:
            expanded = os.path.join(
                self._launch.cwd, str(self._launch.home) + path[1:] if path.startswith("~") else path
            )
            if not glob.has_magic(path):
                found.append(os.path.realpath(expanded))
                continue
            self._has_patterns = True
            matches = glob.glob(expanded, recursive=True, include_hidden=True)[:MAX_MATCHES]
            found += [os.path.realpath(match) for match in matches]
        return found


def dictionaries(values: Iterable[Any]) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)]


def unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


def describe_missing() -> str:
    """How to get a sandbox on this machine."""
    if sys.platform.startswith("linux"):
        return "" if shutil.which("bwrap") else "install bubblewrap (the package of the same name)"
    return "run Parley in a container"
