"""Commands on the workspace server: their output, buffered until the engine has taken it.

See also: the engine's side (processes.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from parley.errors import ToolError
from parley.workspace.process.processes import FILE_CAP_BYTES, Processes, RunningCommand
from parley.workspace.remote import calls, wire
from parley.workspace.remote.wire import Channel

WINDOW_BYTES = 1 << 20
"""How much output is buffered before the command has to wait."""
SEND_BYTES = 128 * 1024
LAST_BYTES = 4096
"""Of the output of a command, for an engine that takes the session over."""
MAX_FEED_BYTES = 1 << 20


class OutputStream:
    """A stream of a command, from what the engine has taken to what was read."""

    def __init__(self, number: int, wake: Callable[[], None]) -> None:
        self.number = number
        self.taken = 0
        self.sent = 0
        self.total = 0
        self._wake = wake
        self._buffer = bytearray()

    @property
    def is_full(self) -> bool:
        return len(self._buffer) > WINDOW_BYTES

    def add(self, data: bytes) -> None:
        self._buffer += data
        self.total += len(data)
        self._wake()

    def set_taken(self, offset: int) -> None:
        """The engine has taken so much. Raises BrokenFrame if that is impossible."""
        if offset > self.total:
            raise wire.BrokenFrame("more output was taken than there is")
        if offset > self.taken:
            del self._buffer[: offset - self.taken]
            self.taken = offset
        self.sent = max(self.sent, self.taken)

    def next_part(self) -> tuple[int, bytes]:
        at = self.sent - self.taken
        part = bytes(self._buffer[at : at + SEND_BYTES])
        offset, self.sent = self.sent, self.sent + len(part)
        return offset, part


class ServedCommand:
    """A command that runs for an engine."""

    def __init__(self, order: calls.StartCommand, record: RecordFile | None) -> None:
        self.number = order.command
        self.tool_use_id = order.tool_use_id
        self.order = order
        self.streams = (OutputStream(1, self._on_output), OutputStream(2, self._on_output))
        self.running: RunningCommand | None = None
        self.total_bytes = 0
        self.last_output = b""
        self.send_output: Callable[[], None] = lambda: None
        self._record = record
        self._is_paused = False

    async def start(self, processes: Processes) -> None:
        """Raises ToolError."""
        order = self.order
        self.running = await processes.start(
            [os.fsdecode(word) for word in order.argv],
            cwd=os.fsdecode(order.cwd),
            environment={name: os.fsdecode(value) for name, value in order.environment.items()},
            take=self._take,
            take_errors=self.streams[1].add if order.is_interactive else None,
        )

    def _take(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self.last_output = (self.last_output + data)[-LAST_BYTES:]
        if self._record is not None:
            self._record.append(data)
        else:
            self.streams[0].add(data)

    def _on_output(self) -> None:
        self.set_pace()
        self.send_output()

    def set_pace(self) -> None:
        """Let the command wait while the engine does not take its output."""
        should_pause = any(stream.is_full for stream in self.streams)
        if self.running is not None and should_pause != self._is_paused:
            self._is_paused = should_pause
            self.running.pause_output(should_pause)

    async def wait(self) -> calls.CommandEnded:
        assert self.running is not None
        end = await asyncio.shield(self.running.ended)
        return calls.CommandEnded(
            exit_code=end.exit_code,
            last_words=os.fsencode(end.last_words),
            error=end.error,
            total_bytes=(self.streams[0].total, self.streams[1].total),
        )

    async def feed(self, data: bytes, *, is_end: bool) -> None:
        """Put data into the stdin; waits while the command leaves much unread. Raises OSError."""
        feed = self.running.feed if self.running is not None else None
        if feed is None:
            raise ToolError("the command has no input")
        if data:
            feed.put(data)
            await feed.wait_below(MAX_FEED_BYTES)
        if is_end:
            feed.finish()

    async def send(self, channel: Channel) -> None:
        """Send the output that was not sent yet. Raises ConnectionError."""
        for stream in self.streams:
            while stream.sent < stream.total:
                offset, part = stream.next_part()
                await channel.send(wire.OUTPUT, self.number, wire.OFFSET.pack(stream.number, offset) + part)

    def earlier(self) -> calls.EarlierCommand:
        """What an engine that comes later is told."""
        code = None
        if self.running is not None and self.running.ended.done():
            end = self.running.ended.result()
            code = end.exit_code if not end.error else None
        return calls.EarlierCommand(exit_code=code, total_bytes=self.total_bytes, last_output=self.last_output)


class RecordFile:
    """An output file that is open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._start = os.fstat(descriptor).st_size
        self._end = 0
        self.problem = ""

    def append(self, data: bytes) -> None:
        self.write(self._end, data)

    def write(self, offset: int, data: bytes) -> None:
        """Write at a position after what was there at first. A full disk loses the rest, not the command."""
        self._end = max(self._end, offset + len(data))
        left, at = memoryview(data)[: max(0, FILE_CAP_BYTES - offset)], self._start + offset
        try:
            while left and not self.problem and self._descriptor >= 0:
                count = os.pwrite(self._descriptor, left, at)
                left, at = left[count:], at + count
        except OSError as exc:
            self.problem = f"the rest could not be saved: {exc.strerror}"
        if self._end > FILE_CAP_BYTES:
            self.problem = f"the output after {FILE_CAP_BYTES >> 20} MB was dropped"

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
