"""Real pipes and sockets: buffering without a reader, draining, and restored modes."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.transports.stdio import StdioTransport
from tests.helpers.patience import PATIENCE_SECONDS

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def silent() -> Iterator[int]:
    """A stdin without a writer."""
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


def read_all(descriptor: int, count_bytes: int, into: bytearray, piece_bytes: int) -> None:
    while len(into) < count_bytes:
        into += os.read(descriptor, piece_bytes)


@pytest.mark.parametrize("piece_bytes", [1000, 65536])
async def test_chunks_of_all_sizes_arrive_whole_and_in_order_at_a_slow_reader(
    pipe: Pipe, silent: int, piece_bytes: int
) -> None:
    chunks = [bytes([number % 251]) * size for number, size in enumerate([1, 70_000, 0, 3, 200_000, *[10] * 2000, 5])]
    wanted, got = b"".join(chunks), bytearray()
    reader = threading.Thread(target=read_all, args=(pipe[0], len(wanted), got, piece_bytes), daemon=True)

    transport = StdioTransport(silent, pipe[1])
    for chunk in chunks:
        transport.write(chunk)
    await asyncio.sleep(0)  # the pipe is full before it is read
    reader.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await transport.drain()
    transport.close()
    reader.join(PATIENCE_SECONDS)
    assert bytes(got) == wanted


async def test_what_is_held_is_not_copied_for_every_write(
    pipe: Pipe, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: the size of a system call must not grow with the buffer."""
    offered_bytes: list[int] = []
    real = os.writev

    def counted(descriptor: int, pieces: list[bytes | memoryview]) -> int:
        offered_bytes.append(sum(len(piece) for piece in pieces if isinstance(piece, bytes)))
        assert isinstance(pieces[0], memoryview)
        return real(descriptor, pieces)

    monkeypatch.setattr(os, "writev", counted)
    line = b"x" * 10_000
    got = bytearray()
    reader = threading.Thread(target=read_all, args=(pipe[0], 2000 * len(line), got, 65536), daemon=True)

    transport = StdioTransport(silent, pipe[1])
    for _ in range(2000):
        transport.write(line)
    reader.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await transport.drain()
    transport.close()
    reader.join(PATIENCE_SECONDS)
    assert len(got) == 2000 * len(line)
    assert 0 < max(offered_bytes) < 300_000


@pytest.mark.parametrize("hurried_first", [True, False])
async def test_in_a_hurry_a_reader_who_does_not_read_is_given_up(pipe: Pipe, silent: int, hurried_first: bool) -> None:
    transport = StdioTransport(silent, pipe[1])
    transport.write(b"x" * 1_000_000)
    if hurried_first:
        transport.limit_drain(0.05)
    else:
        asyncio.get_running_loop().call_later(0.01, transport.limit_drain, 0.05)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await transport.drain()
    with pytest.raises(BrokenPipeError):
        transport.write(b"more")
    transport.close()
    assert transport.error is None


@pytest.mark.parametrize("blocking", [True, False])
async def test_both_streams_are_left_as_they_were_found(pipe: Pipe, silent: int, blocking: bool) -> None:
    os.set_blocking(silent, blocking)
    os.set_blocking(pipe[1], blocking)

    transport = StdioTransport(silent, pipe[1])
    reading = asyncio.ensure_future(anext(transport.chunks(), b""))
    await asyncio.sleep(0)
    meanwhile = os.get_blocking(silent), os.get_blocking(pipe[1])
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    transport.close()
    assert meanwhile == (False, False)
    assert (os.get_blocking(silent), os.get_blocking(pipe[1])) == (blocking, blocking)


async def test_a_socket_that_is_stdin_and_stdout_is_left_as_it_was_found() -> None:
    ours, theirs = socket.socketpair()

    async def scenario() -> None:
        transport = StdioTransport(ours.fileno(), ours.fileno())
        transport.write(b"hello")
        await transport.drain()
        transport.close()

    with ours, theirs:
        await scenario()
        assert theirs.recv(10) == b"hello"
        assert os.get_blocking(ours.fileno())


async def test_a_reader_who_left_is_not_an_error_but_a_full_disk_is(silent: int) -> None:
    async def scenario(stdout: int) -> StdioTransport:
        transport = StdioTransport(silent, stdout)
        transport.write(b"hello")
        await transport.drain()
        transport.close()
        return transport

    reading, writing = os.pipe()
    os.close(reading)
    assert (await scenario(writing)).error is None
    os.close(writing)
    with Path("/dev/full").open("wb") as full:
        problem = (await scenario(full.fileno())).error
    assert problem is not None
    assert "space" in str(problem.strerror)
