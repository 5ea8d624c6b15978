"""The data of the sandbox: what commands may do, and which sandbox this machine offers to enforce it.

    offer = detect(...)                       # what this machine offers, and why
    policy = SandboxPolicy(...)               # plain data; made from the settings by compose/sandbox.py
    place = await sandbox.place(command)      # commands.py: where a command runs; None for outside
    processes.start(PreparedCommand(sandbox=place.confinement, environment=place.adapt(environment), ...), take)

Commands do not start in the sandbox one by one. A supervisor (process/supervisor.py) starts in it once, and forks every
command of the session, so that only the first command waits for the sandbox.

The network. In bubblewrap, commands have a network namespace of their own, with nothing but a loopback interface. If
the policy permits hosts, the supervisor listens in that namespace on 127.0.0.1:`PROXY_PORT` before it runs any command,
and passes the *listening socket* to the engine. The engine's `EgressProxy` accepts connections on it; no other
program, and no Unix socket in the sandbox, is needed. The variables of `proxy_environment` point commands to it. HTTP
and SOCKS5 use the same port: the first byte of a SOCKS5 connection is 5. Landlock cannot confine connections to one
address, so there commands have no network at all.

The file system in bubblewrap. Everything is read-only, and the folders that commands may change are mounted over it.
What is protected beneath them is mounted read-only once more. Such a mount point cannot be renamed or removed; so that
it cannot be moved with a folder above it either, each folder between it and the writable one is a mount point, too. A
path that does not exist needs a mount point all the same. bubblewrap creates an empty folder there, a *placeholder*,
which stays on the host until it is removed (`cleanup.py`).

Landlock has no exceptions: a right to a folder is a right to everything beneath it. Around a path that is excepted, the
plan allows the entries beside it, and nothing new can be created in the folders above it. Names of files can be listed
everywhere. Protected files in a writable folder are not excepted, because then nothing could be created there; they are
compared and restored instead (`cleanup.py`).
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import PurePosixPath
from typing import Literal

from parley.protocol.base import Struct
from parley.workspace.base import Scope
from parley.workspace.landlock import (
    EVERY_RIGHT,
    EXECUTE,
    IOCTL_DEV,
    READ,
    READ_FILE,
    READ_FOLDER,
    WRITE_FILE,
    abi_version,
)

SandboxKind = Literal["bubblewrap", "landlock", "none"]
"""What confines commands; on the wire it is `sandbox` of `system/init`."""

PROXY_PORT = 3128
"""The port of the proxy, in the network namespace of the sandbox. No other process can occupy it there."""
PROBE = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev")
PROBE_SECONDS = 5.0
NO_SECCOMP = "the system call filter exists only for Linux on x86_64 and aarch64"
FILTERED_MACHINES = ("x86_64", "aarch64")
LANDLOCK_WITH_SCOPES = 6
"""The first version that keeps commands from abstract sockets and from signals to processes outside."""


class NetworkPolicy(Struct, frozen=True, kw_only=True):
    """Which hosts and sockets commands may reach."""

    allowed_domains: tuple[str, ...] = ()
    """`example.com`, or `*.example.com` for all its subdomains."""
    denied_domains: tuple[str, ...] = ()
    """Refused even if they are allowed."""
    asks: bool = False
    """Whether a person is asked about a host that is neither allowed nor denied. Otherwise it is refused."""
    all_unix_sockets: bool = False
    """Whether commands may create Unix sockets."""
    own_http_port: int | None = None
    """The port of a proxy of the user on this machine, which replaces ours."""
    own_socks_port: int | None = None
    allow_private: bool = False
    """Whether an allowed name may have a loopback, private or link-local address."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be reached, so that no proxy is needed."""
        return not (self.names_hosts or self.asks)

    @property
    def names_hosts(self) -> bool:
        """Whether the settings open the network to some hosts."""
        return bool(self.allowed_domains or self.own_http_port or self.own_socks_port)


