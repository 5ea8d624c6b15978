"""How much a connection may send before its token, and how many there may be.

Until a client has sent a token, its connection has a few kB for a head or a frame, and little time. A flood of such
connections cannot keep others out: those of the address that has the most of them make room, the oldest first. After
the token, the limits of the token apply (`security/quotas.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from parley.gateway.http.auth import PEER, Gate
from parley.gateway.http.frames import END_SECONDS, FrameSocket
from parley.gateway.refusal import error_body, status_of
from parley.gateway.security.quotas import Peer

MOST_HEADERS = 100
HEADER_MARKS = len(": \r\n")
MOST_PIPELINED = 10
"""How many requests of a connection may wait for their replies."""


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
        _release: Callable[[], None] | None = None
        """Called once, when a request whose token was accepted has its reply, or the connection has ended."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._unanswered: deque[RequestResponseCycle] = deque()
            """The requests without a complete reply, in their order. uvicorn knows only the last one."""
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

        # The parser continues to the end of what was read, also when the connection has been ended.

        def on_message_begin(self) -> None:
            if not self.transport.is_closing():
                self._start_deadline()
            self._is_in_head, self._head_bytes, self._unparsed_bytes = True, 0, 0
            super().on_message_begin()
            self.scope[PEER] = self  # type: ignore[literal-required]

        def on_url(self, url: bytes) -> None:
            self._count_head(len(url))
            if not self.transport.is_closing():
                super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            """Also called for what comes after a body in chunks."""
            self._count_head(len(name) + len(value) + HEADER_MARKS)
            if len(self.headers) >= MOST_HEADERS:
                self.end("too_large", f"the request has more than {MOST_HEADERS} headers")
            if not self.transport.is_closing():
                super().on_header(name, value)

        def _count_head(self, count: int) -> None:
            self._head_bytes += count
            if max(self._head_bytes, self._unparsed_bytes) > gate.limits.head_bytes:
                self.end("too_large", f"the head of the request is longer than {gate.limits.head_bytes} bytes")

        def on_headers_complete(self) -> None:
            self._is_in_head = False
            self._end_deadline()
            if len(self._unanswered) > MOST_PIPELINED:
                self.end(
                    "rate_limited", f"more than {MOST_PIPELINED} requests wait for their replies on one connection"
                )
            if self.transport.is_closing():
                return
            before = self.cycle
            super().on_headers_complete()
            if self.cycle is not before:
                self._unanswered.append(self.cycle)

        def handle_websocket_upgrade(self) -> None:
            if self._unanswered:  # they would not learn when the connection ends
                self.end("invalid_line", "a connection cannot become a WebSocket before all its requests are answered")
            else:
                super().handle_websocket_upgrade()

        def on_body(self, body: bytes) -> None:
            if not self.transport.is_closing():
                super().on_body(body)

        def on_message_complete(self) -> None:
            if not self.transport.is_closing():
                self._end_deadline()
                super().on_message_complete()

        def on_response_complete(self) -> None:
            self._release_token()
            if self._unanswered:  # not after the end of the connection
                answered = self._unanswered.popleft()
                answered.body = bytearray()  # what came with the head and was not read
                if answered.more_body:  # the rest is not read, and must not keep the connection open
                    self._start_deadline()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            anonymous.remove(self.transport)
            self._release_token()
            self._end_deadline()
            super().connection_lost(exc)
            for cycle in self._unanswered:
                cycle.disconnected = True
                cycle.message_event.set()
            self._unanswered.clear()
            self.pipeline.clear()
            # The request refers to the connection: without these, its memory stays until the garbage is collected.
            self.cycle = self.scope = self.headers = None  # type: ignore[assignment]

        def _release_token(self) -> None:
            if self._release is not None:
                release, self._release = self._release, None
                release()

        def send_400_response(self, msg: str) -> None:
            if not self.transport.is_closing():
                super().send_400_response(msg)

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            # What the client does not read would wait for it.
            self.loop.call_later(gate.limits.send_seconds, self.transport.abort)

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
            if self._unanswered and self._unanswered[0].response_started:
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
            self.send_seconds = gate.limits.send_seconds
            anonymous.add(transport, self, gate.limits.waiting)

        def admit(self, line_bytes: int, release: Callable[[], None]) -> None:
            anonymous.remove(self.transport)
            super().admit(line_bytes, release)

        def connection_lost(self, exc: Exception | None) -> None:
            anonymous.remove(self.transport)
            super().connection_lost(exc)

    return LimitedProtocol, LimitedSocket
