"""A cluster in one process: for tests, and for a single machine.

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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from parley.cluster.base import (
    Cluster,
    ClusterError,
    Handler,
    Lease,
    LeaseLost,
    NoResponders,
    Request,
    Row,
    SessionKey,
    Snapshot,
    make_gap,
    make_refusal,
    make_reused_id,
    make_too_long,
    make_truncated,
)
from parley.cluster.subjects import matches
from parley.workspace.private_database import Schema, open_database, translate_errors

__all__ = ["LocalBus", "LocalDatabase", "LocalLog", "LocalOwnership", "LocalRegistry", "open_local"]
SCHEMA = Schema(
    "cluster",
    1,
    """
CREATE TABLE messages (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    previous INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (tenant, session, message_id)
);
CREATE INDEX messages_by_session ON messages (tenant, session, sequence);
CREATE TABLE snapshots (
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (tenant, session)
);
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
PAGE = 500
LAST = "SELECT coalesce(max(sequence), 0) FROM messages WHERE tenant = ? AND session = ?"
OF_SESSION = "WHERE tenant = ? AND session = ?"
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
        log=LocalLog(database, shards),
        ownership=LocalOwnership(database, shards, ttl_seconds, clock),
        bus=bus,
        registry=registry,
        close=close,
    )


# AUTOINCREMENT: the number of a removed message is never used again.


