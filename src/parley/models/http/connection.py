"""Connections to an HTTP server: direct or through a proxy, in the clear or over TLS.

    connection = await connect(address, proxy, make_context)    # raises OSError, BadResponse
    await connection.write(data)                                # returns when it is sent, or the server answers
    data = await connection.read()                              # b"" at the end; raises OSError

`ssl` is imported for https only: it takes as long as the rest of a call.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from parley.models.http.response import BadResponse, ResponseParser
from parley.protocol.base import Struct

if TYPE_CHECKING:
    import ssl

READ_BYTES = 64 * 1024
BUFFER_BYTES = 1024 * 1024
"""Data that arrives faster than it is read waits in the kernel from here on."""
TOGETHER_BYTES = 256 * 1024
"""Shorter pieces are sent together; to copy a longer one takes longer than to send it apart."""
PART_BYTES = 1024 * 1024
"""Longer pieces are sent in parts: the loop copies all of what it is given that the kernel does not take at once."""
HAPPY_EYEBALLS_SECONDS = 0.25
"""How long to wait for one address of a host before the next is tried as well (RFC 8305)."""
PORTS = {"http": 80, "https": 443}
URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:(?P<user>[^/?#]*)@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[0-9A-Za-z._~-]+)?\]|[^\s/?#@:\[\]\\]+)(?::(?P<port>[0-9]{1,5})?)?"
    r"(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?(?:#.*)?"
)
TARGET_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'()*+,-./:;=?@[]_~|")

MakeContext = Callable[[], Awaitable["ssl.SSLContext"]]


class Address(Struct, frozen=True):
    """A URL in its parts."""

    scheme: str
    host: str
    port: int
    target: str
    """The path and the query, as they stand in a request."""
    user: str | None = None
    """User name and password, as they stand in the URL."""

    @classmethod
    def parse(cls, url: str) -> Address:
        """Raises ValueError, without the URL: it may contain a password."""
        found = URL.fullmatch(url.strip())
        if found is None or (scheme := found["scheme"].lower()) not in PORTS:
            raise ValueError("the URL is invalid (expected http://host:port/path or https://host:port/path)")
        port = int(found["port"] or PORTS[scheme])
        if not 0 < port < 65536:
            raise ValueError(f"the URL has an invalid port: {port}")
        target = (found["path"] or "/") + (found["query"] or "")
        return cls(scheme, encode_host(found["host"].strip("[]")), port, quote_target(target), found["user"])

    @property
    def authority(self) -> str:
        """Host and port, as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def basic_auth(self) -> str | None:
        """The value of an Authorization header for the user in the URL."""
        if not self.user:
            return None
        from base64 import b64encode
        from urllib.parse import unquote

        name, _, password = self.user.partition(":")
        return "Basic " + b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()


def encode_host(host: str) -> str:
    """Raises ValueError if the name is not a host name."""
    return host if host.isascii() else host.encode("idna").decode("ascii")


def quote_target(target: str) -> str:
    if TARGET_CHARACTERS.issuperset(target):
        return target
    from urllib.parse import quote

    return quote(target, safe="!#$%&'()*+,/:;=?@[]~|")


