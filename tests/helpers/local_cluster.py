"""A cluster in one process.

`open_local` returns the four interfaces. The log and the registry are in an SQLite file and survive the process; leases
and messages on the bus do not.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from parley.cluster.base import (
    BusRequest,
    Cluster,
    ClusterError,
    Handler,
    LeaseLost,
    NoResponders,
    RegistryRow,
    ShardLease,
    Unsubscribe,
)
from parley.cluster.sql_log import ClusterSqlLog
from parley.cluster.subjects import matches
from parley.errors import SessionError
from parley.gateway.database import Database
from parley.stores.numbered_log import make_too_long
from parley.stores.sql.numbered_log import MESSAGES, SNAPSHOTS, SqlLog, Steps, make_sqlite_tables, run_steps
from parley.workspace.private_database import Schema

T = TypeVar("T")
__all__ = ["LocalBus", "LocalDatabase", "LocalOwnership", "LocalRegistry", "open_local"]
SCHEMA = Schema(
    "cluster",
    2,
    make_sqlite_tables("cluster", MESSAGES + SNAPSHOTS)
    + """
CREATE TABLE registry (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL,
    revision INTEGER NOT NULL,
    is_temporary INTEGER NOT NULL
);
CREATE TABLE revisions (last INTEGER NOT NULL);
INSERT INTO revisions VALUES (0);
""",
)
MAX_MESSAGE_BYTES = 1_000_000
"""About what a NATS server takes by default, so that tests meet the limit here, too."""
EXPIRY_CHECK_SECONDS = 0.2
MAX_PAYLOAD_BYTES = 1_000_000


def open_local(
    path: Path, *, shards: int = 64, ttl_seconds: float = 10, clock: Callable[[], float] = time.monotonic
) -> Cluster:
    """Open the file, or create it. Raises ClusterError."""
    database = LocalDatabase(path)
    bus = LocalBus()
    registry = LocalRegistry(database, clock)

    async def close() -> None:
        await bus.close()
        registry.close()
        database.close()

    return Cluster(
        log=ClusterSqlLog(database, SqlLog("cluster", database.name, shards), MAX_MESSAGE_BYTES),
        ownership=LocalOwnership(database, shards, ttl_seconds, clock),
        bus=bus,
        registry=registry,
        close=close,
    )


class LocalDatabase(Database):
    def __init__(self, path: Path) -> None:
        super().__init__(path, SCHEMA)

    def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        try:
            return super().run(statement, *values)
        except SessionError as exc:
            error = ClusterError(str(exc))
            error.error_code = exc.error_code
            raise error from None

    async def run_steps(self, steps: Steps[T]) -> T:
        """Run the statements of a log together. Raises ClusterError."""
        with self.transaction():
            return run_steps(steps, lambda text, row: [tuple(found) for found in self.rows(text, row)])

    def next_revision(self) -> int:
        """A number that is higher than all before it. Raises ClusterError."""
        self.run("UPDATE revisions SET last = last + 1")
        ((revision,),) = self.rows("SELECT last FROM revisions")
        return int(revision)


class LocalOwnership:
    """Leases end with the process. Epochs rise over all processes that use the file."""

    def __init__(self, database: LocalDatabase, shards: int, ttl_seconds: float, clock: Callable[[], float]) -> None:
        self.shards = shards
        self.ttl_seconds = ttl_seconds
        self._database = database
        self._clock = clock
        self._held: dict[int, tuple[ShardLease, float]] = {}
        """Each lease with the time at which it ends."""

    async def acquire(self, shard: int, host: str, *, ended: int = 0) -> ShardLease | None:
        held = self._get(shard)
        if held is not None and held.host != host and held.revision != ended:
            return None
        revision = self._database.next_revision()
        return self._put(ShardLease(shard=shard, host=host, epoch=revision, revision=revision))

    async def renew(self, lease: ShardLease) -> ShardLease:
        held = self._get(lease.shard)
        if held is None or held.epoch != lease.epoch:
            raise LeaseLost(f"shard {lease.shard} is held by {held.host if held else 'no host'}, not by {lease.host}")
        return self._put(
            ShardLease(shard=lease.shard, host=lease.host, epoch=lease.epoch, revision=self._database.next_revision())
        )

    async def release(self, lease: ShardLease) -> None:
        held = self._get(lease.shard)
        if held is not None and held.epoch == lease.epoch:
            del self._held[lease.shard]

    async def leases(self) -> dict[int, ShardLease]:
        return {shard: lease for shard in sorted(self._held) if (lease := self._get(shard))}

    def _get(self, shard: int) -> ShardLease | None:
        lease, end = self._held.get(shard, (None, 0.0))
        return lease if self._clock() < end else None

    def _put(self, lease: ShardLease) -> ShardLease:
        self._held[lease.shard] = lease, self._clock() + self.ttl_seconds
        return lease


class LocalRegistry:
    """Rows are in the database, watchers in memory."""

    def __init__(self, database: LocalDatabase, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._ends: dict[str, float] = {}
        """When temporary rows end."""
        self._watchers: list[tuple[str, deque[RegistryRow | str], asyncio.Event]] = []
        # The clock of the process that set them is gone.
        database.run("DELETE FROM registry WHERE is_temporary")

    async def get(self, key: str) -> RegistryRow | None:
        self._expire()
        return self._get(key)

    def _get(self, key: str) -> RegistryRow | None:
        found = self._database.row("SELECT key, value, revision FROM registry WHERE key = ?", key)
        return None if found is None else RegistryRow(*found)

    async def put(self, key: str, value: bytes, ttl_seconds: float | None = None) -> int:
        self._expire()
        return self._put(key, value, ttl_seconds)

    def _put(self, key: str, value: bytes, ttl_seconds: float | None) -> int:
        with self._database.transaction():
            row = RegistryRow(key, value, self._database.next_revision())
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

    async def rows(self, pattern: str) -> list[RegistryRow]:
        self._expire()
        return self._rows(pattern)

    def _rows(self, pattern: str) -> list[RegistryRow]:
        found = self._database.rows("SELECT key, value, revision FROM registry ORDER BY key")
        return [RegistryRow(*row) for row in found if matches(pattern, row[0])]

    async def watch(self, pattern: str) -> AsyncIterator[RegistryRow | str | None]:
        self._expire()
        watcher = pattern, deque[RegistryRow | str](), asyncio.Event()
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

    def _notify(self, key: str, change: RegistryRow | str) -> None:
        for pattern, changes, is_changed in self._watchers:
            if matches(pattern, key):
                changes.append(change)
                is_changed.set()

    def close(self) -> None:
        self._ends.clear()


logger = logging.getLogger(__name__)


class LocalBus:
    """Each subscription has a queue and a task of its own, so that a slow one does not delay the others."""

    max_payload_bytes = MAX_PAYLOAD_BYTES

    def __init__(self) -> None:
        self._subscriptions: list[LocalSubscription] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    async def request(self, subject: str, data: bytes, timeout_seconds: float) -> bytes:
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def respond(answer: bytes) -> None:
            if not reply.done():
                reply.set_result(answer)

        if not self._send(BusRequest(subject, data, respond)):
            raise NoResponders(f"no one listens to {subject}")
        try:
            async with asyncio.timeout(timeout_seconds):
                return await reply
        except TimeoutError:
            raise ClusterError(f"no reply on {subject} within {timeout_seconds:g} s") from None

    async def publish(self, subject: str, data: bytes) -> None:
        self._send(BusRequest(subject, data, ignore))

    def _send(self, request: BusRequest) -> bool:
        """Whether anyone listens."""
        if len(request.data) > self.max_payload_bytes:
            raise make_too_long("the bus", len(request.data), self.max_payload_bytes)
        listeners = [one for one in self._subscriptions if matches(one.subject, request.subject)]
        for listener in listeners:
            listener.queue.put_nowait(request)
        return bool(listeners)

    async def subscribe(self, subject: str, handler: Handler) -> Unsubscribe:
        subscription = LocalSubscription(self, subject)
        self._subscriptions.append(subscription)
        task = asyncio.create_task(subscription.run(handler))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return subscription.unsubscribe

    def remove(self, subscription: LocalSubscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def new_inbox(self) -> str:
        return f"_INBOX.{next(self._numbers)}"

    async def close(self) -> None:
        self._subscriptions.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class LocalSubscription:
    def __init__(self, bus: LocalBus, subject: str) -> None:
        self._bus = bus
        self.subject = subject
        self.queue: asyncio.Queue[BusRequest | None] = asyncio.Queue()

    async def unsubscribe(self) -> None:
        self._bus.remove(self)
        self.queue.put_nowait(None)

    async def run(self, handler: Handler) -> None:
        while (request := await self.queue.get()) is not None:
            try:
                await handler(request)
            except Exception:
                logger.exception("a handler of %s failed", self.subject)


async def ignore(_answer: bytes) -> None:
    """Replies to a notice go nowhere."""
