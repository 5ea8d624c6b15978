"""A tunnel to an allowed host cannot be used to ask the server behind it for another host (domain fronting)."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.workspace.sandbox.egress.proxy import close_writer
from parley.workspace.sandbox.egress.wire import BadRequest, read_opening
from tests.helpers.egress import EgressNetwork, open_network
from tests.helpers.http_server import self_signed

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@contextlib.asynccontextmanager
async def serve_tls(folder: Path, seen: list[str | None]) -> AsyncIterator[int]:
    """A server that answers for every name, as those of a content network do. Yields its port."""
    context = self_signed(folder, "DNS:approved.test")
    context.sni_callback = lambda socket, name, own: seen.append(name)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello from " + (await reader.readline()))
        await close_writer(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


async def talk(network: EgressNetwork, port: int, name: str | None, *, socks: bool = False) -> str:
    """Open a tunnel to approved.test, and speak TLS with a name in it. Returns what came of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", network.proxy_port)
    try:
        if socks:
            writer.write(b"\5\1\0" + b"\5\1\0\3\x0dapproved.test" + port.to_bytes(2, "big"))
            await reader.readexactly(2 + 10)
        else:
            writer.write(b"CONNECT approved.test:%d HTTP/1.1\r\n\r\n" % port)
            await reader.readuntil(b"\r\n\r\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        await writer.start_tls(context, server_hostname=name)
        writer.write(b"me\n")
        return (await reader.read()).decode()
    except ssl.SSLError as exc:
        return str(exc.reason)
    finally:
        await close_writer(writer)


async def test_the_name_in_the_handshake_must_be_allowed(tmp_path: Path) -> None:
    seen: list[str | None] = []
    allowed, denied = ("approved.test", "*.also.test"), ("secret.also.test",)
    async with serve_tls(tmp_path, seen) as port, open_network(allowed, denied) as network:
        for name in ("approved.test", "APPROVED.test", "www.also.test", None):
            assert await talk(network, port, name) == "hello from me\n"
        assert await talk(network, port, "approved.test", socks=True) == "hello from me\n"
        assert network.proxy.take_refusals() == []
        for name in ("evil.test", "secret.also.test", "xapproved.test"):
            assert await talk(network, port, name) == "TLSV1_UNRECOGNIZED_NAME"
        assert await talk(network, port, "evil.test", socks=True) == "TLSV1_UNRECOGNIZED_NAME"
        refusals = network.proxy.take_refusals()
    assert {name for name in seen if name} == {"approved.test", "APPROVED.test", "www.also.test"}
    assert [refusal.host for refusal in refusals] == ["evil.test", "secret.also.test", "xapproved.test"]
    assert "refused a TLS connection to approved.test, because it asks for evil.test" in refusals[0].reason


def hello(name: str) -> bytes:
    """The first message of a real client, without its record."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()[5:]


def records(message: bytes, size: int) -> bytes:
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\3\1" + len(part).to_bytes(2, "big") + part for part in parts)


async def read(data: bytes) -> tuple[bytes, str | None]:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    opening = await read_opening(reader)
    return opening.data + await reader.read(), opening.name


async def test_a_handshake_in_pieces_is_read_and_passed_on_as_it_came() -> None:
    message = hello("evil.test")
    for size in (1, 5, 100, 1 << 14):
        data = records(message, size) + b"more"
        assert await read(data) == (data, "evil.test")
    for other in (b"", b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16", b"\x16\4\1\0\1", b"\5\1\0"):
        assert await read(other) == (other, None)


async def test_a_handshake_that_cannot_be_read_is_refused() -> None:
    message = hello("evil.test")
    twice = message.replace(b"\0\x0e\0\x0c\0\0\x09evil.test", b"\0\x0e\0\x0c\0\0\x03abc\0\0\x03def")
    assert twice != message
    for data in (
        records(message, 100)[:-10],
        records(message[:-10], 100),
        b"\x15\3\1\0\2\1\0" + records(message, 1 << 14),  # a warning first
        b"\x16\3\1\0\0" + records(message, 1 << 14),
        records(b"\2" + message[1:], 1 << 14),
        records(b"\1\xff\xff\xff" + message[4:], 1 << 14),
        records(twice, 1 << 14),
    ):
        with pytest.raises(BadRequest):
            await read(data)
