"""How much a connection may send before its token, and how many there may be.

Until a client has sent a token, its connection has a few kB for a head or a frame, and little time. A flood of such
connections cannot keep others out: those of the address that has the most of them make room, the oldest first. After
the token, the limits of the token apply (`security/quotas.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from parley.gateway.http.auth import PEER, Gate
from parley.gateway.http.errors import error_body, status_of
from parley.gateway.http.frames import END_SECONDS, FrameSocket
from parley.gateway.security.quotas import Peer


class Anonymous:
    """The connections that have sent no token, oldest first."""

    def __init__(self) -> None:
        self._peers: dict[asyncio.BaseTransport, tuple[str, Peer]] = {}
        self._counts: Counter[str] = Counter()
        """How many there are of each address."""

    def add(self, transport: asyncio.BaseTransport, peer: Peer, most: int) -> None:
        """Add a connection, or its WebSocket in its place; one of the others may have to end."""
        name = transport.get_extra_info("peername")
        address = str(name[0]) if isinstance(name, tuple) else ""
        if transport not in self._peers:
            self._counts[address] += 1
        self._peers[transport] = (address, peer)
        if len(self._peers) > most:
            crowded = max(self._counts, key=self._counts.__getitem__)
            oldest = next(one for one, (from_address, _) in self._peers.items() if from_address == crowded)
            ended = self._peers[oldest][1]
            self.remove(oldest)
            ended.end("too_many_connections", "others wait, and no token came")

    def remove(self, transport: asyncio.BaseTransport) -> None:
        if transport in self._peers:
            address, _ = self._peers.pop(transport)
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]


def limit_connections(gate: Gate) -> tuple[type[HttpToolsProtocol], type[FrameSocket]]:
    """The protocol classes of a server, for HTTP and for WebSockets."""

    anonymous = Anonymous()

    class LimitedProtocol(HttpToolsProtocol):
        _deadline: asyncio.TimerHandle | None = None
        _head_bytes = 0
        """The length of the URL and the headers that are complete."""
        _unparsed_bytes = 0
        """How much has come of a head that is not complete."""
        _is_in_head = True

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._release: Callable[[], None] = ignore
            if len(self.connections) > gate.limits.connections:
                self.end("too_many_connections", "the server has too many connections; try again later")
                return
            self._start_deadline()
            anonymous.add(transport, self, gate.limits.waiting)

        def data_received(self, data: bytes) -> None:
            was_in_head = self._is_in_head
            super().data_received(data)
            if was_in_head and self._is_in_head:  # the parser keeps a header until it is complete
                self._unparsed_bytes += len(data)
                self._count_head(0)

        def on_message_begin(self) -> None:
            self._start_deadline()
            self._is_in_head, self._head_bytes, self._unparsed_bytes = True, 0, 0
            super().on_message_begin()
            self.scope[PEER] = self  # type: ignore[literal-required]

        def on_url(self, url: bytes) -> None:
            self._count_head(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            """Also called for what comes after a body in chunks."""
            self._count_head(len(name) + len(value))
            super().on_header(name, value)

        def _count_head(self, count: int) -> None:
            self._head_bytes += count
            if max(self._head_bytes, self._unparsed_bytes) > gate.limits.head_bytes:
                self.end("too_large", f"the head of the request is longer than {gate.limits.head_bytes} bytes")

        def on_headers_complete(self) -> None:
            self._is_in_head = False
            self._end_deadline()
            if not self.transport.is_closing():
                super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if not self.transport.is_closing():
                super().on_body(body)

        def on_message_complete(self) -> None:
            if not self.transport.is_closing():
                self._end_deadline()
                super().on_message_complete()

        def on_response_complete(self) -> None:
            self._release()
            if self.cycle.more_body:  # the rest is not read, and must not keep the connection open
                self._start_deadline()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            anonymous.remove(self.transport)
            self._release()
            self._end_deadline()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            if not self.transport.is_closing():
                super().send_400_response(msg)

        def _start_deadline(self) -> None:
            self._end_deadline()
            seconds = gate.limits.head_seconds
            text = f"the request did not arrive within {seconds} seconds"
            self._deadline = self.loop.call_later(seconds, self.end, "timed_out", text)

        def _end_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def admit(self, line_bytes: int, release: Callable[[], None]) -> None:
            anonymous.remove(self.transport)
            self._release = release

        def end(self, code: str, reason: str) -> None:
            if self.transport.is_closing():
                return
            anonymous.remove(self.transport)
            if self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started:
                self.transport.abort()  # a client that does not read would keep the rest of the reply here
                return
            body = error_body(code, reason)
            head = f"HTTP/1.1 {status_of(code)} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
            self.transport.close()
            self.loop.call_later(END_SECONDS, self.transport.abort)

    class LimitedSocket(FrameSocket):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            anonymous.add(transport, self, gate.limits.waiting)

        def admit(self, line_bytes: int, release: Callable[[], None]) -> None:
            anonymous.remove(self.transport)
            super().admit(line_bytes, release)

        def connection_lost(self, exc: Exception | None) -> None:
            anonymous.remove(self.transport)
            super().connection_lost(exc)

    return LimitedProtocol, LimitedSocket


def ignore() -> None:
    """A connection without a token holds nothing."""
