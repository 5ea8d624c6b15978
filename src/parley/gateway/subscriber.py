"""One reader of a session: first the lines that it missed, then the new ones.

A session offers its lines to every subscriber and never waits for one. A subscriber that reads too slowly loses its
queue and reads the lines from the log instead, so it misses only what was never stored: the parts of a message that is
still being written. It gets the whole message later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from parley.gateway.security.quotas import TokenUse, Unsent
from parley.gateway.session_log.session_log import SessionLog
from parley.protocol.base import Struct

QUEUE_BYTES = 4 * 1024 * 1024
"""How much may wait for one subscriber."""
MAX_REPLY_BYTES = 16 * 1024 * 1024
"""How many bytes of replies may wait for one subscriber. They cannot be read again, so it is disconnected."""
UNREAD_REPLY_BYTES = 64 * 1024
"""How many bytes of replies may wait before the next line of the same client is handled."""

REPLY = 0
Numbered = tuple[int | None, bytes]
"""A line and its number. Lines that are not stored have none; a reply to this subscriber has the number `REPLY`."""
Wants = Callable[[bytes], bool]


class Resync(Struct, frozen=True, kw_only=True, tag_field="type", tag="gateway"):
    """A line of the gateway: the client was too slow. What was not stored is left out."""

    subtype: Literal["resync"] = "resync"
    after: int
    """The lines continue after this number."""


class LineBatch:
    """Lines that are offered together. What is made of them for one subscriber serves all others."""

    def __init__(self, lines: list[Numbered]) -> None:
        self.lines = lines
        self._parts: dict[Wants, LineBatch | None] = {}
        """The lines that pass a filter; None for all of them."""
        self._encoded: dict[Callable[[list[Numbered]], bytes], bytes] = {}
        self.size_bytes = sum([len(line) for _, line in lines])

    def select(self, wants: Wants) -> LineBatch:
        """The lines that a subscriber wants."""
        if wants not in self._parts:
            kept = [one for one in self.lines if wants(one[1])]
            self._parts[wants] = None if len(kept) == len(self.lines) else LineBatch(kept)
        return self._parts[wants] or self

    def encode(self, encoder: Callable[[list[Numbered]], bytes]) -> bytes:
        """The lines as a connection sends them."""
        if encoder not in self._encoded:
            self._encoded[encoder] = encoder(self.lines)
        return self._encoded[encoder]


class Subscriber:
    def __init__(
        self,
        log: SessionLog,
        after: int,
        wants: Wants = lambda line: True,
        max_bytes: int = QUEUE_BYTES,
        unsent: Unsent | None = None,
    ) -> None:
        """`wants`: which lines it gets. `unsent` counts what waits for it."""
        self.cursor = after
        """The number of the last line that was taken from the log or the queue."""
        self.resyncs = 0
        """How often it was too slow."""
        self.write_now: Callable[[LineBatch], bool] | None = None
        """Sends new lines at once, without waking the task that takes them; False if they have to wait."""
        self.on_advance: Callable[[int], None] | None = None
        """Called with the number of the last line that was taken or sent."""
        self._log = log
        self._wants = wants
        self._max_bytes = max_bytes
        self._queue: list[Numbered] = []
        self._queued_bytes = 0
        self.reply_bytes = 0
        """How many bytes of replies wait."""
        self._taken_bytes = 0
        """Of the lines that were taken last, which are being sent."""
        self._unsent = unsent or Unsent(TokenUse())
        self._is_live = False
        """Whether it has read the whole log, so that new lines go into the queue."""
        self._skipped: set[int] = set()
        """The numbers of lines after the cursor that it does not get."""
        self._is_closed = False
        self._is_waiting = False
        """Whether `take` waits, so that all lines before the next one are sent."""
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()
        """Set when lines are taken."""

    def offer(self, batch: LineBatch) -> None:
        """Add new lines. Never waits."""
        if self._is_live:
            batch = batch.select(self._wants)
            if not batch.lines:
                return
            keeps_up = self._is_waiting and not self._queue and self.write_now is not None
            if keeps_up and self.write_now is not None and self.write_now(batch):
                self._advance(last_number(batch.lines) or self.cursor)
                return
            self._queue += batch.lines
            self._queued_bytes += batch.size_bytes
            is_too_slow = self._queued_bytes > self._max_bytes and not keeps_up
            if is_too_slow or self._unsent.is_refused(self._queued_bytes):
                self._queue = [kept for kept in self._queue if kept[0] == REPLY]
                self._queued_bytes, self._is_live = 0, False
                self.resyncs += 1
            self._count()
        self._wake.set()

    def _count(self) -> None:
        self._unsent.set(self._queued_bytes + self.reply_bytes + self._taken_bytes)

    def skip(self, batch: LineBatch) -> None:
        """Leave out lines that are in the log, because this subscriber sent them."""
        self._skipped.update(number for number, _ in batch.lines if number)

    def send(self, line: bytes) -> None:
        """Add a line for this subscriber alone: a reply to it."""
        self._queue.append((REPLY, line))
        self.reply_bytes += len(line)
        if self.reply_bytes > MAX_REPLY_BYTES or self._unsent.is_refused(self.reply_bytes):  # it asks and does not read
            self._queue.clear()
            self._queued_bytes = self.reply_bytes = 0
            self.close()
        self._count()
        self._wake.set()

    async def wait_replies_taken(self) -> None:
        """Wait until few replies wait: who asks must read."""
        while self.reply_bytes > UNREAD_REPLY_BYTES and not self._is_closed:
            self._taken.clear()
            await self._taken.wait()

    def take_replies(self) -> list[bytes]:
        """The replies that were not taken yet."""
        replies = [line for number, line in self._queue if number == REPLY]
        self._queue = [kept for kept in self._queue if kept[0] != REPLY]
        self.reply_bytes = 0
        self._count()
        return replies

    async def take(self) -> list[Numbered]:
        """Wait for lines; empty when the subscriber is closed. Raises SessionError."""
        self._taken_bytes = 0
        while not self._is_closed:
            if self._queue:
                self._taken_bytes = self._queued_bytes + self.reply_bytes
                batch, self._queue, self._queued_bytes, self.reply_bytes = self._queue, [], 0, 0
                self._taken.set()
                self._count()
                self._advance(last_number(batch) or self.cursor)
                return batch
            self._count()
            if not self._is_live:
                if self._log.last > self.cursor:
                    await self._unsent.use.take_turn()
                    await self._unsent.use.wait_room()
                    if self._is_closed:
                        break
                stored = self._log.read(self.cursor)
                self._taken_bytes = sum([len(line) for _, line in stored])
                self._count()
                if stored:
                    wanted: list[Numbered] = [
                        (number, line) for number, line in stored if number not in self._skipped and self._wants(line)
                    ]
                    self._advance(stored[-1][0])
                    if wanted:
                        return wanted
                    continue
                self._is_live = True  # nothing is appended between the read and this line
                if self._queue:  # replies came while it waited for its turn
                    continue
            self._wake.clear()
            self._is_waiting = True
            try:
                await self._wake.wait()
            finally:
                self._is_waiting = False
        return []

    def _advance(self, cursor: int) -> None:
        if self.on_advance is not None and cursor != self.cursor:
            self.on_advance(cursor)
        self.cursor = cursor
        if self._skipped:
            self._skipped = {number for number in self._skipped if number > cursor}

    def close(self) -> None:
        """Replies stay: another subscriber may take them."""
        self._is_closed = True
        self._queue = [kept for kept in self._queue if kept[0] == REPLY]
        self._queued_bytes = self._taken_bytes = 0
        self._count()
        self._wake.set()
        self._taken.set()


def last_number(lines: list[Numbered]) -> int | None:
    """The number of the last line that has one."""
    return next((number for number, _ in reversed(lines) if number), None)
