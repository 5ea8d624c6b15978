"""Merging HTTP chunks. The HTTP library's own parser checks the result."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parley.models.backends.anthropic import Anthropic
from parley.models.base import ModelEvent
from parley.models.endpoint import ModelEndpoint
from parley.models.http.call import ConnectionPool, parse_refusal
from parley.models.http.chunk_merging import LONGEST_HEAD_BYTES, ChunkMerger
from tests.helpers.http_server import EVENT_STREAM, Line, loopback, self_signed
from tests.helpers.models import asking, user
from tests.unit.models.http.test_sse import cut

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
PLACES = st.lists(st.integers(min_value=0, max_value=300), max_size=12)
BODIES = st.lists(st.binary(min_size=1, max_size=40), max_size=12)
# Unusual input for a chunk parser, in any order.
SCRAPS = st.sampled_from(
    [
        b"5\r\nhello\r\n",
        b"1\r\n\r\r\n",
        b"a\r\n0\r\n\r\n5\r\nab\r\n",
        b"3;x=y\r\nabc\r\n",
        b"3 \r\nabc\r\n",
        b"0x2\r\nab\r\n",
        b"+2\r\nab\r\n",
        b"2\r\nabc\r\n",
        b"2\nab\n",
        b"-1\r\n",
        b"\r\n",
        b"\n",
        b"5",
        b"zz",
        LAST,
        b"0\r\nx: y\r\n\r\n",
    ]
)
HEADS = st.sampled_from(
    [
        HEAD,
        HEAD.replace(b"\r\n", b"\n"),
        HEAD.replace(b"200 OK", b"103 Early Hints") + HEAD,
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: transfer-encoding: chunked\r\ncontent-length: 30\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
    ]
)
A_REQUEST = h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")])


def chunked(*bodies: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(body), body) for body in bodies)


class Reader:
    """The body that the HTTP library reads from these bytes."""

    def __init__(self) -> None:
        self._connection = h11.Connection(h11.CLIENT)
        self._connection.send(A_REQUEST)
        self._connection.send(h11.EndOfMessage())
        self.body = b""
        self.pieces = 0
        self.outcome = ""

    def feed(self, data: bytes) -> None:
        """Empty bytes are the end of the connection."""
        if self.outcome:
            return
        try:
            self._connection.receive_data(data)
            while (event := self._connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Data):
                    self.body += event.data
                    self.pieces += 1
                elif isinstance(event, h11.EndOfMessage):
                    self.outcome = f"end {event.headers!r}"
                    return
        except h11.RemoteProtocolError as exc:
            self.outcome = str(exc)


def told(*reads: bytes) -> Reader:
    """What is parsed after merging. It always equals what is parsed without merging."""
    merger, plain, merged = ChunkMerger(), Reader(), Reader()
    merger.begin()
    for data in filter(None, reads):
        plain.feed(data)
        if out := merger.feed(data):
            merged.feed(out)
        assert merged.body == plain.body
    if left := merger.end():
        merged.feed(left)
    plain.feed(b"")
    merged.feed(b"")
    assert (merged.body, merged.outcome) == (plain.body, plain.outcome)
    return merged


@given(BODIES, PLACES)
def test_every_cut_of_an_answer_gives_its_body_and_each_part_as_soon_as_it_came(
    bodies: list[bytes], places: list[int]
) -> None:
    reader = told(*cut(HEAD + chunked(*bodies) + LAST, places))

    assert reader.body == b"".join(bodies)
    assert reader.outcome.startswith("end")


@given(HEADS, st.lists(SCRAPS, max_size=8), PLACES)
@example(HEAD, [b"5\r\nhello\r\n", b"2\r\nabc\r\n"], [])
@example(HEAD, [b"5\r\nhello\r\n", b"3;x=y\r\nabc\r\n", b"5\r\nhello\r\n"], [])
def test_what_is_not_a_plain_chunk_means_what_it_meant(head: bytes, scraps: list[bytes], places: list[int]) -> None:
    told(*cut(head + b"".join(scraps), places))


def test_chunks_that_came_together_are_one() -> None:
    merger = ChunkMerger()

    assert merger.feed(HEAD + chunked(b"first", b"second")) == HEAD + chunked(b"firstsecond")
    assert merger.feed(chunked(b"third", b"fourth") + LAST) == chunked(b"thirdfourth") + LAST


def test_a_chunk_that_is_not_complete_is_handed_on_as_it_came() -> None:
    merger = ChunkMerger()

    assert merger.feed(HEAD + chunked(b"a", b"b") + b"6\r\nsec") == HEAD + chunked(b"ab") + b"6\r\nsec"
    assert merger.feed(b"ond\r") == b"ond\r"
    assert merger.feed(b"\n" + chunked(b"c", b"d")) == b"\n" + chunked(b"cd")


def test_of_a_line_that_reports_a_size_nothing_is_lost_when_the_connection_ends() -> None:
    merger = ChunkMerger()

    assert merger.feed(HEAD + b"12\r") == HEAD
    assert merger.end() == b"12\r"


def test_the_next_answer_of_a_connection_is_read_afresh() -> None:
    merger = ChunkMerger()
    merger.feed(HEAD + chunked(b"a") + LAST)
    plain = b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n" + chunked(b"a", b"b")

    merger.begin()
    assert merger.feed(plain) == plain

    merger.begin()
    assert merger.feed(HEAD + chunked(b"a", b"b")) == HEAD + chunked(b"ab")


def test_a_head_without_end_is_not_kept() -> None:
    merger, line = ChunkMerger(), b"x-filler: " + b"x" * 990 + b"\r\n"
    endless = HEAD[:-2] + line * (LONGEST_HEAD_BYTES // len(line))

    assert merger.feed(endless) == endless
    assert merger.feed(line) == line
    assert merger.feed(b"\r\n" + chunked(b"a", b"b")) == b"\r\n" + chunked(b"a", b"b")


async def many_at_once(line: Line) -> bool:
    await line.begin(200, {**EVENT_STREAM, "transfer-encoding": "chunked"})
    await line.write(chunked(*[b"data: x\n\n"] * 100) + LAST)
    return True


async def batches(url: str, pool: ConnectionPool) -> list[int]:
    async with pool.post(f"{url}/v1/messages", {}, b"{}", parse_refusal) as answer:
        return [len(batch) async for batch in answer.batches()]


async def test_a_stream_that_arrives_at_once_is_read_at_once() -> None:
    async def ask() -> tuple[list[int], list[int]]:
        async with loopback(many_at_once, many_at_once) as server:
            pool = ConnectionPool(server.url)
            try:
                return await batches(server.url, pool), await batches(server.url, pool)
            finally:
                await pool.close()

    # The head may come first, and the end is a batch of its own: far fewer batches than events.
    for found in await ask():
        assert sum(found) == 100
        assert len(found) < 10


async def test_chunks_are_merged_behind_a_proxy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> list[int]:
        async with loopback(many_at_once) as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            pool = ConnectionPool("http://model.invalid")
            try:
                return await batches("http://model.invalid", pool)
            finally:
                await pool.close()

    found = await ask()
    assert sum(found) == 100
    assert len(found) < 10


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
async def test_chunks_are_merged_within_the_tunnel_of_a_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    context = self_signed(tmp_path, "DNS:model.invalid")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))

    async def ask() -> tuple[list[int], list[str]]:
        async with loopback(many_at_once, tls=context) as server, tunnel(server.url) as (proxy, asked):
            monkeypatch.setenv("HTTPS_PROXY", proxy)
            pool = ConnectionPool("https://model.invalid")
            try:
                return await batches("https://model.invalid", pool), asked
            finally:
                await pool.close()

    found, asked = await ask()
    assert asked == ["CONNECT model.invalid:443 HTTP/1.1"]
    assert sum(found) == 100
    assert len(found) < 10


@asynccontextmanager
async def tunnel(url: str) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy whose tunnels all lead to one server, and the requests it received."""
    asked: list[str] = []

    async def relay(source: asyncio.StreamReader, goal: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                goal.write(data)
                await goal.drain()
        goal.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.partition(b"\r\n")[0].decode())
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(relay(reader, far_writer), relay(far_reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()
        await server.wait_closed()


async def test_an_event_that_comes_alone_does_not_wait_for_the_next() -> None:
    gate = asyncio.Event()

    async def one_then_the_rest(line: Line) -> bool:
        await line.begin(200, {**EVENT_STREAM, "transfer-encoding": "chunked"})
        await line.piece(b'data: {"type":"message_start","message":{}}\n\n')
        await gate.wait()
        for piece in (b'data: {"type":"message_stop"}\n\n', b""):
            await line.piece(piece)
        return True

    async def ask() -> list[ModelEvent]:
        async with loopback(one_then_the_rest) as server:
            model = Anthropic(ModelEndpoint(base_url=server.url, auth=("x-api-key", "k")))
            events = []
            try:
                async for event in model.stream(asking(user("Hello"))):
                    events.append(event)
                    gate.set()  # the rest is sent only after this arrived
            finally:
                await model.close()
            return events

    assert [event.type for event in await ask()] == ["message_start", "message_stop"]
