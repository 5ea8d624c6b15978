"""Find and end the processes of a command.

`ProcessTree` is for systems with subreapers (Linux), `Group` for others; supervisor.py lists their limits. Runs in the
supervisor processes and uses only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subprocess import Popen

SET_PDEATHSIG, SET_DUMPABLE, SET_NAME, SET_CHILD_SUBREAPER = 1, 4, 15, 36
GRACE_SECONDS = 2.0
"""The time from SIGTERM to SIGKILL."""
HURRIED_GRACE_SECONDS = 0.5
"""The same if the engine is gone or exits soon."""
HOPELESS_SECONDS = 10.0
"""How long to try to kill processes that do not end."""
DEATH_SECONDS = 1.0
"""How long to wait for the end of processes that were sent SIGKILL."""


class ProcessTree:
    """All descendants of this process, which is a subreaper."""

    watch_seconds: float | None = None

    def __init__(self) -> None:
        self._asked: set[tuple[int, str]] = set()

    def begin(self, main: int) -> None:
        """Nothing to do: the kernel tracks descendants."""

    def ask_to_end(self) -> None:
        """Send SIGTERM to each process once. Call it repeatedly, because processes may start others.

        A process that has executed another program gets the signal again: a shell defers a signal, and loses it when
        it executes the command.
        """
        for pid in descendants_of(os.getpid()):
            process = pid, program_of(pid)
            if process not in self._asked:
                self._asked.add(process)
                send(pid, signal.SIGTERM)
                send(pid, signal.SIGCONT)  # a stopped process handles a signal only after SIGCONT

    def kill(self) -> None:
        for pid in descendants_of(os.getpid()):
            send(pid, signal.SIGKILL)

    def is_left(self) -> bool:
        """Always False: the caller reaps the children itself."""
        return False


class Group:
    """The process group of the command, for systems without subreapers."""

    watch_seconds: float | None = 0.5
    """The polling interval, because there is no notification for an empty group."""

    def begin(self, main: int) -> None:
        self.leader = main
        self._is_asked = False

    def ask_to_end(self) -> None:
        """Send SIGTERM once; a second one could disturb a process that is cleaning up."""
        if not self._is_asked:
            self._is_asked = True
            self.send(signal.SIGTERM)
            self.send(signal.SIGCONT)

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def is_left(self) -> bool:
        return self.send(0)

    def send(self, number: int) -> bool:
        return send(-self.leader, number)


def send(pid: int, number: int) -> bool:
    """Send a signal. Returns False if the process has ended or belongs to another user."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def program_of(pid: int) -> str:
    """The executable of a process; "" if it has ended or belongs to another user."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def kill_beside(kept: set[int]) -> None:
    """Kill all descendants of this process, except the children in `kept` and their descendants.

    When this returns, they have ended: a killed process runs on until the kernel has handled the signal. One that the
    kernel cannot end yet (it waits for a disk, for example) is not waited for longer than `DEATH_SECONDS`.
    """
    dying: list[int] = []
    for child in children()(os.getpid()) if os.path.exists("/proc/self/stat") else []:
        if child not in kept:
            for pid in (*descendants_of(child), child):
                with contextlib.suppress(OSError):  # it has ended, or no descriptor is left
                    dying.append(os.pidfd_open(pid))
                send(pid, signal.SIGKILL)
    deadline = time.monotonic() + DEATH_SECONDS
    for descriptor in dying:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        ended.poll(max(0, deadline - time.monotonic()) * 1000)
        os.close(descriptor)


def kill_with_descendants(process: Popen[bytes], timeout_seconds: float) -> None:
    """Kill a child that does not end by itself, and wait for it.

    Its descendants come first: bubblewrap exits when none is left in its namespace, and is killed if it does not.
    """
    import subprocess

    for pid in descendants_of(process.pid):
        send(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout_seconds)
    process.kill()


def descendants_of(root: int) -> Iterator[int]:
    """Yield the descendants, parents first. The caller may kill each: its children were looked up before."""
    children_of = children()
    waiting = deque(children_of(root))
    while waiting:
        pid = waiting.popleft()
        waiting += children_of(pid)
        yield pid


def children() -> Callable[[int], list[int]]:
    """A function that finds the children of a process: listed by the kernel, or by scanning all processes."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return listed_children
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # not a process, or ended
            with open(f"/proc/{int(name)}/stat", "rb") as file:
                # The name in parentheses may contain anything, so start after the last parenthesis.
                parent = int(file.read().rpartition(b")")[2].split()[1])
            table.setdefault(parent, []).append(int(name))
    return lambda pid: table.get(pid, [])


def listed_children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # the process may have ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def adopt_orphans() -> bool:
    """Become a subreaper. Returns False if that is not possible or /proc is missing."""
    return os.path.exists("/proc/self/stat") and prctl(SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Keep other processes (except root's) from tracing this one or reading its memory. Disables core dumps."""
    prctl(SET_DUMPABLE, 0)


def rename(name: bytes) -> None:
    prctl(SET_NAME, name)


def prctl(option: int, value: int | bytes) -> bool:
    """Call prctl. Returns False if it fails or does not exist."""
    try:
        import ctypes

        call = ctypes.CDLL(None).prctl
    except (ImportError, AttributeError):
        return False
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    return bool(call(option, argument, *[ctypes.c_ulong(0)] * 3) == 0)
