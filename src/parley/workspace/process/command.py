"""The engine's side of one command: the socket to its supervisor, its output, input and end.

The overview of all processes is in `supervisor.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import struct
from collections.abc import Callable, Mapping

from parley.errors import ToolError
from parley.protocol.base import Struct

READ_BYTES = 1 << 16
PIPE_BYTES = 1 << 20
"""The capacity of a pipe: the most output that can remain in it when a command ends."""
LEFTOVER_PAUSE_SECONDS = 0.05
"""The pause between reads of leftover children's output, which is discarded."""
MAX_INPUT_BYTES = 64 << 20
LENGTH = struct.Struct("!Q")
LOST = "the command and its supervising process were killed"


class CommandEnd(Struct, frozen=True):
    """How a command ended."""

    exit_code: int
    last_words: str = ""
    error: str = ""
    """Why the exit code is not known."""


class RunningCommand:
    """A command that was passed to the supervisor."""

    def __init__(
        self,
        line: socket.socket,
        output: tuple[int, Callable[[bytes], None]],
        forget: Callable[[RunningCommand], object],
        *,
        feed: int | None = None,
        errors: tuple[int, Callable[[bytes], None]] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[CommandEnd] = loop.create_future()
        self.feed = None if feed is None else InputFeed(feed)
        """The command's stdin; None if it has none."""
        self._started: asyncio.Future[str] = loop.create_future()
        """The error of the start; "" if it succeeded."""
        self._line = line
        self.output_ended: asyncio.Future[None] = loop.create_future()
        """Done when the output is closed, which may be before the command has ended."""
        self._pipes = [OutputPipe(*output, self._end_output), *([] if errors is None else [OutputPipe(*errors)])]
        self._buffer = bytearray()
        self._forget = forget
        line.setblocking(False)
        loop.add_reader(line, self._on_readable)

    async def start(self, request: bytes) -> str:
        """Send the request. Returns the error; "" if the command runs."""
        with contextlib.suppress(OSError):  # the other end is closed and has reported the reason
            await asyncio.get_running_loop().sock_sendall(self._line, request)
        return await self._started

    def stop(self) -> None:
        """Terminate the command and its descendants. `ended` is set when they are gone."""
        if self._line.fileno() >= 0:
            self._line.shutdown(socket.SHUT_WR)

    def drop(self) -> None:
        """Terminate the command without waiting, and release its descriptors."""
        if self._line.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._line)
            self._line.close()
        for pipe in self._pipes:
            pipe.close()
        if self.feed is not None:
            self.feed.close()
        self._settle(CommandEnd(-signal.SIGKILL, error=LOST))
        self._forget(self)

    def _on_readable(self) -> None:
        try:
            data = self._line.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # The child supervisor is gone, and with it every process that could still write.
            self._drain_pipes()
            self.drop()
            return
        *records, rest = (self._buffer + data).split(b"\0")
        self._buffer = bytearray(rest)
        for record in records:
            self._take(os.fsdecode(bytes(record)))

    def _take(self, record: str) -> None:
        word, _, rest = record.partition(" ")
        if word == "exit":
            code, _, last_words = rest.partition(" ")
            self._drain_pipes()
            self._settle(CommandEnd(int(code), last_words))
        elif not self._started.done():
            self._started.set_result(rest)

    def _end_output(self) -> None:
        if not self.output_ended.done():
            self.output_ended.set_result(None)

    def _drain_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.drain()

    def _settle(self, end: CommandEnd) -> None:
        if not self._started.done():
            self._started.set_result(end.error)
        if not self.ended.done():
            self.ended.set_result(end)


class OutputPipe:
    """The reading end of a command's output. It is read to its end, even after the command has ended."""

    def __init__(
        self, descriptor: int, take: Callable[[bytes], None], ended: Callable[[], None] = lambda: None
    ) -> None:
        self._descriptor = descriptor
        self._take: Callable[[bytes], None] | None = take
        self._ended = ended
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def drain(self) -> None:
        """The command has ended: take the remaining output and discard what its children write from now on."""
        taken = 0
        while self._take is not None and taken < PIPE_BYTES and (count := self._read()):
            taken += count
        self._take = None

    def close(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> int:
        """Read once. Returns the number of bytes."""
        if self._descriptor < 0:
            return 0
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
            self._ended()
        elif self._take is not None:
            self._take(data)
        else:
            self._pause()
        return len(data)

    def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._descriptor)
        loop.call_later(LEFTOVER_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)


class InputFeed:
    """The writing end of a command's input. Never blocks: data that exceeds the pipe is buffered, up to a limit."""

    def __init__(self, descriptor: int, max_bytes: int = MAX_INPUT_BYTES) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self._waiting = bytearray()
        self._closes_when_empty = False
        os.set_blocking(descriptor, False)

    def put(self, data: bytes) -> None:
        """Write or buffer data. Raises OSError if the command no longer reads, or not fast enough."""
        if self._descriptor < 0:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if len(self._waiting) + len(data) > self._max_bytes:
            raise OSError(errno.ENOBUFS, f"the command left more than {self._max_bytes >> 20} MB of input unread")
        was_empty = not self._waiting
        self._waiting += data
        if was_empty:
            self._write()
            if self._waiting:
                asyncio.get_running_loop().add_writer(self._descriptor, self._on_writable)

    def finish(self) -> None:
        """Close the input after the buffered data."""
        self._closes_when_empty = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close the input and discard the buffered data."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> None:
        with contextlib.suppress(BlockingIOError):
            del self._waiting[: os.write(self._descriptor, self._waiting)]

    def _on_writable(self) -> None:
        try:
            self._write()
        except OSError:  # the command no longer reads; its end is reported separately
            self.close()
            return
        if not self._waiting and self._closes_when_empty:
            self.close()
        elif not self._waiting:
            asyncio.get_running_loop().remove_writer(self._descriptor)


def encode_request(argv: list[str], cwd: str, environment: Mapping[str, str]) -> bytes:
    """Encode a request for the child supervisor. Raises ToolError for invalid text."""
    try:
        words = [word.encode("utf-8", "surrogateescape") for word in argv]
    except UnicodeEncodeError:
        raise ToolError("the command contains invalid Unicode (a lone surrogate)") from None
    variables = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    parts = [os.fsencode(cwd), b"%d" % len(words), *words, *variables]
    if any(b"\0" in part for part in parts):
        raise ToolError("the command contains a NUL character, which a command line cannot")
    payload = b"".join(part + b"\0" for part in parts)
    return LENGTH.pack(len(payload)) + payload
