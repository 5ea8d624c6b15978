"""Pass bytes between a client and an engine, at once and unchanged, and hand a copy to an observer.

    relay = Relay(start_engine(["claude", "--print"]), CopyPipe(observer))
    code = relay.run()                  # as the engine: negative if a signal ended it

The observer is another process: whatever it does, the bytes pass. Half lines pass as they come. The end of a stream,
signals and the exit code are passed on. The engine is killed when this process dies.

Uses only the standard library, and one thread that waits for signals.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

CHUNK_BYTES = 64 * 1024
"""What a pipe holds. For more, malloc would map and unmap memory at each read."""
PIECE_BYTES = 4096
"""How much a writable pipe accepts without blocking (PIPE_BUF on Linux)."""
COPY_BYTES = 64 * 1024 * 1024
"""How much waits for the observer at most. What does not fit is not copied, and the observer is told."""
DRAIN_SECONDS = 0.5
"""How long output is awaited after the exit of the engine, if a process that it started keeps its streams open."""
REPORT_SECONDS = 30.0
"""How long the observer may take to write its report before this process exits without waiting for it."""
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
SI_KERNEL = 0x80
"""The `si_code` of a signal that a terminal sent to the whole process group, the engine included."""
SET_PDEATHSIG = 1

FRAME = struct.Struct("<BdI")
"""Of what kind, when (seconds of the monotonic clock), and how many bytes follow."""
CLIENT, ENGINE, STDERR = 0, 1, 2
"""Bytes of a stream. None at all: the stream has ended."""
STARTED, ENDED, LOST = 3, 4, 5
"""The engine was started; it has exited with a code; so many bytes were not copied."""
NUMBER = struct.Struct("<q")


class CopyPipe:
    """The pipe to the observer. Writing to it never blocks."""

    def __init__(self, line: socket.socket) -> None:
        line.setblocking(False)
        self._line = line
        self._waiting = bytearray()
        self._lost = 0
        self.is_open = True

    def fileno(self) -> int:
        return self._line.fileno()

    def send(self, kind: int, data: bytes = b"") -> None:
        if not self.is_open:
            return
        now = time.monotonic()
        if len(self._waiting) + len(data) > COPY_BYTES:
            self._lost += len(data)
            return
        if self._lost:
            self._waiting += FRAME.pack(LOST, now, NUMBER.size) + NUMBER.pack(self._lost)
            self._lost = 0
        self._waiting += FRAME.pack(kind, now, len(data))
        self._waiting += data
        self.push()

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting) and self.is_open

    def push(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: self._line.send(self._waiting[:CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self.is_open = False
            self._waiting.clear()

    def finish(self, code: int, seconds: float) -> bool:
        """Send the exit code and wait until the observer is done; returns whether it is in time."""
        until = time.monotonic() + seconds
        self.send(ENDED, NUMBER.pack(code))
        while self.is_waiting and wait_for(self, select.POLLOUT, until - time.monotonic()):
            self.push()
        if self.is_waiting:
            return False
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)
        return wait_for(self, select.POLLIN, until - time.monotonic())


class RelayChannel:
    """One direction: what is read from a descriptor is written to another before more is read."""

    def __init__(self, kind: int, source: int, sink: int, *, closes_sink: bool = True) -> None:
        self.kind, self.source, self.sink = kind, source, sink
        self._closes_sink = closes_sink
        self._waiting = b""
        self.is_open = True
        self._socket = open_socket(sink)
        self._is_ours = not os.get_blocking(sink)

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def read(self) -> bytes | None:
        """Read what is there and pass it on; None if nothing was there."""
        try:
            data = os.read(self.source, CHUNK_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:  # a terminal that went away
            data = b""
        if not data:
            self.close()
            return data
        self._waiting = data
        self.push()
        return data

    def push(self) -> None:
        """Write what fits. If no one reads, the channel ends as the sender's own pipe would."""
        try:
            while self._waiting:
                self._waiting = self._waiting[self._write(self._waiting) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()

    def _write(self, data: bytes) -> int:
        """Raises OSError; BlockingIOError if nothing fits now."""
        if self._is_ours:
            return os.write(self.sink, data)
        if self._socket is not None:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        # Another process may share the description of this descriptor, so that it must stay in blocking mode.
        if not wait_for(self.sink, select.POLLOUT, 0.0):
            raise BlockingIOError(errno.EAGAIN, "not writable")
        return os.write(self.sink, data[:PIECE_BYTES])

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open, self._waiting = False, b""
        release(self.source)
        if self._closes_sink:
            if self._socket is not None:
                self._socket.close()
            release(self.sink)


class Relay:
    def __init__(self, engine: subprocess.Popen[bytes], copies: CopyPipe) -> None:
        self._engine = engine
        self._copies = copies
        assert engine.stdin is not None
        assert engine.stdout is not None
        assert engine.stderr is not None
        os.set_blocking(engine.stdin.fileno(), False)
        self._channels = [
            RelayChannel(CLIENT, 0, os.dup(engine.stdin.fileno())),
            RelayChannel(ENGINE, os.dup(engine.stdout.fileno()), take_pipe(1)),
            RelayChannel(STDERR, os.dup(engine.stderr.fileno()), 2, closes_sink=False),
        ]
        for stream in (engine.stdin, engine.stdout, engine.stderr):
            stream.close()
        self._signals, self._wakes = os.pipe()

    def run(self) -> int:
        """Pass everything on until the engine has ended; returns its code."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
        threading.Thread(target=self._watch_signals, daemon=True).start()
        drained_by: float | None = None
        while True:
            if drained_by is None and self._engine.poll() is not None:
                drained_by = time.monotonic() + DRAIN_SECONDS
                self._channels[CLIENT].close()
            outputs = [channel for channel in self._channels[ENGINE:] if channel.is_open]
            if drained_by is not None and not outputs:
                break
            if not self._step(drained_by) and drained_by is not None and time.monotonic() >= drained_by:
                break
        return self._engine.returncode

    def _step(self, until: float | None) -> bool:
        """Wait for something and pass it on; returns whether there was something."""
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        if self._copies.is_waiting:
            poll.register(self._copies.fileno(), select.POLLOUT)
        for channel in self._channels:
            if not channel.is_open:
                continue
            if not channel.is_waiting:
                poll.register(channel.source, select.POLLIN)
            # Without events, errors are reported all the same: that no one reads any more.
            poll.register(channel.sink, select.POLLOUT if channel.is_waiting else 0)
        ready = dict(poll.poll(None if until is None else max(0.0, until - time.monotonic()) * 1000))
        if self._signals in ready:
            os.read(self._signals, CHUNK_BYTES)
        for channel in self._channels:
            if channel.is_open and channel.source in ready and not channel.is_waiting:
                data = channel.read()
                if data is not None:
                    self._copies.send(channel.kind, data)
                if data and not channel.is_open:  # no one reads it any more
                    self._copies.send(channel.kind)
            elif channel.is_open and (found := ready.get(channel.sink)):
                self._handle_sink(channel, found)
        if self._copies.is_open and self._copies.fileno() in ready:
            self._copies.push()
        return bool(ready.keys() - {self._signals})

    def _handle_sink(self, channel: RelayChannel, found: int) -> None:
        if found & select.POLLOUT and channel.is_waiting:
            channel.push()
        elif found & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            channel.close()
        if not channel.is_open:
            self._copies.send(channel.kind)

    def _watch_signals(self) -> None:
        """In a thread: pass signals on. The loop is woken when the engine may have ended."""
        while True:
            number, came_from_terminal = wait_for_signal({*PASSED_ON, signal.SIGCHLD})
            if number == signal.SIGCHLD:
                os.write(self._wakes, b"x")
            elif self._engine.returncode is not None:
                os._exit(to_shell_code(self._engine.returncode))  # the report is written without us
            elif not came_from_terminal:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(self._engine.pid, number)


def wait_for_signal(numbers: set[int]) -> tuple[int, bool]:
    """The next of these signals, and whether a terminal sent it to the whole process group."""
    if not hasattr(signal, "sigwaitinfo"):  # macOS
        return signal.sigwait(numbers), False
    found = signal.sigwaitinfo(numbers)
    return found.si_signo, found.si_code == SI_KERNEL and found.si_signo in (signal.SIGINT, signal.SIGQUIT)


def start_engine(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """Raises OSError if it cannot be started."""
    set_death_signal = make_death_signal()
    parent = os.getpid()

    def die_with_parent() -> None:
        if set_death_signal is not None:
            set_death_signal(SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

    # A pipe for each stream: an engine may close one of them alone.
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        preexec_fn=die_with_parent,  # noqa: PLW1509  there are no threads yet
    )


def make_death_signal() -> Callable[..., int] | None:
    """prctl of Linux, looked up before the fork; None on other systems."""
    import ctypes

    return getattr(ctypes.CDLL(None), "prctl", None)


def open_socket(descriptor: int) -> socket.socket | None:
    """A socket of a descriptor that is one. Node connects its children with sockets."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return socket.socket(fileno=os.dup(descriptor))
    return None


def take_pipe(descriptor: int) -> int:
    """A pipe in a description of our own, which does not block; the same descriptor if that is not possible.

    The descriptor itself becomes /dev/null, so that the pipe is closed when ours is.
    """
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return descriptor
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return descriptor
    release(descriptor)
    return own


def wait_for(descriptor: int | CopyPipe, events: int, seconds: float) -> bool:
    """Whether a descriptor gets ready in time."""
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def release(descriptor: int) -> None:
    """Close a descriptor. The standard ones become /dev/null, so that nothing else gets their numbers."""
    if descriptor > 2:
        os.close(descriptor)
        return
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def to_shell_code(code: int) -> int:
    """The code that a shell would show."""
    return 128 - code if code < 0 else code


def exit_like(code: int) -> None:
    """If a signal ended the engine, end this process by the same one."""
    if code >= 0:
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
        signal.signal(-code, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
    signal.pthread_kill(threading.get_ident(), -code)  # the thread that passes signals on must not get it
