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

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from parley.workspace.process.tree import (
    GRACE_SECONDS,
    HOPELESS_SECONDS,
    HURRIED_GRACE_SECONDS,
    SET_PDEATHSIG,
    Group,
    ProcessTree,
    adopt_orphans,
    children,
    prctl,
    rename,
    send,
)

if TYPE_CHECKING:
    from parley.workspace.landlock import LandlockDomain

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Only the end of the engine ends the supervisor."""
END, HURRY = b"e", b"h"
"""Sent by the engine when it needs no more commands, and when it exits soon."""
LAST_WORDS = 199
"""The descriptor to which a command's wrapper writes its final working directory. Scripts often use low numbers."""
LAST_WORDS_BYTES = 1 << 14
LENGTH = struct.Struct("!Q")
GONE = "gone"
"""The last record of a child supervisor. Without it, processes of the command may be left."""


def main(control: int, *, may_adopt: bool, confine: LandlockDomain | None = None) -> None:
    """Serve until the engine closes the control socket. Each command enters `confine` before it starts."""
    os.chdir("/")
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    adopts = may_adopt and adopt_orphans()
    rename(b"parley-guard")  # so that `pkill python` in a command does not kill us
    ProcessSupervisor(socket.socket(fileno=control), adopts, confine).run()


class ProcessSupervisor:
    """Forks a child supervisor for each command."""

    def __init__(self, control: socket.socket, adopts: bool, confine: LandlockDomain | None = None) -> None:
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


