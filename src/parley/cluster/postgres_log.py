"""The logs of sessions in PostgreSQL, where an operator wants SQL over the history.

The row of a session in `parley_cluster_heads` has the sequence of its last message. To append is to change this row
from the expected sequence to the next one, in one statement with the message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from parley.cluster.base import (
    ClusterError,
    SequenceGuard,
    SessionKey,
    Snapshot,
    make_gap,
    make_refusal,
    make_reused_id,
    make_too_long,
    make_truncated,
)
from parley.version import how_to_install

if TYPE_CHECKING:
    import psycopg

CONNECTIONS = 8
CONNECT_SECONDS = 5
PAGE = 500
VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS parley_version (part text PRIMARY KEY, version int NOT NULL);
CREATE SEQUENCE IF NOT EXISTS parley_cluster_sequence;
CREATE TABLE IF NOT EXISTS parley_cluster_heads (
    tenant text NOT NULL, session text NOT NULL, shard int NOT NULL, head bigint NOT NULL,
    PRIMARY KEY (tenant, session)
);
CREATE INDEX IF NOT EXISTS parley_cluster_heads_by_shard ON parley_cluster_heads (shard);
CREATE TABLE IF NOT EXISTS parley_cluster_messages (
    tenant text NOT NULL, session text NOT NULL, sequence bigint NOT NULL, previous bigint NOT NULL,
    message_id text NOT NULL, at timestamptz NOT NULL DEFAULT now(), data bytea NOT NULL,
    PRIMARY KEY (tenant, session, sequence), UNIQUE (tenant, session, message_id)
);
CREATE TABLE IF NOT EXISTS parley_cluster_snapshots (
    tenant text NOT NULL, session text NOT NULL, sequence bigint NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (tenant, session)
);
INSERT INTO parley_version VALUES ('cluster', 1) ON CONFLICT DO NOTHING;
"""
APPEND = """
WITH moved AS ({move} RETURNING head)
INSERT INTO parley_cluster_messages (tenant, session, sequence, previous, message_id, data)
SELECT %(tenant)s, %(session)s, head, %(expected)s, %(message_id)s, %(data)s FROM moved RETURNING sequence
"""
APPEND_FIRST = APPEND.format(
    move="INSERT INTO parley_cluster_heads VALUES "
    "(%(tenant)s, %(session)s, %(shard)s, nextval('parley_cluster_sequence')) ON CONFLICT DO NOTHING"
)
APPEND_NEXT = APPEND.format(
    move="UPDATE parley_cluster_heads SET head = nextval('parley_cluster_sequence') "
    "WHERE tenant = %(tenant)s AND session = %(session)s AND head = %(expected)s"
)
OF_SESSION = "WHERE tenant = %(tenant)s AND session = %(session)s"
READ = (
    f"SELECT sequence, previous, data FROM parley_cluster_messages {OF_SESSION} "
    "AND sequence > %(after)s AND sequence <= %(head)s ORDER BY sequence LIMIT %(page)s"
)
SAVE = """
INSERT INTO parley_cluster_snapshots AS stored VALUES (%(tenant)s, %(session)s, %(sequence)s, %(data)s)
ON CONFLICT (tenant, session) DO UPDATE SET sequence = excluded.sequence, data = excluded.data
WHERE stored.sequence <= excluded.sequence RETURNING sequence
"""


