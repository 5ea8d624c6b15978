"""One command, seen from the engine: its line to the keeper, its output, its end. The picture is in supervisor.py."""

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
"""As much as a pipe can hold: what a command left behind in it when it ended."""
LEFTOVER_PAUSE_SECONDS = 0.05
"""Between two looks at the output of leftover children: they must not keep us busy."""
MOST_FED_BYTES = 64 << 20
LENGTH = struct.Struct("!Q")
LOST = "the command was killed together with the process that guards it"


class End(Struct, frozen=True):
    """How a command ended."""

    exit_code: int
    last_words: str = ""
    flaw: str = ""
    """Why nothing better is known."""


class Command:
    """A command that was handed over."""

    def __init__(
        self,
        line: socket.socket,
        output: tuple[int, Callable[[bytes], None]],
        forget: Callable[[Command], object],
        *,
        feed: int | None = None,
        errors: tuple[int, Callable[[bytes], None]] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[End] = loop.create_future()
        self.feed = None if feed is None else Feed(feed)
        """Where to put what it shall read; None if it has no input."""
        self._started: asyncio.Future[str] = loop.create_future()
        """What was wrong with the start; empty if nothing."""
        self._line = line
        self.output_ended: asyncio.Future[None] = loop.create_future()
        """Done when nothing can come any more, which may be before it is over: it has closed its output."""
        self._pipes = [Pipe(*output, self._end_output), *([] if errors is None else [Pipe(*errors)])]
        self._heard = bytearray()
        self._forget = forget
        line.setblocking(False)
        loop.add_reader(line, self._hear)

    async def begin(self, request: bytes) -> str:
        """Say what to run; what is wrong with it, or nothing."""
        with contextlib.suppress(OSError):  # the other end is closed, and has said why
            await asyncio.get_running_loop().sock_sendall(self._line, request)
        return await self._started

    def stop(self) -> None:
        """End it and all that came of it. Its end is still to come."""
        if self._line.fileno() >= 0:
            self._line.shutdown(socket.SHUT_WR)

    def drop(self) -> None:
        """End it and forget it."""
        if self._line.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._line)
            self._line.close()
        for pipe in self._pipes:
            pipe.close()
        if self.feed is not None:
            self.feed.close()
        self._settle(End(-signal.SIGKILL, flaw=LOST))
        self._forget(self)

    def _hear(self) -> None:
        try:
            data = self._line.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # The keeper is gone, and with it everything that could still write.
            self._let_go()
            self.drop()
            return
        *records, rest = (self._heard + data).split(b"\0")
        self._heard = bytearray(rest)
        for record in records:
            self._take(os.fsdecode(bytes(record)))

    def _take(self, record: str) -> None:
        word, _, rest = record.partition(" ")
        if word == "exit":
            code, _, last_words = rest.partition(" ")
            self._let_go()
            self._settle(End(int(code), last_words))
        elif not self._started.done():
            self._started.set_result(rest)

    def _end_output(self) -> None:
        if not self.output_ended.done():
            self.output_ended.set_result(None)

    def _let_go(self) -> None:
        for pipe in self._pipes:
            pipe.let_go()

    def _settle(self, end: End) -> None:
        if not self._started.done():
            self._started.set_result(end.flaw)
        if not self.over.done():
            self.over.set_result(end)


class Pipe:
    """The reading end of a command's output. It is read to its end, also after the command is over."""

    def __init__(
        self, descriptor: int, take: Callable[[bytes], None], ended: Callable[[], None] = lambda: None
    ) -> None:
        self._descriptor = descriptor
        self._take: Callable[[bytes], None] | None = take
        self._ended = ended
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def let_go(self) -> None:
        """The command is over: take what is there, and drop what children write from now on."""
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
        """How much there was."""
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
            self._rest()
        return len(data)

    def _rest(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._descriptor)
        loop.call_later(LEFTOVER_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)


class Feed:
    """The writing end of a command's input. Never waits: what the pipe does not take is kept, up to a limit."""

    def __init__(self, descriptor: int, most_bytes: int = MOST_FED_BYTES) -> None:
        self._descriptor = descriptor
        self._most_bytes = most_bytes
        self._waiting = bytearray()
        self._ends = False
        os.set_blocking(descriptor, False)

    def put(self, data: bytes) -> None:
        """Raises OSError if the command does not read any more, or not fast enough."""
        if self._descriptor < 0:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if len(self._waiting) + len(data) > self._most_bytes:
            raise OSError(errno.ENOBUFS, f"more than {self._most_bytes >> 20} MB are not read")
        was_empty = not self._waiting
        self._waiting += data
        if was_empty:
            self._write()
            if self._waiting:
                asyncio.get_running_loop().add_writer(self._descriptor, self._go_on)

    def finish(self) -> None:
        """No more: behind what waits the command reads the end."""
        self._ends = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """No more, and what waits is dropped."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> None:
        with contextlib.suppress(BlockingIOError):
            del self._waiting[: os.write(self._descriptor, self._waiting)]

    def _go_on(self) -> None:
        try:
            self._write()
        except OSError:  # it reads no more, and its end will be told
            self.close()
            return
        if not self._waiting and self._ends:
            self.close()
        elif not self._waiting:
            asyncio.get_running_loop().remove_writer(self._descriptor)


def spelled(argv: list[str], cwd: str, environment: Mapping[str, str]) -> bytes:
    """A request as the keeper reads it. Raises ToolError if it cannot be spelled."""
    try:
        words = [word.encode("utf-8", "surrogateescape") for word in argv]
    except UnicodeEncodeError:
        raise ToolError("the command holds half a character (a lone surrogate)") from None
    variables = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    parts = [os.fsencode(cwd), b"%d" % len(words), *words, *variables]
    if any(b"\0" in part for part in parts):
        raise ToolError("the command holds a NUL character, which no command line can")
    payload = b"".join(part + b"\0" for part in parts)
    return LENGTH.pack(len(payload)) + payload