class ChildStreams:
    """The standard streams of a command, as descriptors."""

    def __init__(self, output: int, input: int = -1, errors: int = -1) -> None:
        self.output = output
        self.input = input
        """-1 for /dev/null."""
        self.errors = errors
        """-1 for the same as `output`."""

    def close(self) -> None:
        for descriptor in (self.output, self.input, self.errors):
            if descriptor >= 0:
                os.close(descriptor)

    def install(self) -> None:
        """Make them the standard streams of this process."""
        os.dup2(self.input if self.input >= 0 else os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(self.output, 1)
        os.dup2(self.errors if self.errors >= 0 else self.output, 2)


class ChildSupervisor:
    """Runs one command and keeps track of all its descendants."""

    def __init__(
        self,
        line: socket.socket,
        streams: ChildStreams,
        liveness: int,
        tree: ProcessTree | Group,
        confine: LandlockDomain | None = None,
    ) -> None:
        self.line = line
        self.confine = confine
        self.streams = streams
        self.liveness = liveness
        self.tree = tree
        self.child_exits = child_exit_fd()
        self.main = 0
        self.last_words_pipe = -1

    def run(self) -> None:
        request = self.request()
        # If the engine died after its request, do not start: another engine may have resumed the session.
        if request is None or self.wait_for_abandonment(0) or not self.start(request) or self.watch():
            write_record(self.line, GONE)

    def watch(self) -> bool:
        """Wait for the end of the command, or end it. Returns whether no process of it is left."""
        while True:
            is_abandoned = self.wait_for_abandonment(self.tree.watch_seconds)
            if not self.is_any_left():
                return True
            if is_abandoned:
                return self.end()

    def wait_for_abandonment(self, seconds: float | None) -> bool:
        """Wait until the engine or the main supervisor is gone, a child ends, or the time is up."""
        line = self.line.fileno()
        ready, _, _ = select.select([line, self.child_exits, self.liveness], [], [], seconds)
        if self.child_exits in ready:
            os.read(self.child_exits, 4096)
        # The engine sends nothing after the request, so readable means closed.
        return line in ready or self.liveness in ready

    def is_released(self) -> bool:
        """Whether the main supervisor has closed the liveness pipe or is gone: the engine is gone or exits soon."""
        return bool(select.select([self.liveness], [], [], 0)[0])

    def request(self) -> list[bytes] | None:
        """Read the engine's request; None if the engine is gone before it is complete."""
        data = bytearray()
        expected = LENGTH.size
        while len(data) < expected:
            more = self.line.recv(min(expected - len(data), 1 << 20))
            if not more:
                return None
            data += more
            if len(data) == expected == LENGTH.size:
                expected += LENGTH.unpack(data)[0]
        return bytes(data[LENGTH.size :]).split(b"\0")[:-1]

    def start(self, request: list[bytes]) -> bool:
        """Start the command. On failure, report the error to the engine and return False."""
        self.last_words_pipe, last_words = os.pipe()
        error_reader, error_writer = os.pipe()
        supervisor = os.getpid()
        try:
            if self.confine is not None:
                self.confine.prepare()
            self.main = os.fork()
        except OSError as exc:
            write_record(self.line, f"error cannot create a process: {exc.strerror}")
            return False
        if self.main == 0:
            become_command(request, supervisor, self.streams, (last_words, error_writer), self.confine)
        self.streams.close()
        for descriptor in (last_words, error_writer):
            os.close(descriptor)
        # A successful exec closes the pipe without writing.
        if error := os.read(error_reader, 4096).decode(errors="replace"):
            os.waitpid(self.main, 0)
            write_record(self.line, f"error {error}")
            return False
        os.close(error_reader)
        if self.confine is not None:
            self.confine.watch()
        self.tree.begin(self.main)
        write_record(self.line, "started")
        return True

    def is_any_left(self) -> bool:
        """Reap ended children and report the end of the command. Returns whether any process is left."""
        ended, others = ended_children()
        is_left = others or self.tree.is_left()
        if self.main in ended:
            code, last_words = os.waitstatus_to_exitcode(ended[self.main]), read_available(self.last_words_pipe)
            # In one piece: the engine must not take a command that is gone for one that runs.
            write_record(self.line, f"exit {code} {last_words}" + ("" if is_left else f"\0{GONE}"))
            self.main = 0
        return is_left

    def end(self) -> bool:
        """End all processes: SIGTERM first, then SIGKILL repeatedly, because a fork may slip through.

        Returns whether they are gone.
        """
        started = time.monotonic()
        pause_seconds = 0.0
        while self.is_any_left():
            elapsed = time.monotonic() - started
            if elapsed < (HURRIED_GRACE_SECONDS if self.is_released() else GRACE_SECONDS):
                self.tree.ask_to_end()
                time.sleep(0.01)
            elif elapsed < HOPELESS_SECONDS:
                self.tree.kill()
                time.sleep(pause_seconds)
                pause_seconds = min(0.05, pause_seconds + 0.0001)
            else:
                return False
        return True


def become_command(
    request: list[bytes],
    supervisor: int,
    streams: ChildStreams,
    pipes: tuple[int, int],
    confine: LandlockDomain | None,
) -> NoReturn:
    """In the child: execute the command. `pipes`: for its last words, and for an error."""
    last_words, error_writer = pipes
    try:
        cwd, count, *rest = request
        argv, variables = rest[: int(count)], rest[int(count) :]
        os.setsid()
        prctl(SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(126)  # the supervisor died before PDEATHSIG was set
        default_signals()
        streams.install()
        with contextlib.suppress(OSError):  # above the descriptor limit: the final directory stays unknown
            os.dup2(last_words, LAST_WORDS)
        if confine is not None:
            confine.enter()
        os.chdir(cwd)
        os.execve(argv[0], argv, dict(variable.split(b"=", 1) for variable in variables))
    except BaseException as exc:  # we are a copy of the supervisor and must exit
        os.write(error_writer, str(exc).encode()[:1000])
    finally:
        os._exit(126)


def default_signals() -> None:
    """Reset ignored and handled signals to the defaults, as a command expects."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def child_exit_fd() -> int:
    """A descriptor that becomes readable when a child ends."""
    child_exits, rung = os.pipe()
    os.set_blocking(rung, False)
    signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return child_exits


def ended_children() -> tuple[dict[int, int], bool]:
    """Reap ended children. Returns their statuses, and whether others are still running."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = status


def read_available(pipe: int) -> str:
    """What is in a pipe, even if its writing end is still open."""
    os.set_blocking(pipe, False)
    try:
        data = os.read(pipe, LAST_WORDS_BYTES)
    except BlockingIOError:
        return ""
    return os.fsdecode(data.replace(b"\0", b""))


def write_record(line: socket.socket, record: str) -> None:
    with contextlib.suppress(OSError):  # the engine is gone; the next `select` reports it
        line.sendall(os.fsencode(record) + b"\0")