class PostgresClusterLog:
    """Opens connections when they are needed, up to a limit."""

    max_message_bytes = 8 << 20

    def __init__(self, address: str, shards: int, timeout_seconds: float) -> None:
        self._address = address
        self._shards = shards
        self._timeout_seconds = timeout_seconds
        parts = urlsplit(address)
        self._where = f"PostgreSQL at {parts.netloc.rpartition('@')[2] or parts.query or 'its socket'}"
        self._guard = SequenceGuard(self._where)
        self._idle: list[psycopg.AsyncConnection[tuple[Any, ...]]] = []
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def open(self) -> str | None:
        """Create the tables. Why acknowledged messages could be lost, None if they are kept. Raises ClusterError."""
        async with self._connection() as connection:
            # Creating the same table concurrently fails.
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('parley schema', 0))")
                await connection.execute(SCHEMA.encode())
            found = await fetch(connection, "SELECT version FROM parley_version WHERE part = 'cluster'")
            if found[0][0] > VERSION:
                raise ClusterError(
                    f"{self._where} has schema version {found[0][0]}; this Parley reads up to {VERSION}. Upgrade it."
                )
            ((fsync,),) = await fetch(connection, "SHOW fsync")
            return f"{self._where} has fsync={fsync}" if fsync != "on" else None

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def append(self, key: SessionKey, data: bytes, *, expected: int, message_id: str) -> int:
        if len(data) > self.max_message_bytes:
            raise make_too_long(self._where, len(data), self.max_message_bytes)
        self._guard.check()
        highest = self._guard.highest
        row = {**of(key), "shard": key.shard(self._shards), "expected": expected, "message_id": message_id}
        try:
            found = await self._fetch(APPEND_NEXT if expected else APPEND_FIRST, {**row, "data": data})
        except IdInUse:
            found = []
        if not found:
            return await self._find_stored(key, row, data)
        self._guard.require_newer(found[0][0], highest)
        return int(found[0][0])

    async def _find_stored(self, key: SessionKey, row: dict[str, Any], data: bytes) -> int:
        """The sequence of a message that an earlier call has stored. Raises Fenced, LogDamaged, ClusterError."""
        text = (
            f"SELECT sequence, previous, data FROM parley_cluster_messages {OF_SESSION} AND message_id = %(message_id)s"
        )
        for sequence, previous, stored in await self._fetch(text, row):
            if (previous, bytes(stored)) != (row["expected"], data):
                raise make_reused_id(self._where, key, row["message_id"])
            self._guard.see(sequence)
            return int(sequence)
        head = await self._get_head(key)
        if head == row["expected"]:
            raise ClusterError(f"{self._where}: another write to session {key.session} has not finished")
        raise make_refusal(self._where, key, head, row["expected"])

    async def read(self, key: SessionKey, after: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        head = await self.head(key)
        if after > head:
            raise make_truncated(self._where, key, head, after)
        while after < head:
            page = await self._fetch(READ, {**of(key), "after": after, "head": head, "page": PAGE})
            if not page:
                raise make_gap(self._where, key, after, head)
            for sequence, previous, data in page:
                if previous != after:
                    raise make_gap(self._where, key, after, sequence)
                yield sequence, bytes(data)
                after = sequence

    async def head(self, key: SessionKey) -> int:
        self._guard.check()
        return await self._get_head(key)

    async def _get_head(self, key: SessionKey) -> int:
        found = await self._fetch(f"SELECT head FROM parley_cluster_heads {OF_SESSION}", of(key))
        return int(found[0][0]) if found else 0

    async def save_snapshot(self, key: SessionKey, snapshot: Snapshot) -> None:
        if (head := await self.head(key)) < snapshot.sequence:
            raise make_truncated(self._where, key, head, snapshot.sequence)
        row = {**of(key), "sequence": snapshot.sequence, "data": snapshot.data}
        if await self._fetch(SAVE, row):
            await self._fetch(f"DELETE FROM parley_cluster_messages {OF_SESSION} AND sequence < %(sequence)s", row)

    async def load_snapshot(self, key: SessionKey) -> Snapshot | None:
        found = await self._fetch(f"SELECT sequence, data FROM parley_cluster_snapshots {OF_SESSION}", of(key))
        return Snapshot(found[0][0], bytes(found[0][1])) if found else None

    async def delete(self, key: SessionKey) -> None:
        # The heads last: as long as there is one, `keys` has the session, so that a deletion can be repeated.
        for table in ("snapshots", "messages", "heads"):
            await self._fetch(f"DELETE FROM parley_cluster_{table} {OF_SESSION}", of(key))

    async def keys(self, shard: int) -> list[SessionKey]:
        text = "SELECT tenant, session FROM parley_cluster_heads WHERE shard = %(shard)s"
        return sorted(SessionKey(*row) for row in await self._fetch(text, {"shard": shard}))

    async def _fetch(self, text: str, row: dict[str, Any]) -> Sequence[tuple[Any, ...]]:
        async with self._connection() as connection:
            return await fetch(connection, text, row)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection[tuple[Any, ...]]]:
        """A connection for one statement. Raises IdInUse, ClusterError."""
        try:
            import psycopg
        except ModuleNotFoundError:
            raise ClusterError(f"PostgreSQL needs the package psycopg: {how_to_install('postgres')}") from None

        connection = None
        try:
            async with asyncio.timeout(self._timeout_seconds), self._free:
                connection = self._idle.pop() if self._idle else await self._connect()
                yield connection
                self._idle.append(connection)
                connection = None
        except TimeoutError:
            raise ClusterError(f"{self._where} does not answer within {self._timeout_seconds:g} s") from None
        except psycopg.errors.UniqueViolation:
            raise IdInUse from None
        except psycopg.errors.DiskFull as exc:
            error = ClusterError(f"{self._where} is full: {format_error(exc)}")
            error.error_code = "ENOSPC"
            raise error from None
        except psycopg.Error as exc:
            if isinstance(exc, psycopg.OperationalError):
                await self.close()  # the server may have been restarted: the other connections are gone, too
            raise ClusterError(f"{self._where} failed: {format_error(exc)}") from None
        finally:
            # After an error its state is unknown.
            if connection is not None:
                await connection.close()

    async def _connect(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        import psycopg

        connection = await psycopg.AsyncConnection.connect(
            self._address, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="parley"
        )
        await connection.execute("SET synchronous_commit = on")
        return connection


class IdInUse(Exception):
    """A message with the same id exists."""


async def fetch(
    connection: psycopg.AsyncConnection[tuple[Any, ...]], text: str, row: dict[str, Any] | None = None
) -> Sequence[tuple[Any, ...]]:
    """Run a statement; its rows, if it has any."""
    cursor = await connection.execute(text.encode(), row)
    return await cursor.fetchall() if cursor.description else []


def of(key: SessionKey) -> dict[str, Any]:
    return {"tenant": key.tenant, "session": key.session}


def format_error(error: Exception) -> str:
    return " ".join(str(error).split())
