"""How many connections there may be, and how long they may be silent before the first request.

A flood of silent connections cannot keep others out: the oldest of them make room.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from parley.gateway.http.auth import Gate
from parley.gateway.http.errors import error_body, status_of


def limit_connections(gate: Gate) -> type[HttpToolsProtocol]:
    """A protocol class that refuses connections above the limit, and those that do not send a request."""

    waiting: dict[LimitedProtocol, None] = {}
    """The connections that have sent no request yet, oldest first."""

    class LimitedProtocol(HttpToolsProtocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > gate.limits.connections:
                self._refuse("too_many_connections", "the server has too many connections; try again later")
                return
            self._start_deadline()
            waiting[self] = None
            if len(waiting) > gate.limits.waiting:
                next(iter(waiting))._refuse("too_many_connections", "others wait, and no request came")

        def on_message_begin(self) -> None:
            self._start_deadline()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            waiting.pop(self, None)
            self._end_deadline()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.pop(self, None)
            self._end_deadline()
            super().connection_lost(exc)

        def _start_deadline(self) -> None:
            self._end_deadline()
            seconds = gate.limits.head_seconds
            text = f"the request did not arrive within {seconds} seconds"
            self._deadline = self.loop.call_later(seconds, self._refuse, "timed_out", text)

        def _end_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _refuse(self, code: str, text: str) -> None:
            waiting.pop(self, None)
            body = error_body(code, text)
            head = f"HTTP/1.1 {status_of(code)} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
            self.transport.close()

    return LimitedProtocol
