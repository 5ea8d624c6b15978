"""Find out which sandbox this machine offers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from parley.workspace.sandbox.base import SandboxOffer

PROBE = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev")
PROBE_SECONDS = 5.0
NO_SECCOMP = "the system call filter exists only for Linux on x86_64 and aarch64"
MACHINES = ("x86_64", "aarch64")
LANDLOCK_WITH_SCOPES = 6
"""The first version that keeps commands from abstract sockets and from signals to processes outside."""


def detect(bwrap: str | None = None, *, weaker_nested: bool = False) -> SandboxOffer:
    """Find the strongest sandbox that starts. `bwrap`: the program to use instead of the one on PATH."""
    if not sys.platform.startswith("linux"):
        return SandboxOffer(kind="none", reason=f"there is no sandbox for this system ({sys.platform})")
    if os.uname().machine not in MACHINES:
        return SandboxOffer(kind="none", reason=NO_SECCOMP)
    found, problem = find_bubblewrap(bwrap, weaker_nested=weaker_nested)
    if not problem:
        return SandboxOffer(kind="bubblewrap", reason=f"bubblewrap starts ({found})", bwrap=found)
    abi = landlock_abi()
    if abi >= LANDLOCK_WITH_SCOPES:
        return SandboxOffer(kind="landlock", reason=f"{problem}; Landlock {abi} is available", landlock_abi=abi)
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


def landlock_abi() -> int:
    """The version of Landlock that this kernel offers; 0 for none."""
    from parley.workspace.landlock import abi_version

    return abi_version()
