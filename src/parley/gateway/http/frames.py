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

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from starlette.websockets import WebSocket
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from parley.gateway.http.auth import ADMITTED, PEER, Admitted
from parley.gateway.refusal import Refusal, close_code
from parley.gateway.subscriber import LineBatch, Numbered

if TYPE_CHECKING:
    from websockets.frames import Frame
    from websockets.http11 import Request

EXTENSION = "parley.frames"
FINAL, TEXT, CONTINUED = 0x80, 0x01, 0x00
"""The first byte of a frame: whether it is the last one of its message, and whether it is the first."""
PART_BYTES = 64 * 1024
"""How much of a long line is in a frame, and how much is written at a time."""
TOKEN_BYTES = 4096
"""The longest frame before the token was accepted."""
MOST_PARTS = 4096
"""Of how many frames a message may consist: empty ones cost memory, too."""
TOKEN_PARTS = 16
"""Of how many before the token was accepted, and how many messages may wait then."""
TOKEN_TOTAL_BYTES = 4 * TOKEN_BYTES
"""How much may come before the token was accepted."""
REASON_BYTES = 120
END_SECONDS = 1.0
"""How long a client has to read why its connection ends."""


class LineSocket(Protocol):
    """Takes the lines of a session for one client."""

    @property
    def is_writable(self) -> bool: ...

    def attached(self, cursor: int) -> None:
        """The client gets the lines after a number."""

    def write_now(self, batch: LineBatch, *, numbered: bool) -> None: ...

    async def write_lines(self, lines: list[Numbered], *, numbered: bool) -> None:
        """Raises ClientDisconnected."""


def find_line_socket(socket: WebSocket) -> LineSocket:
    """The other side of a connection that the server has accepted."""
    found: LineSocket = socket.scope["extensions"][EXTENSION]["socket"]
    return found


