"""The process that the client started: this one, or the launcher of a resident engine (`resident/`).

Clients compare the pid that the engine reports with that of their child, so messages and leases name this process.
"""

from __future__ import annotations

import os
import signal

EXITING = 0x4
"""The kernel's flag of a process that is ending, in /proc/PID/stat."""

_launcher: tuple[int, int] | None = None


def set_launcher(pid: int, parent_pid: int) -> None:
    """Name the process that the client started instead of this one."""
    global _launcher
    _launcher = (pid, parent_pid)


def is_forked() -> bool:
    """Whether this process was forked by a resident engine."""
    return _launcher is not None


def launched_pid() -> int:
    return os.getpid() if _launcher is None else _launcher[0]


def launched_parent_pid() -> int:
    return os.getppid() if _launcher is None else _launcher[1]


def end_if_killed() -> None:
    """Call this when the client closed stdin or stdout. If it has killed the launcher before, this process ends, too.

    `kill` returns before its target is gone. A session that took the closed stream for a regular end in the meantime
    would do things that a killed process does not do, such as denying open permission requests.
    """
    if _launcher is not None and is_killed(_launcher[0]):
        os.killpg(os.getpgrp(), signal.SIGKILL)


def is_killed(pid: int) -> bool:
    """Whether a process has received SIGKILL or is ending."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            pending = [int(line.split()[1], 16) for line in file if line.startswith(("SigPnd:", "ShdPnd:"))]
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return True
    is_pending = any(mask >> (signal.SIGKILL - 1) & 1 for mask in pending)
    return is_pending or state in (b"Z", b"X") or bool(int(fields[5]) & EXITING)
