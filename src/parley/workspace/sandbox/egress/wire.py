"""What the egress proxy reads from commands: HTTP requests to a proxy, SOCKS5, and the first message of a TLS client.

Only one spelling of everything is accepted. A request that two programs could read differently (a bare line feed, a
folded header, two lengths) is refused, because the server might see another request than the one that was judged.

TLS. In a tunnel, a server with many names answers for any of them, so the name that a client asks for is judged, too.
Only its first message is read, which is not encrypted, and it is passed on as it came. What follows is not seen:
neither the `Host` header of a request nor a name that the client encrypts (ECH).

See also: `proxy.py` judges the target and relays.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator

from parley.protocol.base import Struct

MAX_HEAD_BYTES = 64 * 1024
MAX_CHUNK_LINE_BYTES = 256
READ_BYTES = 64 * 1024
TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
TARGET = re.compile(rb"[\x21-\x7e]+")
ABSOLUTE = re.compile(rb"http://([^/?#]*)([/?][^#]*)?", re.IGNORECASE)
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate te trailer upgrade host".split()
)
"""Headers that are not for the server. `Host` is written anew from the judged target."""

SOCKS_VERSION = 5
NO_LOGIN, NO_METHOD = 0, 0xFF
SOCKS_CONNECT = 1
IPV4, NAME, IPV6 = 1, 3, 4
SOCKS_OK, SOCKS_REFUSED, SOCKS_UNREACHABLE, SOCKS_NO_COMMAND, SOCKS_NO_ADDRESS = 0, 2, 4, 7, 8
HANDSHAKE, CLIENT_HELLO, SERVER_NAME, HOST_NAME = 22, 1, 0, 0
RECORD_TYPES = range(20, 25)
MAJOR_VERSION = 3
MAX_RECORD_BYTES = 1 << 14
MAX_HELLO_BYTES = 1 << 16
REFUSAL = bytes([21, 3, 3, 0, 2, 2, 112])
"""A fatal alert: unrecognized name."""


class BadRequest(Exception):
    """The client's request cannot be read, or is not a request to a proxy."""


class ProxyRequest(Struct, frozen=True, kw_only=True):
    """The target of a connection."""

    host: str
    """As the client wrote it: not judged, and possibly not a host at all."""
    port: int
    head: bytes = b""
    """For a plain HTTP request: the head to send to the server. Empty for a tunnel."""
    body_bytes: int | None = 0
    """The length of the body that follows; None if it is chunked."""


