"""A keeper: runs one command and ends when nothing of it is left. The picture is in supervisor.py."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import time
from typing import NoReturn

from parley.workspace.process.tree import (
    GRACE_SECONDS,
    HOPELESS_SECONDS,
    HURRIED_GRACE_SECONDS,
    SET_PDEATHSIG,
    Group,
    Tree,
    prctl,
)

LAST_WORDS = 199
"""The descriptor on which a command tells where it ended up. Scripts like to use the low ones."""
LAST_WORDS_BYTES = 1 << 14
LENGTH = struct.Struct("!Q")


class Streams:
    """What a command has instead of a terminal."""

    def __init__(self, output: int, input: int = -1, errors: int = -1) -> None:
        self.output = output
        self.input = input
        """-1: it has nothing to read."""
        self.errors = errors
        """-1: they go where the output goes."""

    def close(self) -> None:
        for descriptor in (self.output, self.input, self.errors):
            if descriptor >= 0:
                os.close(descriptor)

    def put_in_place(self) -> None:
        """Become the standard streams of this process."""
        os.dup2(self.input if self.input >= 0 else os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(self.output, 1)
        os.dup2(self.errors if self.errors >= 0 else self.output, 2)


class Keeper:
    """Runs one command and holds on to everything that comes of it."""

    def __init__(self, line: socket.socket, streams: Streams, tie: int, family: Tree | Group) -> None:
        self.line = line
        self.streams = streams
        self.tie = tie
        self.family = family
        self.alarm = child_alarm()
        self.main = 0
        self.words = -1

    def run(self) -> None:
        request = self.request()
        # An engine that died behind its request must not see the command begin: another may have resumed its work.
        if request is None or self.is_deserted(0) or not self.start(request):
            return
        while True:
            deserted = self.is_deserted(self.family.watch_seconds)
            if not self.is_any_left():
                return
            if deserted:
                self.end()
                return

    def is_deserted(self, seconds: float | None) -> bool:
        """Wait so long for the engine's end, or the guard's; the end of a child ends the wait as well."""
        line = self.line.fileno()
        ready, _, _ = select.select([line, self.alarm, self.tie], [], [], seconds)
        if self.alarm in ready:
            os.read(self.alarm, 4096)
        # The engine says nothing behind the request, so whatever can be read is an end.
        return line in ready or self.tie in ready

    def is_hurried(self) -> bool:
        """Whether the guard has closed the tie: the engine is gone or has to be gone soon, or the guard is gone."""
        return bool(select.select([self.tie], [], [], 0)[0])

    def request(self) -> list[bytes] | None:
        """The parts of what the engine asks for; None if it is gone before all of it came."""
        data = bytearray()
        wanted = LENGTH.size
        while len(data) < wanted:
            more = self.line.recv(min(wanted - len(data), 1 << 20))
            if not more:
                return None
            data += more
            if len(data) == wanted == LENGTH.size:
                wanted += LENGTH.unpack(data)[0]
        return bytes(data[LENGTH.size :]).split(b"\0")[:-1]

    def start(self, request: list[bytes]) -> bool:
        """Start the command; False if it cannot be, which the engine is told."""
        self.words, last_words = os.pipe()
        trouble, troubled = os.pipe()
        ourselves = os.getpid()
        try:
            self.main = os.fork()
        except OSError as flaw:
            tell(self.line, f"error no process could be started: {flaw.strerror}")
            return False
        if self.main == 0:
            become_command(request, ourselves, self.streams, last_words, troubled)
        self.streams.close()
        for descriptor in (last_words, troubled):
            os.close(descriptor)
        # A successful exec closes the pipe without a word.
        if flaw_text := os.read(trouble, 4096).decode(errors="replace"):
            os.waitpid(self.main, 0)
            tell(self.line, f"error {flaw_text}")
            return False
        os.close(trouble)
        self.family.begin(self.main)
        tell(self.line, "started")
        return True

    def is_any_left(self) -> bool:
        """Take notice of those that ended; the end of the command itself is told."""
        ended, others = ended_children()
        if self.main in ended:
            tell(self.line, f"exit {os.waitstatus_to_exitcode(ended[self.main])} {last_of(self.words)}")
            self.main = 0
        return others or self.family.is_left()

    def end(self) -> None:
        """Leave nothing: ask politely, then kill, again and again, for a fork may slip through."""
        begun = time.monotonic()
        pause_seconds = 0.0
        while self.is_any_left():
            elapsed = time.monotonic() - begun
            if elapsed < (HURRIED_GRACE_SECONDS if self.is_hurried() else GRACE_SECONDS):
                self.family.ask_to_end()
                time.sleep(0.01)
            elif elapsed < HOPELESS_SECONDS:
                self.family.kill()
                time.sleep(pause_seconds)
                pause_seconds = min(0.05, pause_seconds + 0.0001)
            else:
                return


def become_command(request: list[bytes], keeper: int, streams: Streams, last_words: int, troubled: int) -> NoReturn:
    """In the child: turn into the command."""
    try:
        cwd, count, *rest = request
        words, variables = rest[: int(count)], rest[int(count) :]
        os.setsid()
        prctl(SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(126)  # it died before it could have taken us along
        default_signals()
        streams.put_in_place()
        with contextlib.suppress(OSError):  # beyond the limit of descriptors: then it has no last words
            os.dup2(last_words, LAST_WORDS)
        os.chdir(cwd)
        os.execve(words[0], words, dict(variable.split(b"=", 1) for variable in variables))
    except BaseException as flaw:  # we are a copy of the keeper and must not go on as one
        os.write(troubled, str(flaw).encode()[:1000])
    finally:
        os._exit(126)


def default_signals() -> None:
    """Python and whoever started the engine ignore some signals; a command expects the defaults."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def child_alarm() -> int:
    """A descriptor that can be read when a child has ended."""
    alarm, rung = os.pipe()
    os.set_blocking(rung, False)
    signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return alarm


def ended_children() -> tuple[dict[int, int], bool]:
    """The children that have ended since the last look, with their status, and whether others run on."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = status


def last_of(words: int) -> str:
    """What was written to a pipe, whoever still holds its other end."""
    os.set_blocking(words, False)
    try:
        said = os.read(words, LAST_WORDS_BYTES)
    except BlockingIOError:
        return ""
    return os.fsdecode(said.replace(b"\0", b""))


def tell(line: socket.socket, record: str) -> None:
    with contextlib.suppress(OSError):  # if the engine is gone, the next look at the line says so
        line.sendall(os.fsencode(record) + b"\0")
