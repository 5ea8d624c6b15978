"""Calls over real sockets: connections, proxies, TLS and compression."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from parley.errors import ModelError
from parley.models.backends.anthropic import Anthropic
from parley.models.base import ModelEvent
from parley.models.endpoint import ModelEndpoint
from parley.models.failures import parse_refusal
from parley.models.http.call import ConnectionPool
from tests.helpers.http_server import (
    EVENT_STREAM,
    Answer,
    Line,
    loopback,
    self_signed,
    silence,
    stream,
    until_close,
    whole,
)
from tests.helpers.models import asking, user
from tests.unit.models.http.test_response import LAST, chunked

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
EVENT = b"data: x\n\n"


async def many_at_once(line: Line) -> bool:
    await line.begin(200, {**EVENT_STREAM, "transfer-encoding": "chunked"})
    await line.write(chunked(*[EVENT] * 100) + LAST)
    return True


def at_once(data: bytes) -> Answer:
    """Send all of it, then close the connection."""

    async def answer(line: Line) -> bool:
        await line.write(data)
        return False

    return answer


@asynccontextmanager
async def opened(
    url: str, environment: Mapping[str, str] | None = None, certificate: Path | None = None
) -> AsyncIterator[ConnectionPool]:
    def trust() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=certificate)

    pool = ConnectionPool(url, trust=trust, environment=environment)
    try:
        yield pool
    finally:
        await pool.close()


async def post(pool: ConnectionPool, url: str, headers: Mapping[str, str] | None = None) -> list[list[bytes]]:
    async with pool.post(f"{url}/v1/messages", headers or {}, [b"{}"], parse_refusal) as answer:
        return [batch async for batch in answer.batches()]


async def call(answer: Answer) -> list[bytes]:
    """The events of one answer."""
    async with loopback(answer) as server, opened(server.url) as pool:
        return [event for batch in await post(pool, server.url) for event in batch]


def assert_merged(batches: list[list[bytes]]) -> None:
    """The head may come first, and the end is a batch of its own: far fewer batches than events."""
    assert sum(map(len, batches)) == 100
    assert len(batches) < 10


async def test_events_that_arrive_together_are_read_together_and_the_connection_is_used_again() -> None:
    async with loopback(many_at_once, many_at_once) as server, opened(server.url) as pool:
        assert_merged(await post(pool, server.url))
        assert_merged(await post(pool, server.url))

        assert server.connections == 1


async def test_an_event_that_comes_alone_does_not_wait_for_the_next() -> None:
    gate = asyncio.Event()

    async def one_then_the_rest(line: Line) -> bool:
        await line.begin(200, {**EVENT_STREAM, "transfer-encoding": "chunked"})
        await line.piece(b'data: {"type":"message_start","message":{}}\n\n')
        await gate.wait()
        for piece in (b'data: {"type":"message_stop"}\n\n', b""):
            await line.piece(piece)
        return True

    async with loopback(one_then_the_rest) as server:
        model = Anthropic(ModelEndpoint(base_url=server.url, auth=("x-api-key", "k")))
        events: list[ModelEvent] = []
        try:
            async for event in model.stream(asking(user("Hello"))):
                events.append(event)
                gate.set()  # the rest is sent only after this arrived
        finally:
            await model.close()

    assert [event.type for event in events] == ["message_start", "message_stop"]


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again() -> None:
    closed = asyncio.Event()

    async def answer_and_close(line: Line) -> bool:
        await line.begin(200, {**EVENT_STREAM, "content-length": str(len(EVENT))})
        await line.write(EVENT)
        await closed.wait()
        return False

    async with loopback(answer_and_close, stream(EVENT)) as server, opened(server.url) as pool:
        await post(pool, server.url)
        connection = pool._idle[0]
        closed.set()
        assert await connection.read() == b""

        assert await post(pool, server.url) == [[b"x"], []]
        assert server.connections == 2


async def test_a_call_that_is_given_up_closes_its_connection() -> None:
    async with loopback(silence(EVENT)) as server, opened(server.url) as pool:
        async with pool.post(f"{server.url}/", {}, [b"{}"], parse_refusal) as answer:
            async for _ in answer.batches():
                break
        # `loopback` waits for its answers, and this one ends when the client hangs up.
        assert pool._idle == []


async def test_a_large_body_is_sent_while_the_answer_is_read() -> None:
    async def refuse_early(line: Line) -> bool:
        return await whole(413, b'{"error": {"type": "too_large", "message": "too large"}}')(line)

    body = b"x" * 20_000_000
    async with loopback(refuse_early) as server, opened(server.url) as pool:
        with pytest.raises(ModelError, match="too large"):
            async with pool.post(f"{server.url}/", {}, [body], parse_refusal):
                pass


@pytest.mark.parametrize(
    ("coding", "compress"), [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)]
)
async def test_an_answer_that_a_proxy_compressed_is_read(coding: str, compress: object) -> None:
    assert callable(compress)
    packed = compress(EVENT * 300_000)
    pieces = [packed[start : start + 1000] for start in range(0, len(packed), 1000)]

    assert len(await call(stream(*pieces, headers={"content-encoding": coding}))) == 300_000


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"content-encoding": "br"}, "compressed with br, which was not requested"),
        ({"content-encoding": "gzip"}, "the answer cannot be decompressed"),
    ],
)
async def test_an_answer_that_cannot_be_decompressed_is_an_error(headers: dict[str, str], problem: str) -> None:
    with pytest.raises(ModelError, match=problem) as caught:
        await call(stream(EVENT, headers=headers))

    assert caught.value.retryable


async def test_the_status_of_an_error_is_reported_even_if_its_body_cannot_be_read() -> None:
    with pytest.raises(ModelError, match="no details") as caught:
        await call(whole(529, b"not compressed", {"content-encoding": "gzip"}))

    assert (caught.value.status, caught.value.retryable) == (529, True)


async def test_an_answer_that_ends_with_its_connection_is_complete() -> None:
    assert await call(until_close(EVENT * 3)) == [b"x"] * 3


async def test_a_header_with_a_line_break_is_refused_and_not_repeated() -> None:
    async with loopback() as server, opened(server.url) as pool:
        with pytest.raises(ModelError, match=r"^cannot send the request: a header has an invalid value$"):
            await post(pool, server.url, {"x-api-key": "secret\r\nx: y"})

        assert server.connections == 0


async def test_each_request_has_its_own_headers_and_the_length_of_its_body() -> None:
    async with loopback(stream(EVENT), stream(EVENT), stream(EVENT)) as server, opened(server.url) as pool:
        for headers in ({"x-number": "1"}, {"x-number": "1"}, {"x-number": "2", "Content-Length": "7"}):
            await post(pool, server.url, headers)

        sent = [(request.headers["x-number"], request.headers["content-length"]) for request in server.heard]
        assert sent == [("1", "2"), ("1", "2"), ("2", "2")]


async def test_a_body_in_large_and_small_pieces_arrives_whole() -> None:
    pieces: list[bytes | memoryview] = [b"{", b"a" * 300_000, b"b" * 10, memoryview(bytearray(b"c" * 5_000_000)), b"}"]
    async with loopback(stream(EVENT)) as server, opened(server.url) as pool:
        async with pool.post(f"{server.url}/", {}, pieces, parse_refusal) as answer:
            assert [batch async for batch in answer.batches()] == [[b"x"], []]

        assert server.heard[0].body == b"".join(pieces)


async def test_a_user_in_the_url_authenticates() -> None:
    async with loopback(stream(EVENT)) as server:
        url = server.url.replace("http://", "http://me:pass@")
        async with opened(url) as pool:
            await post(pool, url)

        assert server.heard[0].headers["authorization"] == "Basic bWU6cGFzcw=="
        assert "pass" not in server.heard[0].headers["host"]


async def test_a_proxy_gets_the_whole_url_and_its_own_password() -> None:
    async with loopback(many_at_once) as proxy:
        environment = {"HTTP_PROXY": proxy.url.replace("http://", "http://me:pass@")}
        async with opened("http://model.invalid", environment) as pool:
            assert_merged(await post(pool, "http://model.invalid"))

        assert proxy.heard[0].line == "POST http://model.invalid/v1/messages HTTP/1.1"
        assert proxy.heard[0].headers["proxy-authorization"] == "Basic bWU6cGFzcw=="


@needs_openssl
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_with_tls_is_reached_through_the_tunnel_of_a_proxy(tmp_path: Path, scheme: str) -> None:
    context = self_signed(tmp_path, "DNS:model.invalid,IP:127.0.0.1")
    async with (
        loopback(many_at_once, many_at_once, tls=context) as server,
        tunnel(server.url, context if scheme == "https" else None) as (proxy, asked),
        opened("https://model.invalid", {"HTTPS_PROXY": proxy}, tmp_path / "certificate.pem") as pool,
    ):
        assert_merged(await post(pool, "https://model.invalid"))
        assert_merged(await post(pool, "https://model.invalid"))

    assert asked == ["CONNECT model.invalid:443 HTTP/1.1"]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (whole(407, b""), "the proxy refused the connection with status 407"),
        (at_once(b"HTTP/1.1 200 OK\r\n\r\nmore"), "the proxy sent data before the TLS handshake"),
        (at_once(b"HTTP/1.1 200"), "the proxy closed the connection"),
        (at_once(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000), "the answer of the proxy is too long"),
    ],
)
async def test_a_proxy_that_makes_no_tunnel_is_an_error(answer: Answer, problem: str) -> None:
    async with loopback(answer) as proxy, opened("https://model.invalid", {"ALL_PROXY": proxy.url}) as pool:
        with pytest.raises(ModelError, match=problem):
            await post(pool, "https://model.invalid")


@needs_openssl
def test_calls_work_on_uvloop_too(tmp_path: Path) -> None:
    uvloop.run(test_events_that_arrive_together_are_read_together_and_the_connection_is_used_again())
    uvloop.run(test_a_server_with_tls_is_reached_through_the_tunnel_of_a_proxy(tmp_path, "https"))


@asynccontextmanager
async def tunnel(url: str, context: ssl.SSLContext | None) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy whose tunnels all lead to one server, and the requests it received."""
    asked: list[str] = []

    async def relay(source: asyncio.StreamReader, goal: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, ssl.SSLError):
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

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"{'https' if context else 'http'}://127.0.0.1:{port}", asked
    finally:
        server.close()
        await server.wait_closed()
