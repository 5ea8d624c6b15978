"""What the egress proxy reads from commands: HTTP requests to a proxy, and SOCKS5.

Only one spelling of everything is accepted. A request that two programs could read differently (a bare line feed, a
folded header, two lengths) is refused, because the server might see another request than the one that was judged.

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
    return parse_head(head)


def parse_head(head: bytes) -> ProxyRequest:
    """Parse a request head with its empty line. Raises BadRequest."""
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
    """Host and port. Raises BadRequest. The host is checked by `policy.read_host`."""
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
