"""The processes that run all commands, and let none of them outlive the engine.

    engine ── control socket ──> guard ── forks, one a command ──> keeper ──> bash ──> ...
       └───────────── a line (socket) of its own for each command ───┘

The guard is started once and does nothing but fork keepers. A keeper runs one command. It is
a subreaper: whatever the command starts, however often it forks, changes its session, closes
its descriptors or clears its environment, stays below the keeper, which can therefore find and
kill all of it. It does so when its line is closed, half or whole: that is how the engine stops
a command, and what the kernel does for an engine that is gone, whichever way it went. SIGTERM
first, SIGKILL two seconds later, or half a second later if the engine is gone or says that it
must be gone soon: then the guard closes its tie to the keepers. A keeper ends when nothing of
its command is left.

A command may attack those who keep it. If it kills its keeper, what it started falls to the
guard, which kills it at once. If it kills the guard, the keepers lose their tie to it and end
their commands. If it stops one of them, the engine loses patience and closes the control
socket; then the guard wakes its keepers, and kills those that do not end.

Limits. Where there is no subreaper (macOS) a keeper only knows the process group of its
command: it ends what stays in the group, and a process that left it with setsid survives. A
process of another user (sudo) cannot be killed by us. A command that kills guard and keeper
in one go (`kill -9 -1`) takes the engine and its own main process along, and what else it
started survives: against malice there is the sandbox, this is against accidents.

    engine -> guard    a byte with descriptors: the keeper's end of the line, the command's output, and
                       for a command that is talked to its input and its stderr; `END` and `HURRY` come alone
    engine -> keeper   a length, and cwd, number of words, words, variables, each closed by a NUL
    keeper -> engine   `started` or `error <text>`; later `exit <code> <last words>`; each closed by a NUL

Run by the bare interpreter (`BOOT` in processes.py); standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import NoReturn

from parley.workspace.process.child import Keeper, Streams, child_alarm, ended_children, tell
from parley.workspace.process.tree import (
    GRACE_SECONDS,
    HOPELESS_SECONDS,
    HURRIED_GRACE_SECONDS,
    Group,
    Tree,
    adopt_orphans,
    children,
    rename,
    send,
)

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""The end of the engine is our only signal to end."""
END, HURRY = b"e", b"h"
"""What the engine sends when it needs no more commands, and when it has to be gone soon."""


def main(control: int, *, may_adopt: bool) -> None:
    """Serve until the other end of the control socket is closed."""
    os.chdir("/")
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    adopts = may_adopt and adopt_orphans()
    rename(b"parley-guard")  # so that a command's `pkill python` leaves us alone
    Guard(socket.socket(fileno=control), adopts).run()


class Guard:
    """Forks a keeper for every command."""

    def __init__(self, control: socket.socket, adopts: bool) -> None:
        self.control = control
        self.adopts = adopts
        self.alarm = child_alarm()
        self.tie, self.held = os.pipe()
        """Keepers watch the one end; the other is ours alone, so it closes when we die, or when we close it."""
        self.hurried_at: float | None = None
        self.keepers: set[int] = set()

    def run(self) -> None:
        strays = False
        while True:
            ready, _, _ = select.select([self.control.fileno(), self.alarm], [], [], 0.01 if strays else None)
            if self.alarm in ready:
                os.read(self.alarm, 4096)
            strays = self.tidy()
            if self.control.fileno() in ready and not self.take_command():
                break
        self.end()

    def take_command(self) -> bool:
        """Start a keeper; False when no more commands will come."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.control, 1, 4)
        except OSError:
            data, descriptors = b"", []
        if data in (b"", HURRY):
            self.hurry()
        if data in (b"", END):
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if len(descriptors) not in (2, 4):  # we have too many open: the engine sees its line closed
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        line, streams = socket.socket(fileno=descriptors[0]), Streams(*descriptors[1:])
        try:
            pid = os.fork()
        except OSError as flaw:
            tell(line, f"error no process could be started: {flaw.strerror}")
        else:
            if pid == 0:
                self.become_keeper(line, streams)
            self.keepers.add(pid)
        line.close()
        streams.close()
        return True

    def become_keeper(self, line: socket.socket, streams: Streams) -> NoReturn:
        try:
            self.control.close()
            if self.hurried_at is None:
                os.close(self.held)
            os.close(self.alarm)
            rename(b"parley-keeper")
            family = Tree() if self.adopts and adopt_orphans() else Group()
            Keeper(line, streams, self.tie, family).run()
        except Exception:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(0)

    def hurry(self) -> None:
        """All keepers end their commands with the short grace, and none starts another one."""
        if self.hurried_at is None:
            self.hurried_at = time.monotonic()
            os.close(self.held)

    def tidy(self) -> bool:
        """Forget keepers that ended and kill what fell to us from one that was killed; True if there may be more."""
        ended, _ = ended_children()
        self.keepers -= ended.keys()
        strays = [pid for pid in children()(os.getpid()) if pid not in self.keepers] if self.adopts else []
        killed = [pid for pid in strays if send(pid, signal.SIGKILL)]
        return bool(killed)

    def end(self) -> None:
        """No engine needs us any more. The keepers know it as well; those that do not act on it are killed."""
        for pid in self.keepers:
            send(pid, signal.SIGCONT)
        begun = time.monotonic()
        while self.tidy() or self.keepers:
            now = time.monotonic()
            patience_ends = begun + GRACE_SECONDS + 1
            if self.hurried_at is not None:
                patience_ends = min(patience_ends, self.hurried_at + HURRIED_GRACE_SECONDS + 0.3)
            if now > patience_ends:
                for pid in self.keepers:
                    send(pid, signal.SIGKILL)
            if now > begun + HOPELESS_SECONDS:
                return
            if self.hurried_at is not None:
                time.sleep(0.01)
            elif select.select([self.control], [], [], 0.01)[0]:
                self.take_command()
