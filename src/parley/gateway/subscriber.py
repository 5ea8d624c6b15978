"""One reader of a session: first the lines that it missed, then the new ones.

A session offers its lines to every subscriber and never waits for one. A subscriber that reads too slowly loses its
queue and reads the lines from the log instead, so it misses only what was never stored: the parts of a message that is
still being written. It gets the whole message later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.gateway.line_log import LineLog

QUEUE_BYTES = 4 * 1024 * 1024
"""How much may wait for one subscriber."""

REPLY = 0
Numbered = tuple[int | None, bytes]
"""A line and its number. Lines that are not stored have none; a reply to this subscriber has the number `REPLY`."""


class Subscriber:
    def __init__(
        self, log: LineLog, after: int, wants: Callable[[bytes], bool] = lambda line: True, max_bytes: int = QUEUE_BYTES
    ) -> None:
        """`wants`: which lines it gets."""
        self.cursor = after
        """The number of the last line that was taken from the log or the queue."""
        self.resyncs = 0
        """How often it was too slow."""
        self._log = log
        self._wants = wants
        self._max_bytes = max_bytes
        self._queue: list[Numbered] = []
        self._queued_bytes = 0
        self._is_live = False
        """Whether it has read the whole log, so that new lines go into the queue."""
        self._skipped: set[int] = set()
        """The numbers of lines after the cursor that it does not get."""
        self._is_closed = False
        self._wake = asyncio.Event()

    def offer(self, number: int | None, line: bytes) -> None:
        """Add a new line. Never waits."""
        if self._is_live:
            if not self._wants(line):
                return
            self._queue.append((number, line))
            self._queued_bytes += len(line)
            if self._queued_bytes > self._max_bytes:
                self._queue = [kept for kept in self._queue if kept[0] == REPLY]
                self._queued_bytes, self._is_live = 0, False
                self.resyncs += 1
        self._wake.set()

    def skip(self, number: int | None) -> None:
        """Leave out a line that is in the log, because this subscriber sent it."""
        if number is not None:
            self._skipped.add(number)

    def send(self, line: bytes) -> None:
        """Add a line for this subscriber alone: a reply to it."""
        self._queue.append((REPLY, line))
        self._wake.set()

    def take_replies(self) -> list[bytes]:
        """The replies that were not taken yet."""
        replies = [line for number, line in self._queue if number == REPLY]
        self._queue = [kept for kept in self._queue if kept[0] != REPLY]
        return replies

    async def take(self) -> list[Numbered]:
        """Wait for lines; empty when the subscriber is closed. Raises SessionError."""
        while not self._is_closed:
            if self._queue:
                batch, self._queue, self._queued_bytes = self._queue, [], 0
                self._advance(next((number for number, _ in reversed(batch) if number), self.cursor))
                return batch
            if not self._is_live:
                stored = self._log.read(self.cursor)
                if stored:
                    wanted: list[Numbered] = [
                        (number, line) for number, line in stored if number not in self._skipped and self._wants(line)
                    ]
                    self._advance(stored[-1][0])
                    if wanted:
                        return wanted
                    continue
                self._is_live = True  # nothing is appended between the read and this line
            self._wake.clear()
            await self._wake.wait()
        return []

    def _advance(self, cursor: int) -> None:
        self.cursor = cursor
        if self._skipped:
            self._skipped = {number for number in self._skipped if number > cursor}

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()
