"""What happens when PostgreSQL breaks its connections, or has lost what it stored."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from parley.cluster.base import LogDamaged, SessionKey
from parley.cluster.postgres_log import PostgresClusterLog
from tests.helpers.cluster_places import eventually


@asynccontextmanager
async def open_log(address: str) -> AsyncIterator[PostgresClusterLog]:
    log = PostgresClusterLog(address, 8, 10)
    await log.open()
    try:
        yield log
    finally:
        await log.close()


async def append(log: PostgresClusterLog, key: SessionKey, data: bytes, expected: int) -> int:
    return await eventually(lambda: log.append(key, data, expected=expected, message_id=data.decode()))


def new_key() -> SessionKey:
    return SessionKey("tenant", str(uuid.uuid4()))


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
