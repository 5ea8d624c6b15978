"""A command that a workspace server runs for an engine.

Its output is buffered until the engine has taken it; while much is buffered, the command waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.process.processes import OutputRecord, RunningCommand
from parley.workspace.remote.wire import OFFSET, OUTPUT, BrokenFrame, WorkspaceChannel

WINDOW_BYTES = 1 << 20
"""How much output is buffered before the command has to wait."""
SEND_BYTES = 128 * 1024
LAST_BYTES = 4096
"""Of the output of a command, for an engine that takes the session over."""
MAX_FEED_BYTES = 1 << 20


class CommandEnded(Struct, frozen=True, kw_only=True):
    """The end of a command, and how much output precedes it."""

    exit_code: int
    last_words: bytes
    error: str
    total_bytes: tuple[int, int]


class EarlierCommand(Struct, frozen=True, kw_only=True):
    """What is known of a command that an engine started and did not see end."""

    exit_code: int | None
    """None if it was ended because its engine was gone."""
    total_bytes: int
    last_output: bytes


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
            raise BrokenFrame("more output was taken than there is")
        if offset > self.taken:
            del self._buffer[: offset - self.taken]
            self.taken = offset
        self.sent = max(self.sent, self.taken)

    async def send(self, channel: WorkspaceChannel, command: int) -> None:
        """Send what was not sent yet. Raises ConnectionError."""
        while self.sent < self.total:
            at = self.sent - self.taken
            part = bytes(self._buffer[at : at + SEND_BYTES])
            offset, self.sent = self.sent, self.sent + len(part)
            await channel.send(OUTPUT, command, OFFSET.pack(self.number, offset) + part)


class ServedCommand:
    def __init__(
        self, number: int, tool_use_id: str, record: OutputRecord | None, send_output: Callable[[], None]
    ) -> None:
        self.number = number
        self.tool_use_id = tool_use_id
        self.streams = (OutputStream(1, self._on_output), OutputStream(2, self._on_output))
        self.running: RunningCommand | None = None
        self._total_bytes = 0
        self._last_output = b""
        self._record = record
        self._send_output = send_output
        self._is_paused = False

    def take(self, data: bytes) -> None:
        self._total_bytes += len(data)
        self._last_output = (self._last_output + data)[-LAST_BYTES:]
        if self._record is not None:
            self._record.take(data)
        else:
            self.streams[0].add(data)

    def _on_output(self) -> None:
        self.set_pace()
        self._send_output()

    def set_pace(self) -> None:
        """Let the command wait while the engine does not take its output."""
        should_pause = any(stream.is_full for stream in self.streams)
        if self.running is not None and should_pause != self._is_paused:
            self._is_paused = should_pause
            self.running.pause_output(should_pause)

    async def wait(self) -> CommandEnded:
        assert self.running is not None
        end = await asyncio.shield(self.running.ended)
        return CommandEnded(
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

    def earlier(self) -> EarlierCommand:
        """What an engine that comes later is told."""
        code = None
        if self.running is not None and self.running.ended.done():
            end = self.running.ended.result()
            code = end.exit_code if not end.error else None
        return EarlierCommand(exit_code=code, total_bytes=self._total_bytes, last_output=self._last_output)