class SandboxPolicy(Struct, frozen=True, kw_only=True):
    """What commands may do. All paths are absolute and real (no symlinks); denied ones need not exist."""

    cwd: str
    writable: tuple[str, ...]
    """Existing folders and files that commands may change; everything else is read-only."""
    denied_write: tuple[str, ...] = ()
    """Paths that take back what is writable: none of them, and nothing beneath them, can be a writable folder."""
    read_only: tuple[str, ...] = ()
    """Paths beneath writable folders that commands may not change, whether or not they exist."""
    protected: tuple[str, ...] = ()
    """The same for files that decide what runs later. Where this cannot be enforced, they are restored afterwards."""
    searched: tuple[str, ...] = ()
    """The folders in which no protected names may appear."""
    restored: tuple[str, ...] = ()
    """More of them, which are always restored afterwards."""
    unreadable: tuple[str, ...] = ()
    """Files and folders that look empty."""
    readable: tuple[str, ...] = ()
    """Paths beneath unreadable folders that may be read."""
    network: NetworkPolicy = NetworkPolicy()
    filesystem_disabled: bool = False
    """Only the network and system calls are confined."""
    weaker_nested: bool = False
    """Keep the /proc of the host, for containers that cannot mount a new one."""
    nested_user_namespaces: bool = False
    """Commands may create user namespaces, and with them undo the other rules."""


class SandboxOffer(Struct, frozen=True, kw_only=True):
    """What a machine offers."""

    kind: SandboxKind
    reason: str
    """A sentence: why this kind, and why not a stronger one."""
    bwrap: str = ""
    """The path of bubblewrap."""


class HostRefusal(Struct, frozen=True):
    """A connection that the proxy refused."""

    host: str
    port: int
    reason: str


class SandboxedCommand(Struct, frozen=True, kw_only=True):
    """A command that is about to run."""

    command: str
    scope: Scope
    wants_outside: bool = False
    """Whether the model asked to run it outside of the sandbox, and that was approved."""
    folders: tuple[str, ...] = ()
    """More folders that it may change: the worktree of an agent."""
    ask_host: Callable[[str, int], Awaitable[bool]] | None = None
    """Asks a person whether it may connect to a host."""
    report_refusal: Callable[[str], None] = lambda text: None
    """Tells a person about a connection that was refused."""


def proxy_environment(*, with_socks: bool = False) -> dict[str, str]:
    """The variables that make programs use the proxy. `with_socks`: prefer SOCKS5 for other protocols than HTTP.

    Not by default: some HTTP libraries do not start if a variable names a SOCKS proxy.
    """
    http = f"http://127.0.0.1:{PROXY_PORT}"
    other = f"socks5h://127.0.0.1:{PROXY_PORT}" if with_socks else http
    names = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), http)
    no_proxy = dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1")
    return {**names, **dict.fromkeys(("ALL_PROXY", "all_proxy"), other), **no_proxy}


def detect(bwrap: str | None = None, *, weaker_nested: bool = False) -> SandboxOffer:
    """Find the strongest sandbox that starts. `bwrap`: the program to use instead of the one on PATH."""
    if not sys.platform.startswith("linux"):
        return SandboxOffer(kind="none", reason=f"there is no sandbox for this system ({sys.platform})")
    if os.uname().machine not in FILTERED_MACHINES:
        return SandboxOffer(kind="none", reason=NO_SECCOMP)
    found, problem = find_bubblewrap(bwrap, weaker_nested=weaker_nested)
    if not problem:
        return SandboxOffer(kind="bubblewrap", reason=f"bubblewrap starts ({found})", bwrap=found)
    abi = abi_version()
    if abi >= LANDLOCK_WITH_SCOPES:
        return SandboxOffer(kind="landlock", reason=f"{problem}; Landlock {abi} is available")
    landlock = f"Landlock {abi} is too old ({LANDLOCK_WITH_SCOPES} is needed)" if abi else "there is no Landlock"
    return SandboxOffer(kind="none", reason=f"{problem}; {landlock}")