class ReadBuffer(threading.local):
    """What connections read into: one for each thread, because loops in several threads read at the same time.

    Without it, the loop allocates 256 KiB for each read, for which malloc maps and unmaps memory.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES))


_buffer = ReadBuffer()


class HttpConnection(asyncio.BufferedProtocol):
    """One connection. Data waits here until it is read."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._data: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._is_full = False
        """More data to send would only wait in memory."""
        self._is_at_end = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        """Of the caller that reads or writes."""

    @property
    def is_usable(self) -> bool:
        """Whether a request can be sent: the server has neither closed the connection nor sent anything."""
        return self._transport is not None and not self._is_at_end and not self._data

    async def write(self, *pieces: bytes | memoryview) -> None:
        """Send all pieces. A server that answers or disconnects before is not waited for."""
        for part in split_pieces(pieces):
            while self._is_full and not self._data and not self._is_at_end:
                await self._wait()
            if self._transport is None or self._is_at_end:
                return
            self._transport.write(part)

    async def read(self) -> bytes:
        """All that has arrived; empty at the end. Raises OSError."""
        while not self._data:
            if self._error is not None:
                raise self._error
            if self._is_at_end:
                return b""
            await self._wait()
        data = self._data[0] if len(self._data) == 1 else b"".join(self._data)
        self._data.clear()
        self._size = 0
        if self._is_paused and self._transport is not None:
            self._transport.resume_reading()
            self._is_paused = False
        return data

    async def _wait(self) -> None:
        """Wait until something has changed."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Encrypt the rest of the connection. Raises OSError."""
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(self._transport, self, context, server_hostname=host)
        if transport is None:
            raise ConnectionResetError("the connection was closed during the TLS handshake")
        self._transport = transport

    def close(self) -> None:
        """Close it at once, without waiting for the peer."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._is_at_end = True

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # the loop gives a stream protocol a Transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return _buffer.view

    def buffer_updated(self, nbytes: int) -> None:
        self._data.append(bytes(_buffer.view[:nbytes]))
        self._size += nbytes
        if self._size > BUFFER_BYTES and not self._is_paused and self._transport is not None:
            self._transport.pause_reading()
            self._is_paused = True
        self._wake()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    def eof_received(self) -> None:
        self._is_at_end = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_at_end, self._transport = True, None
        self._error = self._error or exc
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def split_pieces(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Short pieces together, and long ones in parts."""
    together: list[bytes | memoryview] = []
    for piece in pieces:
        if len(piece) < TOGETHER_BYTES:
            together.append(piece)
            continue
        yield b"".join(together)
        together = []
        view = memoryview(piece)
        for start in range(0, len(view), PART_BYTES):
            yield view[start : start + PART_BYTES]
    yield b"".join(together)


async def connect(address: Address, proxy: Address | None, make_context: MakeContext) -> HttpConnection:
    """Raises OSError or BadResponse."""
    first = proxy or address
    context = await make_context() if "https" in (first.scheme, address.scheme) else None
    connection, loop = HttpConnection(), asyncio.get_running_loop()
    # uvloop tries the addresses of a host one after the other.
    is_asyncio = isinstance(loop, asyncio.BaseEventLoop)
    parallel: dict[str, Any] = {"happy_eyeballs_delay": HAPPY_EYEBALLS_SECONDS} if is_asyncio else {}
    try:
        await loop.create_connection(
            lambda: connection,
            first.host,
            first.port,
            ssl=context if first.scheme == "https" else None,
            server_hostname=first.host if first.scheme == "https" else None,
            **parallel,
        )
        if proxy is not None and address.scheme == "https":
            await open_tunnel(connection, address, proxy)
            assert context is not None
            await connection.start_tls(context, address.host)
    except BaseException:
        connection.close()
        raise
    return connection


async def open_tunnel(connection: HttpConnection, address: Address, proxy: Address) -> None:
    """Ask a proxy for a connection to an address. Raises OSError or BadResponse."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [f"CONNECT {host}:{address.port} HTTP/1.1", f"host: {host}:{address.port}"]
    if credentials := proxy.basic_auth:
        lines.append(f"proxy-authorization: {credentials}")
    await connection.write("\r\n".join([*lines, "", ""]).encode("ascii"))
    # Only the head is parsed: after it, the connection leads to the server.
    head = b""
    while b"\r\n\r\n" not in head:
        data = await connection.read()
        head += data
        if not data or len(head) > 64 * 1024:
            raise BadResponse("the proxy closed the connection" if not data else "the answer of the proxy is too long")
    response = ResponseParser()
    head, _, rest = head.partition(b"\r\n\r\n")
    response.feed(head + b"\r\n\r\n")
    if response.status is None or not 200 <= response.status < 300:
        raise BadResponse(f"the proxy refused the connection with status {response.status}")
    if rest:
        raise BadResponse("the proxy sent data before the TLS handshake")
