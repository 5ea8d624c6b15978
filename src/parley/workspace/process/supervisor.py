"""The supervisor process: runs all commands and makes sure that none of them outlives the engine.

    engine ── control socket ──> supervisor ── one fork per command ──> child supervisor ──> bash ──> ...
       └─────────────────── one socket (line) per command ────────────────┘

The supervisor is started once and only forks child supervisors. A child supervisor runs one command. It is a
subreaper: all descendants of the command stay below it, even if they fork repeatedly, change their session, close
their descriptors or clear their environment. So it can find and kill all of them. It does so when its line is closed
or half-closed: the engine stops a command this way, and the kernel closes the line when the engine ends for any
reason. SIGTERM is followed by SIGKILL after two seconds, or after half a second if the engine is gone or exits soon
(then the supervisor closes the liveness pipe). A child supervisor ends when no process of its command is left.

A command may attack its supervisors. If it kills its child supervisor, its processes are reparented to the supervisor,
which kills them at once. If it kills the supervisor, the liveness pipe closes and the child supervisors end their
commands. If it stops one of them, the engine times out and closes the control socket; then the supervisor wakes the
child supervisors and kills those that do not end.

Limits. Without subreapers (macOS), a child supervisor only knows the process group of its command; a process that left
it with setsid survives. Processes of another user (sudo) cannot be killed. A command that kills all processes at once
(`kill -9 -1`) also kills the engine, and some of its processes may survive. This protects against accidents; the
sandbox protects against malice.

    engine -> supervisor         one byte with descriptors: the far end of the line, the command's stdout and, for an
                                 interactive command, its stdin and stderr; `END` and `HURRY` have no descriptors
    engine -> child supervisor   a length; cwd, number of arguments, arguments, variables, each terminated by NUL
    child supervisor -> engine   `started` or `error <text>`, later `exit <code> <last words>`, and `gone` when no
                                 process of the command is left; each terminated by NUL

Runs in a bare interpreter (`BOOT` in processes.py) and uses only the standard library.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import NoReturn

from parley.workspace.process.child import (
    GONE,
    ChildStreams,
    ChildSupervisor,
    Confine,
    child_exit_fd,
    ended_children,
    write_record,
)
from parley.workspace.process.tree import (
    GRACE_SECONDS,
    HOPELESS_SECONDS,
    HURRIED_GRACE_SECONDS,
    Group,
    ProcessTree,
    adopt_orphans,
    children,
    rename,
    send,
)

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Only the end of the engine ends the supervisor."""
END, HURRY = b"e", b"h"
"""Sent by the engine when it needs no more commands, and when it exits soon."""


def main(control: int, *, may_adopt: bool, confine: Confine | None = None) -> None:
    """Serve until the engine closes the control socket. Each command enters `confine` before it starts."""
    os.chdir("/")
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    adopts = may_adopt and adopt_orphans()
    rename(b"parley-guard")  # so that `pkill python` in a command does not kill us
    ProcessSupervisor(socket.socket(fileno=control), adopts, confine).run()


class ProcessSupervisor:
    """Forks a child supervisor for each command."""

    def __init__(self, control: socket.socket, adopts: bool, confine: Confine | None = None) -> None:
        self.control = control
        self.adopts = adopts
        self.confine = confine
        self.child_exits = child_exit_fd()
        self.liveness, self.liveness_writer = os.pipe()
        """Child supervisors watch the reading end. Only we hold the writing end, so it closes when we exit."""
        self.hurried_at: float | None = None
        self.child_supervisors: set[int] = set()

    def run(self) -> None:
        orphans = False
        while True:
            ready, _, _ = select.select([self.control.fileno(), self.child_exits], [], [], 0.01 if orphans else None)
            if self.child_exits in ready:
                os.read(self.child_exits, 4096)
            orphans = self.reap()
            if self.control.fileno() in ready and not self.take_command():
                break
        self.end()

    def take_command(self) -> bool:
        """Start a child supervisor. Returns False when no more commands will come."""
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
        if len(descriptors) not in (2, 4):  # descriptors were lost at our limit; the engine sees its line closed
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        line, streams = socket.socket(fileno=descriptors[0]), ChildStreams(*descriptors[1:])
        try:
            pid = os.fork()
        except OSError as exc:
            write_record(line, f"error cannot create a process: {exc.strerror}")
            write_record(line, GONE)
        else:
            if pid == 0:
                self.become_child_supervisor(line, streams)
            self.child_supervisors.add(pid)
        line.close()
        streams.close()
        return True

    def become_child_supervisor(self, line: socket.socket, streams: ChildStreams) -> NoReturn:
        try:
            self.control.close()
            if self.hurried_at is None:
                os.close(self.liveness_writer)
            os.close(self.child_exits)
            rename(b"parley-keeper")
            tree = ProcessTree() if self.adopts and adopt_orphans() else Group()
            ChildSupervisor(line, streams, self.liveness, tree, self.confine).run()
        except Exception:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(0)

    def hurry(self) -> None:
        """Make all child supervisors end their commands with the short grace period and start no others."""
        if self.hurried_at is None:
            self.hurried_at = time.monotonic()
            os.close(self.liveness_writer)

    def reap(self) -> bool:
        """Reap ended child supervisors and kill the orphans of killed ones. Returns True if there may be more."""
        ended, _ = ended_children()
        self.child_supervisors -= ended.keys()
        orphans = [pid for pid in children()(os.getpid()) if pid not in self.child_supervisors] if self.adopts else []
        killed = [pid for pid in orphans if send(pid, signal.SIGKILL)]
        return bool(killed)

    def end(self) -> None:
        """Wait until all child supervisors have ended, and kill those that do not."""
        for pid in self.child_supervisors:
            send(pid, signal.SIGCONT)
        started = time.monotonic()
        while self.reap() or self.child_supervisors:
            now = time.monotonic()
            deadline = started + GRACE_SECONDS + 1
            if self.hurried_at is not None:
                deadline = min(deadline, self.hurried_at + HURRIED_GRACE_SECONDS + 0.3)
            if now > deadline:
                for pid in self.child_supervisors:
                    send(pid, signal.SIGKILL)
            if now > started + HOPELESS_SECONDS:
                return
            if self.hurried_at is not None:
                time.sleep(0.01)
            elif select.select([self.control], [], [], 0.01)[0]:
                self.take_command()
