"""The name that a TLS client asks for. In a tunnel, a server with many names answers for any of them.

Only the first message of the client is read, which is not encrypted. It is passed on as it came. What follows is not
seen: neither the `Host` header of a request nor a name that the client encrypts (ECH).
"""

from __future__ import annotations

import asyncio

from parley.protocol.base import Struct
from parley.workspace.sandbox.egress.wire import BadRequest

HANDSHAKE, CLIENT_HELLO, SERVER_NAME, HOST_NAME = 22, 1, 0, 0
RECORD_TYPES = range(20, 25)
MAJOR_VERSION = 3
MAX_RECORD_BYTES = 1 << 14
MAX_HELLO_BYTES = 1 << 16
REFUSAL = bytes([21, 3, 3, 0, 2, 2, 112])
"""A fatal alert: unrecognized name."""


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