class FrameSocket(WebSocketsSansIOProtocol):
    """A WebSocket of the server."""

    _release: Callable[[], None] | None = None
    """Called when the connection has ended, if its token was accepted."""
    _held_bytes = 0
    """What counts as held by the token: a message that is not complete, or was not taken."""

    send_seconds = 60.0
    """How long the client may take to read a part."""
    _pong = b""
    """The answer to the last ping, until the client reads."""
    _early_bytes = 0
    """What has come after the head and before the token."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][EXTENSION] = {"socket": self}
            self.scope[PEER] = self  # type: ignore[literal-required]

    def admit(self, line_bytes: int, release: Callable[[], None]) -> None:
        self.conn.max_message_size = line_bytes
        self._release = release

    @property
    def _admitted(self) -> Admitted:
        found: Admitted = self.scope[ADMITTED]  # type: ignore[literal-required]
        return found

    def end(self, code: str, reason: str) -> None:
        if self.transport.is_closing():
            return
        if not (self.handshake_complete and self.is_writable):  # what the client does not read would wait for it
            self.transport.abort()
            return
        self.conn.send_close(close_code(code), shorten_reason(code, reason))
        self.close_sent = True
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": close_code(code)})
        self.transport.close()
        self.loop.call_later(END_SECONDS, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._release is not None:
            self._held_bytes += len(data)
            try:
                self._admitted.use.hold(self._admitted.principal, len(data))
            except Refusal as refusal:
                self.end(refusal.code, str(refusal))
                return
        elif self.handshake_initiated:
            self._early_bytes += len(data)
            if self._early_bytes > TOKEN_TOTAL_BYTES:  # before the parser makes many small frames of it
                self.end("too_large", f"more than {TOKEN_TOTAL_BYTES} bytes came before the token")
                return
        super().data_received(data)

    def send_receive_event_to_app(self) -> None:
        if self._release is None and self.queue.qsize() >= TOKEN_PARTS:
            self.end("too_large", f"more than {TOKEN_PARTS} messages came before the token")
        if not self.transport.is_closing():
            super().send_receive_event_to_app()

    async def receive(self) -> Any:
        message = await super().receive()
        if self._release is not None and self.queue.empty():
            self._keep_bytes(len(self.conn.reader.buffer))
        return message

    def _keep_bytes(self, count: int) -> None:
        """Only so many of the bytes that were received are still here."""
        self._admitted.use.release(self._held_bytes - count)
        self._held_bytes = count

    def handle_cont(self, event: Frame) -> None:
        most = TOKEN_PARTS if self._release is None else MOST_PARTS
        if len(self.frames) >= most:
            self.end("too_large", f"a message has more than {most} parts")
        if not self.transport.is_closing():
            super().handle_cont(event)

    def handle_ping(self) -> None:
        """Only the last ping is answered of a client that does not read: the others would wait for it."""
        self._pong = b"".join(self.conn.data_to_send()[-1:])
        if self.writable.is_set():
            self._send_pong()

    def _send_pong(self) -> None:
        pong, self._pong = self._pong, b""
        if pong and not self.transport.is_closing():
            self.transport.write(pong)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.loop.call_later(END_SECONDS, self.transport.abort)

    # Older versions of uvicorn do not know whether the client keeps up.

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()
        self._send_pong()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.writable.set()
        self.conn.reader.discard()  # at once, and not when the garbage is collected
        self.frames.clear()
        if self._release is not None:
            self._keep_bytes(0)
            self._release()

    @property
    def is_writable(self) -> bool:
        return self.writable.is_set() and not (self.close_sent or self.transport.is_closing())

    def attached(self, cursor: int) -> None:
        """Clients do not need to know."""

    def write_now(self, batch: LineBatch, *, numbered: bool) -> None:
        self.transport.write(batch.encode(encode_numbered if numbered else encode_plain))

    async def write_lines(self, lines: list[Numbered], *, numbered: bool) -> None:
        """Raises ClientDisconnected."""
        for part in split_lines(lines):
            if len(part) > 1 or len(part[0][1]) <= PART_BYTES:
                await self._write(encode_numbered(part) if numbered else encode_plain(part))
            else:
                [(number, line)] = part
                await self.write_message(line, encode_prefix(number) if numbered else b"", b"\n")

    async def write_message(self, text: bytes, prefix: bytes = b"", suffix: bytes = b"") -> None:
        """Write a text message, of which only a part waits here at a time. Raises ClientDisconnected."""
        opcode, last = TEXT, max(len(text) - 1, 0) // PART_BYTES
        for at in range(last + 1):
            part = text[at * PART_BYTES : (at + 1) * PART_BYTES]
            data = b"".join((b"" if at else prefix, part, suffix if at == last else b""))
            await self._write(encode_head(len(data), opcode | (FINAL if at == last else 0)) + data)
            opcode = CONTINUED

    async def _write(self, data: bytes) -> None:
        """Raises ClientDisconnected."""
        if not self.writable.is_set():
            try:
                async with asyncio.timeout(self.send_seconds):
                    await self.writable.wait()
            except TimeoutError:
                self.transport.abort()
        if not self.is_writable:
            raise ClientDisconnected
        self.transport.write(data)


def shorten_reason(code: str, reason: str) -> str:
    """Why a connection is closed. A close frame has room for 123 bytes."""
    return f"{code}: {reason}".encode()[:REASON_BYTES].decode(errors="ignore")


def encode_numbered(lines: list[Numbered]) -> bytes:
    """A frame for each line, with its number: `N<TAB>LINE<LF>`."""
    parts: list[bytes] = []
    for number, line in lines:
        prefix = encode_prefix(number)
        parts += (encode_head(len(prefix) + len(line) + 1), prefix, line, b"\n")
    return b"".join(parts)


def encode_prefix(number: int | None) -> bytes:
    return b"%d\t" % number if number else b"\t"


def encode_plain(lines: list[Numbered]) -> bytes:
    """A frame for each line: `LINE<LF>`."""
    parts: list[bytes] = []
    for _, line in lines:
        parts += (encode_head(len(line) + 1), line, b"\n")
    return b"".join(parts)


def encode_head(size: int, first: int = FINAL | TEXT) -> bytes:
    """The head of a text frame that a server sends."""
    if size < 126:
        return bytes((first, size))
    if size < 1 << 16:
        return bytes((first, 126, size >> 8, size & 255))
    return bytes((first, 127)) + size.to_bytes(8, "big")


def split_lines(lines: list[Numbered]) -> Iterator[list[Numbered]]:
    """Parts of limited size, so that a slow client does not have everything in memory twice. A long line is one."""
    part: list[Numbered] = []
    size = 0
    for one in lines:
        if part and size + len(one[1]) > PART_BYTES:
            yield part
            part, size = [], 0
        part.append(one)
        size += len(one[1])
    if part:
        yield part
