"""The data of the sandbox: what commands may do, and which sandbox this machine offers to enforce it.

    offer = detect(...)                       # what this machine offers, and why
    policy = SandboxPolicy(...)               # plain data; made from the settings by compose/workspace/sandbox.py
    place = await sandbox.place(command)      # commands.py: where a command runs; None for outside
    processes.start(..., sandbox=place.confinement, environment=place.adapt(environment))

Commands do not start in the sandbox one by one. A supervisor (process/supervisor.py) starts in it once, and forks every
command of the session, so that only the first command waits for the sandbox.

The network. In bubblewrap, commands have a network namespace of their own, with nothing but a loopback interface. If
the policy permits hosts, the supervisor listens in that namespace on 127.0.0.1:`PROXY_PORT` before it runs any command,
and passes the *listening socket* to the engine. The engine's `EgressProxy` accepts connections on it; no other
program, and no Unix socket in the sandbox, is needed. The variables of `proxy_environment` point commands to it. HTTP
and SOCKS5 use the same port: the first byte of a SOCKS5 connection is 5. Landlock cannot confine connections to one
address, so there commands have no network at all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Literal

from parley.protocol.base import Struct
from parley.workspace.base import Scope
from parley.workspace.landlock import abi_version

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
