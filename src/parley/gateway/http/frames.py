"""WebSocket frames that are encoded once and written to many sockets.

uvicorn encodes and writes every message on its own. A session sends the same lines to all its viewers, and often many
at once. So our protocol class also takes bytes that are whole frames:

    frames = find_line_socket(socket)
    frames.is_writable                      whether the client keeps up
    frames.write_now(batch, ...)            sends at once, if it does
    await frames.write_lines(lines, ...)    sends when the client has caught up

In a cluster, the client is connected to a gateway elsewhere, and the lines are sent to that (`cluster/bridge/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from starlette.websockets import WebSocket
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from parley.gateway.subscriber import Batch, Numbered

if TYPE_CHECKING:
    from websockets.http11 import Request

EXTENSION = "parley.frames"
TEXT = 0x81
"""The first byte of a text message in one frame."""


class LineSocket(Protocol):
    """Takes the lines of a session for one client."""

    @property
    def is_writable(self) -> bool: ...

    def attached(self, cursor: int) -> None:
        """The client gets the lines after a number."""

    def write_now(self, batch: Batch, *, numbered: bool) -> None: ...

    async def write_lines(self, lines: list[Numbered], *, numbered: bool) -> None:
        """Raises ClientDisconnected."""


def find_line_socket(socket: WebSocket) -> LineSocket:
    """The other side of a connection that the server has accepted."""
    found: LineSocket = socket.scope["extensions"][EXTENSION]["socket"]
    return found


class FrameSocket(WebSocketsSansIOProtocol):
    """A WebSocket of the server."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        self.scope["extensions"][EXTENSION] = {"socket": self}

    # Older versions of uvicorn do not know whether the client keeps up.

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.writable.set()

    @property
    def is_writable(self) -> bool:
        return self.writable.is_set() and not (self.close_sent or self.transport.is_closing())

    def attached(self, cursor: int) -> None:
        """Clients do not need to know."""

    def write_now(self, batch: Batch, *, numbered: bool) -> None:
        self.transport.write(batch.encode(encode_numbered if numbered else encode_plain))

    async def write_lines(self, lines: list[Numbered], *, numbered: bool) -> None:
        """Raises ClientDisconnected."""
        await self.writable.wait()
        if not self.is_writable:
            raise ClientDisconnected
        self.transport.write(encode_numbered(lines) if numbered else encode_plain(lines))


def encode_numbered(lines: list[Numbered]) -> bytes:
    """A frame for each line, with its number: `N<TAB>LINE<LF>`."""
    parts: list[bytes] = []
    for number, line in lines:
        prefix = b"%d\t" % number if number else b"\t"
        parts += (encode_head(len(prefix) + len(line) + 1), prefix, line, b"\n")
    return b"".join(parts)


def encode_plain(lines: list[Numbered]) -> bytes:
    """A frame for each line: `LINE<LF>`."""
    parts: list[bytes] = []
    for _, line in lines:
        parts += (encode_head(len(line) + 1), line, b"\n")
    return b"".join(parts)


def encode_head(size: int) -> bytes:
    """The head of a text frame that a server sends."""
    if size < 126:
        return bytes((TEXT, size))
    if size < 1 << 16:
        return bytes((TEXT, 126, size >> 8, size & 255))
    return bytes((TEXT, 127)) + size.to_bytes(8, "big")
