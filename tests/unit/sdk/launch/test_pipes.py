"""Reading a descriptor again and again."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator

import pytest

from parley.sdk.launch.pipes import CHUNK_BYTES, watch


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    one.setblocking(False)
    with one, other:
        yield one, other


async def test_all_bytes_arrive_in_order_and_then_the_end(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    sent = os.urandom(3 * CHUNK_BYTES)
    sending = asyncio.create_task(asyncio.to_thread(theirs.sendall, sent))
    reader, received = watch(ours.fileno()), b""
    while len(received) < len(sent):
        received += await reader.read()
        await asyncio.sleep(0)  # more arrives while these bytes are held
    await sending
    theirs.close()

    assert received == sent
    assert await reader.read() == b""
    reader.close()


async def test_nothing_is_read_while_bytes_are_not_taken(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    reader = watch(ours.fileno())
    theirs.sendall(b"first")
    assert await reader.read() == b"first"
    theirs.sendall(b"second")
    for _ in range(3):
        await asyncio.sleep(0)
    theirs.sendall(b"third")
    for _ in range(3):
        await asyncio.sleep(0)

    assert ours.recv(100) == b"third"
    assert await reader.read() == b"second"
    theirs.sendall(b"fourth")
    assert await reader.read() == b"fourth"
    reader.close()


async def test_a_closed_reader_leaves_the_descriptor_alone(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    reader = watch(ours.fileno())
    theirs.sendall(b"first")
    await reader.read()
    reader.close()
    reader.close()
    theirs.sendall(b"second")
    for _ in range(3):
        await asyncio.sleep(0)

    assert ours.recv(100) == b"second"
