"""What happens when PostgreSQL breaks its connections, or has lost what it stored."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from parley.cluster.base import LogDamaged, LogKey
from parley.cluster.sql_log import ClusterSqlLog, PostgresConnections
from tests.helpers.cluster_places import eventually


@asynccontextmanager
async def open_log(address: str) -> AsyncIterator[ClusterSqlLog]:
    connections = PostgresConnections(address, 10)
    await connections.open()
    try:
        yield connections.open_log(8)
    finally:
        await connections.close()


async def append(log: ClusterSqlLog, key: LogKey, data: bytes, expected: int) -> int:
    return await eventually(lambda: log.append(key, data, expected=expected, message_id=data.decode()))


def new_key() -> LogKey:
    return LogKey("tenant", str(uuid.uuid4()))


async def test_a_broken_connection_is_replaced(postgres_address: str) -> None:
    keys = [new_key() for _ in range(5)]
    async with open_log(postgres_address) as log:
        heads = await asyncio.gather(*(append(log, key, b"one", 0) for key in keys))
        with psycopg.connect(postgres_address, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'parley'")
        for key, head in zip(keys, heads, strict=True):
            second = await append(log, key, b"two", head)
            assert [message async for message in log.read(key)] == [(head, b"one"), (second, b"two")]


async def test_a_missing_row_is_noticed(postgres_address: str) -> None:
    key = new_key()
    async with open_log(postgres_address) as log:
        first = await append(log, key, b"one", 0)
        second = await append(log, key, b"two", first)
        third = await append(log, key, b"three", second)
        with psycopg.connect(postgres_address, autocommit=True) as admin:
            admin.execute("DELETE FROM parley_cluster_messages WHERE sequence = %s", (second,))
        with pytest.raises(LogDamaged, match=rf"^PostgreSQL at .* some are missing between {first} and {third}"):
            assert [message async for message in log.read(key)]


async def test_an_altered_row_is_noticed(postgres_address: str) -> None:
    key = new_key()
    async with open_log(postgres_address) as log:
        first = await append(log, key, b"one", 0)
        second = await append(log, key, b"two", first)
        with psycopg.connect(postgres_address, autocommit=True) as admin:
            admin.execute("UPDATE parley_cluster_messages SET data = 'twa' WHERE sequence = %s", (second,))
        messages = log.read(key)
        assert await anext(messages) == (first, b"one")
        with pytest.raises(LogDamaged, match=rf"message {second} of session {key.session} was altered"):
            await anext(messages)


async def test_a_database_that_was_restored_from_an_older_copy_is_noticed(postgres_address: str) -> None:
    key = new_key()
    async with open_log(postgres_address) as log:
        first = await append(log, key, b"one", 0)
        second = await append(log, key, b"two", first)
        with psycopg.connect(postgres_address, autocommit=True) as admin:
            admin.execute("SELECT setval('parley_cluster_sequence', %s)", (first,))
        with pytest.raises(LogDamaged, match=rf"it is at {second}, but {second} was stored before"):
            await log.append(new_key(), b"", expected=0, message_id="x")
        with pytest.raises(LogDamaged):
            await log.head(key)
        with psycopg.connect(postgres_address, autocommit=True) as admin:
            admin.execute("SELECT setval('parley_cluster_sequence', %s)", (second,))