class LocalDatabase:
    """Statements are short, so they run on the event loop. Every commit is synced to the disk."""

    def __init__(self, path: Path) -> None:
        self.name = f"the database {path}"
        with self._translate_errors():
            self._connection = open_database(path, SCHEMA, durable=True)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit several statements together, or none of them. Nothing may be awaited inside. Raises ClusterError."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise

    def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Raises ClusterError."""
        with self._translate_errors():
            return self._connection.execute(statement, values)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Raises ClusterError."""
        with self._translate_errors():
            return self._connection.execute(statement, values).fetchall()

    def row(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row. Raises ClusterError."""
        return next(iter(self.rows(statement, *values)), None)

    def next_revision(self) -> int:
        """A number that is higher than all before it. Raises ClusterError."""
        self.run("UPDATE revisions SET last = last + 1")
        ((revision,),) = self.rows("SELECT last FROM revisions")
        return int(revision)

    def close(self) -> None:
        self._connection.close()

    def _translate_errors(self) -> AbstractContextManager[None]:
        return translate_errors(self.name, ClusterError)


class LocalLog:
    """Every message is on the disk before `append` returns."""

    max_message_bytes = MAX_MESSAGE_BYTES

    def __init__(self, database: LocalDatabase, shards: int) -> None:
        self._database = database
        self._shards = shards

    async def append(self, key: SessionKey, data: bytes, *, expected: int, message_id: str) -> int:
        if len(data) > self.max_message_bytes:
            raise make_too_long(self._database.name, len(data), self.max_message_bytes)
        with self._database.transaction():
            stored = self._database.row(
                f"SELECT sequence, data, previous FROM messages {OF_SESSION} AND message_id = ?", *of(key), message_id
            )
            if stored is not None and stored[1:] == (data, expected):
                return int(stored[0])
            head = self._head(key)
            if head != expected:
                raise make_refusal(self._database.name, key, head, expected)
            if stored is not None:
                raise make_reused_id(self._database.name, key, message_id)
            cursor = self._database.run(
                "INSERT INTO messages (tenant, session, previous, message_id, data) VALUES (?, ?, ?, ?, ?)",
                *(*of(key), expected, message_id, data),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    async def read(self, key: SessionKey, after: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        head = self._head(key)
        while after < head:
            page = self._database.rows(
                f"SELECT sequence, previous, data FROM messages {OF_SESSION} AND sequence > ? AND sequence <= ? "
                "ORDER BY sequence LIMIT ?",
                *(*of(key), after, head, PAGE),
            )
            for sequence, previous, data in page:
                if previous != after:
                    raise make_gap(self._database.name, key, after, sequence)
                yield sequence, data
                after = sequence
        if after > head:
            raise make_truncated(self._database.name, key, head, after)

    async def head(self, key: SessionKey) -> int:
        return self._head(key)

    def _head(self, key: SessionKey) -> int:
        ((head,),) = self._database.rows(LAST, *of(key))
        return int(head)

    async def save_snapshot(self, key: SessionKey, snapshot: Snapshot) -> None:
        with self._database.transaction():
            if (head := self._head(key)) < snapshot.sequence:
                raise make_truncated(self._database.name, key, head, snapshot.sequence)
            stored = self._database.row(f"SELECT sequence FROM snapshots {OF_SESSION}", *of(key))
            if stored is not None and stored[0] > snapshot.sequence:
                return
            self._database.run(
                "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", *of(key), snapshot.sequence, snapshot.data
            )
            self._database.run(f"DELETE FROM messages {OF_SESSION} AND sequence < ?", *of(key), snapshot.sequence)

    async def load_snapshot(self, key: SessionKey) -> Snapshot | None:
        found = self._database.row(f"SELECT sequence, data FROM snapshots {OF_SESSION}", *of(key))
        return None if found is None else Snapshot(*found)

    async def delete(self, key: SessionKey) -> None:
        with self._database.transaction():
            self._database.run(f"DELETE FROM messages {OF_SESSION}", *of(key))
            self._database.run(f"DELETE FROM snapshots {OF_SESSION}", *of(key))

    async def keys(self, shard: int) -> list[SessionKey]:
        found = [SessionKey(*row) for row in self._database.rows("SELECT DISTINCT tenant, session FROM messages")]
        return sorted(key for key in found if key.shard(self._shards) == shard)


def of(key: SessionKey) -> tuple[str, str]:
    return key.tenant, key.session


class LocalOwnership:
    """Leases end with the process. Epochs rise over all processes that use the file."""

    def __init__(self, database: LocalDatabase, shards: int, ttl_seconds: float, clock: Callable[[], float]) -> None:
        self.shards = shards
        self.ttl_seconds = ttl_seconds
        self._database = database
        self._clock = clock
        self._held: dict[int, tuple[Lease, float]] = {}
        """Each lease with the time at which it ends."""

    async def acquire(self, shard: int, host: str, *, ended: int = 0) -> Lease | None:
        held = self._get(shard)
        if held is not None and held.host != host and held.revision != ended:
            return None
        revision = self._database.next_revision()
        return self._put(Lease(shard=shard, host=host, epoch=revision, revision=revision))

    async def renew(self, lease: Lease) -> Lease:
        held = self._get(lease.shard)
        if held is None or held.epoch != lease.epoch:
            raise LeaseLost(f"shard {lease.shard} is held by {held.host if held else 'no host'}, not by {lease.host}")
        return self._put(
            Lease(shard=lease.shard, host=lease.host, epoch=lease.epoch, revision=self._database.next_revision())
        )

    async def release(self, lease: Lease) -> None:
        held = self._get(lease.shard)
        if held is not None and held.epoch == lease.epoch:
            del self._held[lease.shard]

    async def leases(self) -> dict[int, Lease]:
        return {shard: lease for shard in sorted(self._held) if (lease := self._get(shard))}

    def _get(self, shard: int) -> Lease | None:
        lease, end = self._held.get(shard, (None, 0.0))
        return lease if self._clock() < end else None

    def _put(self, lease: Lease) -> Lease:
        self._held[lease.shard] = lease, self._clock() + self.ttl_seconds
        return lease


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

        if not self._send(Request(subject, data, respond)):
            raise NoResponders(f"no one listens to {subject}")
        try:
            async with asyncio.timeout(timeout_seconds):
                return await reply
        except TimeoutError:
            raise ClusterError(f"no reply on {subject} within {timeout_seconds:g} s") from None

    async def request_all(self, subject: str, data: bytes, timeout_seconds: float, most: int) -> list[bytes]:
        replies: asyncio.Queue[bytes] = asyncio.Queue()
        found: list[bytes] = []
        if self._send(Request(subject, data, replies.put)):
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    while len(found) < most:
                        found.append(await replies.get())
        return found

    async def publish(self, subject: str, data: bytes) -> None:
        self._send(Request(subject, data, ignore))

    def _send(self, request: Request) -> bool:
        """Whether anyone listens."""
        if len(request.data) > self.max_payload_bytes:
            raise make_too_long("the bus", len(request.data), self.max_payload_bytes)
        listeners = [one for one in self._subscriptions if matches(one.subject, request.subject)]
        for listener in listeners:
            listener.queue.put_nowait(request)
        return bool(listeners)

    async def subscribe(self, subject: str, handler: Handler) -> LocalSubscription:
        subscription = LocalSubscription(self, subject)
        self._subscriptions.append(subscription)
        task = asyncio.create_task(subscription.run(handler))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return subscription

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
        self.queue: asyncio.Queue[Request | None] = asyncio.Queue()

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
