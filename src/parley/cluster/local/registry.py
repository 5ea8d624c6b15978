"""The registry of a cluster in one process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from parley.cluster.base import Row
from parley.cluster.local.database import LocalDatabase
from parley.cluster.subjects import matches

EXPIRY_CHECK_SECONDS = 0.2


class LocalRegistry:
    """Rows are in the database, watchers in memory."""

    def __init__(self, database: LocalDatabase, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._ends: dict[str, float] = {}
        """When temporary rows end."""
        self._watchers: list[tuple[str, deque[Row | str], asyncio.Event]] = []
        # The clock of the process that set them is gone.
        database.run("DELETE FROM registry WHERE is_temporary")

    async def get(self, key: str) -> Row | None:
        self._expire()
        return self._get(key)

    def _get(self, key: str) -> Row | None:
        found = self._database.row("SELECT key, value, revision FROM registry WHERE key = ?", key)
        return None if found is None else Row(*found)

    async def put(self, key: str, value: bytes, ttl_seconds: float | None = None) -> int:
        self._expire()
        return self._put(key, value, ttl_seconds)

    def _put(self, key: str, value: bytes, ttl_seconds: float | None) -> int:
        with self._database.transaction():
            row = Row(key, value, self._database.next_revision())
            values = (row.key, row.value, row.revision, ttl_seconds is not None)
            self._database.run("INSERT OR REPLACE INTO registry VALUES (?, ?, ?, ?)", *values)
        self._ends.pop(key, None)
        if ttl_seconds is not None:
            self._ends[key] = self._clock() + ttl_seconds
        self._notify(key, row)
        return row.revision

    async def update(self, key: str, value: bytes, revision: int) -> int | None:
        self._expire()
        row = self._get(key)
        return self._put(key, value, None) if (row.revision if row else 0) == revision else None

    async def delete(self, key: str) -> None:
        self._expire()
        self._delete(key)

    def _delete(self, key: str) -> None:
        self._ends.pop(key, None)
        if self._database.run("DELETE FROM registry WHERE key = ?", key).rowcount:
            self._notify(key, key)

    async def rows(self, pattern: str) -> list[Row]:
        self._expire()
        return self._rows(pattern)

    def _rows(self, pattern: str) -> list[Row]:
        found = self._database.rows("SELECT key, value, revision FROM registry ORDER BY key")
        return [Row(*row) for row in found if matches(pattern, row[0])]

    async def watch(self, pattern: str) -> AsyncIterator[Row | str | None]:
        self._expire()
        watcher = pattern, deque[Row | str](), asyncio.Event()
        self._watchers.append(watcher)
        try:
            for row in self._rows(pattern):
                yield row
            yield None
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(EXPIRY_CHECK_SECONDS):
                        await watcher[2].wait()
                watcher[2].clear()
                self._expire()
                while watcher[1]:
                    yield watcher[1].popleft()
        finally:
            self._watchers.remove(watcher)

    def _expire(self) -> None:
        now = self._clock()
        for key in [key for key, end in self._ends.items() if end <= now]:
            self._delete(key)

    def _notify(self, key: str, change: Row | str) -> None:
        for pattern, changes, is_changed in self._watchers:
            if matches(pattern, key):
                changes.append(change)
                is_changed.set()

    def close(self) -> None:
        self._ends.clear()