async def read_http(reader: asyncio.StreamReader) -> ProxyRequest:
    """Read a request head. Raises BadRequest."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise BadRequest("the request is incomplete") from None
    except asyncio.LimitOverrunError:
        raise BadRequest(f"the request head is longer than {MAX_HEAD_BYTES} bytes") from None
    first, *lines = head[:-4].split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not TOKEN.fullmatch(words[0]) or not TARGET.fullmatch(words[1]):
        raise BadRequest("the request line is not valid")
    method, target, version = words
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequest("the HTTP version is not supported")
    headers = [parse_header(line) for line in lines]
    if method == b"CONNECT":
        host, port = split_authority(target, None)
        return ProxyRequest(host=host, port=port)
    found = ABSOLUTE.fullmatch(target)
    if found is None:
        raise BadRequest("this is a proxy: the request must have an absolute http:// URL, or use CONNECT")
    authority, path = found[1], found[2] or b"/"
    host, port = split_authority(authority, 80)
    kept = [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP]
    sent = [
        b"%s %s HTTP/1.1" % (method, path if path.startswith(b"/") else b"/" + path),
        b"Host: " + authority,
        *(b"%s: %s" % header for header in kept),
        b"Connection: close",
    ]
    return ProxyRequest(host=host, port=port, head=b"\r\n".join(sent) + b"\r\n\r\n", body_bytes=body_length(headers))


def parse_header(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not TOKEN.fullmatch(name) or not VALUE.fullmatch(value):
        raise BadRequest("a header is not valid")
    return name, value.strip(b" \t")


def body_length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """The length of the body; None if it is chunked. Raises BadRequest."""
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    codings = [value.lower() for name, value in headers if name.lower() == b"transfer-encoding"]
    if codings:
        if codings != [b"chunked"] or lengths:
            raise BadRequest("the length of the body is not clear")
        return None
    if not lengths:
        return 0
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise BadRequest("Content-Length is not valid")
    return int(lengths[0])


def split_authority(authority: bytes, default_port: int | None) -> tuple[str, int]:
    """Host and port. Raises BadRequest. The host is checked by `proxy.read_host`."""
    text = authority.decode("latin-1")
    if "@" in text:
        raise BadRequest("the URL contains a user name")
    found = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?", text)
    if found is None or not found[1]:
        raise BadRequest("the host of the request is not valid")
    port = default_port if found[2] is None else int(found[2])
    if port is None or not 0 < port < 65536:
        raise BadRequest("the port of the request is missing or not valid")
    return found[1], port


async def read_body(reader: asyncio.StreamReader, length: int | None) -> AsyncIterator[bytes]:
    """The body of a request, and nothing after it. Raises BadRequest."""
    if length is None:
        async for part in read_chunked(reader):
            yield part
        return
    while length:
        data = await reader.read(min(length, READ_BYTES))
        if not data:
            raise BadRequest("the body of the request is incomplete")
        length -= len(data)
        yield data


async def read_chunked(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """A chunked body, as it stands but without trailers and extensions. Raises BadRequest."""
    try:
        while True:
            line = await reader.readuntil(b"\r\n")
            if len(line) > MAX_CHUNK_LINE_BYTES or not re.fullmatch(rb"[0-9a-fA-F]{1,15}(;[\x20-\x7e]*)?\r\n", line):
                raise BadRequest("a chunk of the request is not valid")
            size = int(line.partition(b";")[0], 16)
            if size == 0:
                break
            yield b"%x\r\n" % size
            async for part in read_body(reader, size):
                yield part
            if await reader.readexactly(2) != b"\r\n":
                raise BadRequest("a chunk of the request is not valid")
            yield b"\r\n"
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass  # a trailer
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise BadRequest("the body of the request is incomplete") from None
    yield b"0\r\n\r\n"


async def read_socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> ProxyRequest:
    """Do the SOCKS5 handshake up to the target. Raises BadRequest."""
    try:
        methods = await reader.readexactly((await reader.readexactly(2))[1])
        writer.write(bytes([SOCKS_VERSION, NO_LOGIN if NO_LOGIN in methods else NO_METHOD]))
        if NO_LOGIN not in methods:
            raise BadRequest("the SOCKS5 client does not offer to connect without a password")
        await writer.drain()
        version, command, _, kind = await reader.readexactly(4)
        if version != SOCKS_VERSION or command != SOCKS_CONNECT:
            writer.write(socks_reply(SOCKS_NO_COMMAND))
            raise BadRequest("only the SOCKS5 command CONNECT is supported; there is no UDP")
        host = await read_socks_host(reader, kind)
        port = int.from_bytes(await reader.readexactly(2), "big")
    except asyncio.IncompleteReadError:
        raise BadRequest("the SOCKS5 request is incomplete") from None
    if host is None or not port:
        writer.write(socks_reply(SOCKS_NO_ADDRESS))
        raise BadRequest("the address of the SOCKS5 request is not valid")
    return ProxyRequest(host=host, port=port)


async def read_socks_host(reader: asyncio.StreamReader, kind: int) -> str | None:
    if kind == NAME:
        return (await reader.readexactly((await reader.readexactly(1))[0])).decode("latin-1")
    if kind == IPV4:
        return socket.inet_ntop(socket.AF_INET, await reader.readexactly(4))
    if kind == IPV6:
        return socket.inet_ntop(socket.AF_INET6, await reader.readexactly(16))
    return None


def socks_reply(code: int) -> bytes:
    return bytes([SOCKS_VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0])


def http_error(status: str, text: str) -> bytes:
    body = text.encode("ascii", "replace") + b"\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("ascii") + body


class Opening(Struct, frozen=True):
    """What a client sent first."""

    data: bytes
    name: str | None = None
    """The name that a TLS client asks for; None if it asks for none, or does not speak TLS."""


class Fields:
    """Reads the fields of a message one after the other. Raises BadRequest at its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __bool__(self) -> bool:
        return bool(self._data)

    def take(self, count: int) -> bytes:
        if count > len(self._data):
            raise BadRequest("the TLS handshake is not valid")
        found, self._data = self._data[:count], self._data[count:]
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def block(self, size: int) -> bytes:
        """A field that starts with its length."""
        return self.take(self.number(size))


async def read_opening(reader: asyncio.StreamReader) -> Opening:
    """Read what decides whether a client speaks TLS, and then its first message. Raises BadRequest."""
    data = bytearray(await reader.read(1))
    if not data or data[0] not in RECORD_TYPES:
        return Opening(bytes(data))
    data += await reader.read(1)
    if len(data) < 2 or data[1] != MAJOR_VERSION:
        return Opening(bytes(data))
    hello = bytearray()
    expected = 4
    try:
        while len(hello) < expected:
            data += await reader.readexactly(5 if hello else 3)
            kind, size = data[-5], int.from_bytes(data[-2:], "big")
            if kind != HANDSHAKE or not 0 < size <= MAX_RECORD_BYTES:
                raise BadRequest("a TLS connection does not start with a handshake")
            payload = await reader.readexactly(size)
            data += payload
            hello += payload
            if len(hello) >= 4:
                expected = 4 + int.from_bytes(hello[1:4], "big")
            if expected > MAX_HELLO_BYTES or hello[0] != CLIENT_HELLO:
                raise BadRequest("a TLS connection does not start with a handshake")
    except asyncio.IncompleteReadError:
        raise BadRequest("the TLS handshake is incomplete") from None
    return Opening(bytes(data), read_name(Fields(bytes(hello[4:expected]))))


def read_name(fields: Fields) -> str | None:
    """The name in a ClientHello. Raises BadRequest."""
    fields.take(2 + 32)  # the version and random bytes
    for size in (1, 2, 1):  # the session, ciphers and compression
        fields.block(size)
    extensions = Fields(fields.block(2) if fields else b"")
    found: list[str] = []
    while extensions:
        kind, content = extensions.number(2), Fields(extensions.block(2))
        if kind != SERVER_NAME:
            continue
        names = Fields(content.block(2))
        while names:
            if names.number(1) != HOST_NAME:
                raise BadRequest("the TLS handshake has a name of an unknown kind")
            found.append(names.block(2).decode("latin-1"))
    if len(found) > 1:
        raise BadRequest("the TLS handshake has several names")
    return found[0] if found else None
