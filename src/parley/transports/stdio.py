"""The process's own stdin and stdout.

Pipes, sockets and terminals are read and written without blocking the loop. Files and devices are always ready and
cannot be awaited, so they are read directly.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections import deque
from collections.abc import AsyncGenerator, Callable
from itertools import islice

from parley._launched import end_if_killed

READ_BYTES = 64 * 1024
"""What a pipe holds. For more, malloc would map and unmap memory at each read."""
WRITE_BYTES = 256 * 1024
MAX_PIECES = 512
"""How many chunks go into one system call. The kernel's limit is 1024."""
POLL_SECONDS = 0.25
"""How often the descriptor is polled without epoll."""


class StdioTransport:
    def __init__(self, stdin: int = 0, stdout: int = 1) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._waits_for_output = can_wait(stdout)
        self._buffer: deque[bytes] = deque()
        self._written_bytes = 0
        """How much of the first buffered chunk is already written."""
        self._scheduled = False
        self._broken = False
        self.error: OSError | None = None
        """Why writing to stdout failed, unless its reader is gone."""
        self._drained = asyncio.Event()
        self._drained.set()
        self._drain_limit_seconds: float | None = None
        self._draining: asyncio.Timeout | None = None
        # Terminals, pipes and sockets may be shared with other processes, and stdin and stdout may be the same.
        self._blocking = {each: os.get_blocking(each) for each in (stdin, stdout) if can_wait(each)}
        if self._waits_for_output:
            os.set_blocking(stdout, False)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        if not can_wait(self._stdin):
            while chunk := os.read(self._stdin, READ_BYTES):
                yield chunk
                await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        os.set_blocking(self._stdin, False)
        ready = asyncio.Event()
        loop.add_reader(self._stdin, ready.set)
        try:
            while True:
                await ready.wait()
                ready.clear()
                try:
                    chunk = os.read(self._stdin, READ_BYTES)
                except BlockingIOError:
                    continue
                if not chunk:
                    end_if_killed()
                    return
                yield chunk
        finally:
            loop.remove_reader(self._stdin)

    def write(self, data: bytes) -> None:
        """Lines written in one iteration of the loop go out in one system call."""
        if self._broken:
            raise BrokenPipeError("stdout has no reader")
        if not data:
            return
        self._buffer.append(data)
        if not self._scheduled:
            self._scheduled = True
            self._drained.clear()
            asyncio.get_running_loop().call_soon(self._flush)

    async def drain(self) -> None:
        try:
            async with asyncio.timeout(self._drain_limit_seconds) as self._draining:
                await self._drained.wait()
        except TimeoutError:
            self._give_up()
        finally:
            self._draining = None

    def limit_drain(self, seconds: float) -> None:
        """Limit draining to this many seconds. Unread data is then lost."""
        self._drain_limit_seconds = seconds
        if self._draining is not None:
            self._draining.reschedule(asyncio.get_running_loop().time() + seconds)

    def close(self) -> None:
        """Restore the blocking mode of both streams."""
        for descriptor, blocking in self._blocking.items():
            os.set_blocking(descriptor, blocking)

    def _flush(self) -> None:
        try:
            while self._buffer:
                self._advance(os.writev(self._stdout, self._next_batch()))
        except BlockingIOError:
            asyncio.get_running_loop().add_writer(self._stdout, self._resume)
            return
        except OSError as exc:
            end_if_killed()
            self.error = None if isinstance(exc, BrokenPipeError | ConnectionResetError) else exc
            self._give_up()
        self._scheduled = False
        self._drained.set()

    def _next_batch(self) -> list[bytes | memoryview]:
        """The buffered data for one system call, without copying."""
        pieces: list[bytes | memoryview] = [memoryview(self._buffer[0])[self._written_bytes :]]
        size = len(pieces[0])
        for chunk in islice(self._buffer, 1, MAX_PIECES):
            if size >= WRITE_BYTES:
                break
            pieces.append(chunk)
            size += len(chunk)
        return pieces

    def _advance(self, written_bytes: int) -> None:
        """Remove written bytes from the buffer."""
        self._written_bytes += written_bytes
        while self._buffer and self._written_bytes >= len(self._buffer[0]):
            self._written_bytes -= len(self._buffer.popleft())

    def _give_up(self) -> None:
        self._broken = True
        self._buffer.clear()
        self._written_bytes = 0
        if self._waits_for_output:
            asyncio.get_running_loop().remove_writer(self._stdout)

    def _resume(self) -> None:
        asyncio.get_running_loop().remove_writer(self._stdout)
        self._flush()


def can_wait(descriptor: int) -> bool:
    """Whether the loop can wait for this descriptor. Files and /dev/null are always ready."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


class ReaderWatch:
    def __init__(self, descriptor: int, on_gone: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._errors = None
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return
        if hasattr(select, "epoll"):
            # A separate epoll set without events: only errors and hang-ups make it readable.
            self._errors = select.epoll()
            self._errors.register(descriptor, 0)
            self._loop.add_reader(self._errors.fileno(), self._report)
        else:
            self._poll()

    def close(self) -> None:
        if self._errors is not None:
            self._loop.remove_reader(self._errors.fileno())
            self._errors.close()
            self._errors = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report(self) -> None:
        end_if_killed()
        self.close()
        self._on_gone()

    def _poll(self) -> None:
        if has_reader(self._descriptor):
            self._timer = self._loop.call_later(POLL_SECONDS, self._poll)
        else:
            self._report()


def has_reader(descriptor: int) -> bool:
    """Whether the other end of a pipe or socket is open."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return not poll.poll(0)