def find_bubblewrap(given: str | None, *, weaker_nested: bool) -> tuple[str, str]:
    """The path of bubblewrap, and why it cannot be used; one of them is empty."""
    found = given or shutil.which("bwrap", path=os.defpath)
    if found is None:
        return "", "bubblewrap is not installed (the program bwrap)"
    proc = () if weaker_nested else ("--proc", "/proc")
    try:
        done = subprocess.run(
            [found, *PROBE, *proc, "--", "/bin/true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env={},
            timeout=PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return "", f"bubblewrap does not start: {exc}"
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return "", f"bubblewrap does not start: {said[-1] if said else f'exit code {done.returncode}'}"
    return found, ""


MountKind = Literal["writable", "read_only", "hidden", "empty"]
PRIVATE_TEMP = "/tmp"
HIDDEN_RUNTIME = "/run"
"""It contains the sockets of services."""
NAMESPACES = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--as-pid-1")
"""Our supervisor is the first process. That of bubblewrap has no system call filter, and commands could write to its
memory."""
HIDDEN = ("/dev", "/tmp", "/run")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
"""Not the pseudo-terminals: those of the user are among them."""


class MountPlan(Struct, frozen=True, kw_only=True):
    """The arguments, and what they should lead to."""

    arguments: tuple[str, ...]
    expected: tuple[tuple[str, int, int, bool], ...] = ()
    """What the supervisor finds in the sandbox: mount points with device and inode (0 for any), and if read-only."""


def plan_mounts(policy: SandboxPolicy, *, temp: str, empty: str, runtime: tuple[str, ...]) -> MountPlan:
    """`temp`: the private folder for /tmp. `empty`: an empty folder. `runtime`: paths that our own process needs."""
    # bubblewrap covers only what access(2) calls writable. A file of /proc/sys is writable for root all the same.
    proc = () if policy.weaker_nested else ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
    if policy.filesystem_disabled:
        return MountPlan(arguments=(*NAMESPACES, "--bind", "/", "/", "--dev", "/dev", *proc))
    kinds, _ = choose_mounts(policy, runtime)
    arguments = [*NAMESPACES, "--ro-bind", "/", "/", "--dev", "/dev", *proc]
    if HIDDEN_RUNTIME not in kinds:
        arguments += ["--tmpfs", HIDDEN_RUNTIME]
    if PRIVATE_TEMP not in kinds and not policy.writable:
        arguments += ["--tmpfs", PRIVATE_TEMP]  # commands that only read leave nothing in it
    elif PRIVATE_TEMP not in kinds:
        arguments += ["--bind", temp, PRIVATE_TEMP]
        kinds[temp] = "writable"
    for path in sorted(kinds, key=lambda path: PurePosixPath(path).parts):
        has_mounts = any(other != path and is_beneath(other, path) for other in kinds)
        arguments += mount_arguments(path, kinds[path], empty, has_mounts=has_mounts)
    hidden = [path for path, kind in kinds.items() if kind == "hidden" and os.path.isdir(path)]
    sealed = [word for path in hidden for word in ("--remount-ro", path)]
    return MountPlan(arguments=(*arguments, *sealed), expected=tuple(map(expect, kinds, kinds.values())))


def expect(path: str, kind: MountKind) -> tuple[str, int, int, bool]:
    if kind in ("hidden", "empty"):
        return path, 0, 0, True
    status = os.lstat(path)
    return path, status.st_dev, status.st_ino, kind == "read_only"


def choose_mounts(policy: SandboxPolicy, runtime: tuple[str, ...]) -> tuple[dict[str, MountKind], list[str]]:
    """What is mounted at each path, and the paths that do not exist on the host."""
    kinds: dict[str, MountKind] = dict.fromkeys(policy.writable, "writable")
    placeholders: list[str] = []
    for path in (*runtime, *policy.readable):
        if os.path.lexists(path) and path not in kinds:
            kinds[path] = "writable" if find_root(path, policy.writable) else "read_only"
    kept: list[str] = []
    for path in (*policy.read_only, *policy.protected):
        root = find_root(path, policy.writable)
        if root is None or root == path:
            continue
        if os.path.lexists(path):
            kinds[path] = "read_only"
            kept.append(path)
        elif missing := first_missing(path, root):
            kinds[missing] = "empty"
            placeholders.append(missing)
            kept.append(missing)
    for path in policy.unreadable:
        if os.path.lexists(path):
            kinds[path] = "hidden"
            kept.append(path)
    for path in kept:
        for folder in folders_between(path, policy.writable):
            kinds.setdefault(folder, "writable")
    return kinds, list(dict.fromkeys(placeholders))


def mount_arguments(path: str, kind: MountKind, empty: str, *, has_mounts: bool) -> list[str]:
    if kind == "writable":
        return ["--bind", path, path]
    if kind == "read_only":
        return ["--ro-bind", path, path]
    if kind == "empty":
        return ["--ro-bind", empty, path]
    if is_folder(path):
        # Mount points in it must be found, although it cannot be listed.
        return ["--perms", "0111" if has_mounts else "0000", "--tmpfs", path]
    # A device cannot be opened in a mount without devices: reading fails instead of giving nothing.
    return ["--ro-bind", "/dev/null", path]


def find_root(path: str, folders: tuple[str, ...]) -> str | None:
    """The innermost of the folders that contains the path, or is it."""
    found = [folder for folder in folders if is_beneath(path, folder)]
    return max(found, key=len, default=None)


def is_beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def folders_between(path: str, writable: tuple[str, ...]) -> list[str]:
    """The folders above a path, up to the writable one that contains it."""
    root = find_root(path, writable)
    found: list[str] = []
    while root is not None and (path := os.path.dirname(path)) != root and is_beneath(path, root):
        found.append(path)
    return found


def first_missing(path: str, root: str) -> str | None:
    """The first part of a path beneath `root` that does not exist; None if a file is in its place."""
    current = root
    for part in PurePosixPath(path).relative_to(root).parts:
        if not is_folder(current):
            return None
        current = os.path.join(current, part)
        if not os.path.lexists(current):
            return current
    return None


def is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def plan_paths(policy: SandboxPolicy, runtime: tuple[str, ...], temp: str) -> list[tuple[str, int]]:
    hidden = (*HIDDEN, *policy.unreadable)
    found = [("/", READ_FOLDER), *allow_around("/", hidden, EXECUTE | READ)]
    found += [(f"/dev/{name}", READ_FILE | WRITE_FILE | IOCTL_DEV) for name in DEVICES]
    for path in runtime:
        found.append((path, EXECUTE | READ))
    for path in policy.readable:
        found += allow_around(
            path, tuple(each for each in policy.unreadable if not is_beneath(path, each)), EXECUTE | READ
        )
    for path in policy.writable:
        found += allow_around(path, policy.unreadable, EXECUTE | READ)
        found += allow_around(path, (*policy.read_only, *policy.unreadable), EVERY_RIGHT)
    return [*found, (temp, EVERY_RIGHT)]


def allow_around(path: str, excepted: tuple[str, ...], access: int) -> Iterator[tuple[str, int]]:
    """Allow a folder, or what is in it and is not excepted."""
    if any(is_beneath(path, each) for each in excepted):
        return
    inner = tuple(each for each in excepted if is_beneath(each, path))
    if not inner:
        yield path, access
        return
    try:
        names = os.listdir(path)
    except OSError:
        return
    for name in names:
        yield from allow_around(os.path.join(path, name), inner, access)
