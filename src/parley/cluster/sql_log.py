"""The logs of sessions in SQL: in the SQLite file of a cluster in one process, or in PostgreSQL.

PostgreSQL is for an operator who wants SQL over the history. `PostgresConnections` opens connections when they are
needed, up to a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from parley.errors import ClusterError
from parley.protocol.base import Json
from parley.stores.numbered_log import LogKey, SequenceGuard, Snapshot, make_gap, make_too_long, make_truncated
from parley.stores.sql.numbered_log import (
    MESSAGES,
    SNAPSHOTS,
    Rows,
    SqlLog,
    Steps,
    create_tables,
    format_error,
    make_postgres_tables,
    run_steps_async,
    translate_params,
)
from parley.version import how_to_install

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
CONNECTIONS = 8
CONNECT_SECONDS = 5
VERSION = 2
MAX_MESSAGE_BYTES = 8 << 20
TABLES = make_postgres_tables("parley_cluster", MESSAGES + SNAPSHOTS)


class Connections(Protocol):
    async def run_steps(self, steps: Steps[T]) -> T:
        """Run statements. Raises ClusterError."""


class ClusterSqlLog:
    """A numbered log on connections to a database."""

    def __init__(self, connections: Connections, log: SqlLog, max_message_bytes: int) -> None:
        self.max_message_bytes = max_message_bytes
        self._run = connections.run_steps
        self._log = log
        self._guard = SequenceGuard(log.where)

    async def append(self, key: LogKey, data: bytes, *, expected: int, message_id: str) -> int:
        if len(data) > self.max_message_bytes:
            raise make_too_long(self._log.where, len(data), self.max_message_bytes)
        self._guard.check()
        highest = self._guard.highest
        steps = self._log.append(key, data, expected=expected, message_id=message_id)
        sequence, is_new = await self._run(steps)
        if is_new:
            self._guard.require_newer(sequence, highest)
        self._guard.see(sequence)
        return sequence

    async def read(self, key: LogKey, after: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        head = await self.head(key)
        if after > head:
            raise make_truncated(self._log.where, key, head, after)
        while after < head:
            page, damage = await self._run(self._log.read(key, after, head))
            for sequence, data in page:
                yield sequence, data
                after = sequence
            if damage is not None:
                raise self._log.make_damage(key, after, damage)
            if not page:
                raise make_gap(self._log.where, key, after, head)

    async def head(self, key: LogKey) -> int:
        self._guard.check()
        return await self._run(self._log.head(key))

    async def save_snapshot(self, key: LogKey, snapshot: Snapshot) -> None:
        self._guard.check()
        await self._run(self._log.save_snapshot(key, snapshot))

    async def load_snapshot(self, key: LogKey) -> Snapshot | None:
        return await self._run(self._log.load_snapshot(key))

    async def delete(self, key: LogKey) -> None:
        await self._run(self._log.delete(key))

    async def keys(self, shard: int) -> list[LogKey]:
        return await self._run(self._log.keys(shard))


class PostgresConnections:
    def __init__(self, address: str, timeout_seconds: float) -> None:
        parts = urlsplit(address)
        self.where = f"PostgreSQL at {parts.netloc.rpartition('@')[2] or parts.query or 'its socket'}"
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._idle: list[psycopg.AsyncConnection[tuple[Any, ...]]] = []
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def open(self) -> str | None:
        """Create the tables. Why acknowledged messages could be lost, None if they are kept. Raises ClusterError."""
        async with self._connection() as connection, connection.transaction():
            steps = create_tables("cluster", VERSION, TABLES, self.where)
            await run_steps_async(steps, lambda text, row: fetch(connection, text, row))
            ((fsync,),) = await fetch(connection, "SHOW fsync", {})
        return f"{self.where} has fsync={fsync}" if fsync != "on" else None

    def open_log(self, shards: int) -> ClusterSqlLog:
        return ClusterSqlLog(self, SqlLog("parley_cluster", self.where, shards), MAX_MESSAGE_BYTES)

    async def run_steps(self, steps: Steps[T]) -> T:
        async with self._connection() as connection:
            return await run_steps_async(steps, lambda text, row: fetch(connection, text, row))

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection[tuple[Any, ...]]]:
        """A connection for a moment. Raises ClusterError."""
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
            raise ClusterError(f"{self.where} does not answer within {self._timeout_seconds:g} s") from None
        except psycopg.errors.DiskFull as exc:
            error = ClusterError(f"{self.where} is full: {format_error(exc)}")
            error.error_code = "ENOSPC"
            raise error from None
        except psycopg.Error as exc:
            if isinstance(exc, psycopg.OperationalError):
                await self.close()  # the server may have been restarted: the other connections are gone, too
            raise ClusterError(f"{self.where} failed: {format_error(exc)}") from None
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


async def fetch(connection: psycopg.AsyncConnection[tuple[Any, ...]], text: str, row: Json) -> Rows:
    """Run a statement; its rows, if it has any."""
    cursor = await connection.execute(translate_params(text), row)
    return await cursor.fetchall() if cursor.description else []
