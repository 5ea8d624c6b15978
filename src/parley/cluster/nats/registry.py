"""The registry in a bucket of NATS."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from parley.cluster.base import ClusterError, Row
from parley.cluster.nats.jetstream import EXPECTED, WRONG_LAST_SEQUENCE, JetStream, JetStreamError, Stored
from parley.cluster.nats.streams import MARKER_SECONDS, StreamNames

if TYPE_CHECKING:
    from nats.aio.msg import Msg

TTL = "Nats-TTL"
DELETED = {"KV-Operation": "DEL", TTL: f"{MARKER_SECONDS}s"}
WATCH_SECONDS = 1.0
"""How often a watcher looks without being told that something has changed."""
STORE_SECONDS = (0.1, 0.02, 0.005)
"""A watcher hears of a change when it is sent, which may be before it is stored: it looks again, last one first."""


class NatsRegistry:
    def __init__(self, stream: JetStream, names: StreamNames) -> None:
        self._stream = stream
        self._name = names.registry
        self._subject = names.registry_subject

    async def get(self, key: str) -> Row | None:
        message = await self._stream.get_last(self._name, f"{self._subject}.{key}")
        return self._read(message) if message and not is_deleted(message) else None

    async def put(self, key: str, value: bytes, ttl_seconds: float | None = None) -> int:
        headers = {} if ttl_seconds is None else {TTL: f"{max(1, math.ceil(ttl_seconds))}s"}
        return (await self._stream.store(f"{self._subject}.{key}", value, headers)).seq

    async def update(self, key: str, value: bytes, revision: int) -> int | None:
        subject = f"{self._subject}.{key}"
        if (stored := await self._update(subject, value, revision)) or revision:
            return stored
        last = await self._stream.get_last(self._name, subject)
        return await self._update(subject, value, last.sequence) if last and is_deleted(last) else None

    async def _update(self, subject: str, value: bytes, revision: int) -> int | None:
        try:
            return (await self._stream.store(subject, value, {EXPECTED: str(revision)})).seq
        except JetStreamError as exc:
            if exc.number in WRONG_LAST_SEQUENCE:
                return None
            raise

    async def delete(self, key: str) -> None:
        if await self.get(key) is not None:
            await self._stream.store(f"{self._subject}.{key}", b"", DELETED)

    async def rows(self, pattern: str) -> list[Row]:
        messages = await self._stream.read_all(self._name, f"{self._subject}.{pattern}")
        found = {message.subject: message for message in messages}
        rows = [self._read(message) for message in found.values() if not is_deleted(message)]
        return sorted(rows, key=lambda row: row.key)

    async def watch(self, pattern: str) -> AsyncIterator[Row | str | None]:
        changed = asyncio.Event()

        async def wake(_message: Msg) -> None:
            changed.set()

        connection = self._stream.connection
        subscription = await connection.subscribe(f"{self._subject}.{pattern}", wake)
        try:
            generation = connection.generation
            rows = await self.rows(pattern)
            known = {row.key for row in rows}
            after = max((row.revision for row in rows), default=0)
            for row in rows:
                yield row
            yield None
            pauses: list[float] = []
            while True:
                changed.clear()
                found: list[Row | str] = []
                # An error is not the end: when the connection is back, what has changed in between is found.
                with suppress(ClusterError):
                    if generation == connection.generation:
                        messages = [message async for message in self._scan(pattern, after)]
                        found = [row.key if is_deleted(one) else row for one in messages for row in [self._read(one)]]
                        after = messages[-1].sequence if messages else after
                    else:
                        # Perhaps with an older copy than the one before.
                        generation, rows = connection.generation, await self.rows(pattern)
                        found = [*(known - {row.key for row in rows}), *rows]
                        after = max((row.revision for row in rows), default=0)
                for change in found:
                    yield change
                    known.discard(change) if isinstance(change, str) else known.add(change.key)
                pauses = [] if found else pauses
                with suppress(TimeoutError):
                    async with asyncio.timeout(pauses.pop() if pauses else WATCH_SECONDS):
                        await changed.wait()
                    pauses = list(STORE_SECONDS)
        finally:
            with suppress(Exception):
                await subscription.unsubscribe()

    def _scan(self, pattern: str, after: int = 0) -> AsyncIterator[Stored]:
        return self._stream.scan(self._name, f"{self._subject}.{pattern}", after)

    def _read(self, message: Stored) -> Row:
        return Row(message.subject.removeprefix(f"{self._subject}."), message.data, message.sequence)


def is_deleted(message: Stored) -> bool:
    """Whether a message says that a key was deleted, by a caller or by the server at the end of its time."""
    return "KV-Operation" in message.headers or "Nats-Marker-Reason" in message.headers
