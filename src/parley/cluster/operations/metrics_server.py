"""A small HTTP server of a host, for probes and for Prometheus: `/healthz`, `/readyz`, `/metrics`.

A host has no other listener. The pages contain figures only, no names of sessions or tenants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from parley.errors import UsageError

HEAD_BYTES = 8192
HEAD_SECONDS = 5.0
CLOSE_SECONDS = 2.0
TEXT = "text/plain; version=0.0.4"


class MetricsServer:
    """Answers GET requests. `render` gives the metrics; `is_ready` tells whether the host owns shards or could."""

    def __init__(self, render: Callable[[], bytes], is_ready: Callable[[], bool]) -> None:
        self._render = render
        self._is_ready = is_ready
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises UsageError."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES)
        except OSError as exc:
            raise UsageError(f"option '--metrics': cannot listen on {host}:{port}: {exc.strerror}") from None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            status, body = self._answer(head.split(b"\r\n", 1)[0])
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await writer.wait_closed()

    def _answer(self, line: bytes) -> tuple[str, bytes]:
        words = line.split()
        if len(words) != 3 or words[0] != b"GET":
            return "405 Method Not Allowed", b"only GET\n"
        match words[1].partition(b"?")[0]:
            case b"/healthz":
                return "200 OK", b"ok\n"
            case b"/readyz":
                return ("200 OK", b"ready\n") if self._is_ready() else ("503 Service Unavailable", b"not ready\n")
            case b"/metrics":
                return "200 OK", self._render()
        return "404 Not Found", b"there is /healthz, /readyz and /metrics\n"
