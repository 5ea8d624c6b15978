"""What came of a command, and how to end it.

`Tree` where the kernel lets a process adopt orphans (Linux), `Group` elsewhere; supervisor.py tells
how far each goes. Standard library only: this runs in the guard and its keepers.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator

SET_PDEATHSIG, SET_DUMPABLE, SET_NAME, SET_CHILD_SUBREAPER = 1, 4, 15, 36
GRACE_SECONDS = 2.0
"""From SIGTERM to SIGKILL."""
HURRIED_GRACE_SECONDS = 0.5
"""The same when the engine is gone, or has to be gone soon."""
HOPELESS_SECONDS = 10.0
"""How long we try to kill what does not die."""


class Tree:
    """All descendants of this process, which orphans cannot leave."""

    watch_seconds: float | None = None

    def __init__(self) -> None:
        self._asked: set[tuple[int, str]] = set()

    def begin(self, main: int) -> None:
        """Nothing to remember: the kernel does."""

    def ask_to_end(self) -> None:
        """Ask each once. To be called again: some start others meanwhile.

        A process that has become another program since is asked anew: a shell notes the signal for later, and
        forgets the note when it turns into the command.
        """
        for pid in descendants_of(os.getpid()):
            who = pid, program_of(pid)
            if who not in self._asked:
                self._asked.add(who)
                send(pid, signal.SIGTERM)
                send(pid, signal.SIGCONT)  # a stopped process takes a signal only when it goes on

    def kill(self) -> None:
        for pid in descendants_of(os.getpid()):
            send(pid, signal.SIGKILL)

    def is_left(self) -> bool:
        """Children are all there is to know."""
        return False


class Group:
    """The process group of the command: the best there is where orphans cannot be adopted."""

    watch_seconds: float | None = 0.5
    """Nobody tells when a group is empty, so it has to be looked at."""

    def begin(self, main: int) -> None:
        self.leader = main
        self._is_asked = False

    def ask_to_end(self) -> None:
        """Once: who has heard it may be busy with its end."""
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
    """Whether the signal could be sent; the process may have ended by itself, or be another user's."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def program_of(pid: int) -> str:
    """What a process runs; nothing where it is gone, or another user's."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def kill_beside(kept: set[int]) -> None:
    """Kill what runs below this process, except the children that are kept and what is below those."""
    for child in children()(os.getpid()) if os.path.exists("/proc/self/stat") else []:
        if child not in kept:
            for pid in (*descendants_of(child), child):
                send(pid, signal.SIGKILL)


def descendants_of(root: int) -> Iterator[int]:
    """Parents before their children. The children of each are looked up before it is given out, and may be killed."""
    children_of = children()
    waiting = deque(children_of(root))
    while waiting:
        pid = waiting.popleft()
        waiting += children_of(pid)
        yield pid


def children() -> Callable[[int], list[int]]:
    """How to find the children of a process: at once where the kernel lists them, else by looking at all processes."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return listed_children
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # no process, or one that is gone
            with open(f"/proc/{int(name)}/stat", "rb") as file:
                # The name in parentheses may hold anything, so look behind the last one.
                parent = int(file.read().rpartition(b")")[2].split()[1])
            table.setdefault(parent, []).append(int(name))
    return lambda pid: table.get(pid, [])


def listed_children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it may be gone
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def adopt_orphans() -> bool:
    """Become a subreaper; False where that cannot be, or where processes cannot be looked at."""
    return os.path.exists("/proc/self/stat") and prctl(SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Let no other process of the user trace this one or read its memory; root still can. No core is dumped either."""
    prctl(SET_DUMPABLE, 0)


def rename(name: bytes) -> None:
    prctl(SET_NAME, name)


def prctl(option: int, value: int | bytes) -> bool:
    """False where there is no such thing."""
    try:
        import ctypes

        call = ctypes.CDLL(None).prctl
    except (ImportError, AttributeError):
        return False
    given = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    return bool(call(option, given, *[ctypes.c_ulong(0)] * 3) == 0)
