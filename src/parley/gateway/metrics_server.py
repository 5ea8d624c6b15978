"""A small HTTP server for probes and for Prometheus: `/healthz`, `/readyz`, `/metrics`.

A host of a cluster has no other listener. The pages contain figures only, no names of sessions or tenants. A gateway
runs one in a thread of its own (`health_checks`), so that a probe does not wait for what sessions do.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from parley.errors import UsageError

HEAD_BYTES = 8192
HEAD_SECONDS = 5.0
CLOSE_SECONDS = 2.0
TEXT = "text/plain; version=0.0.4"
BEAT_SECONDS = 1.0
STUCK_SECONDS = 60.0
"""If the loop of the server runs nothing for so long, the server does not come back by itself."""


class MetricsServer:
    """Answers GET requests. `render` gives the metrics; `is_ready` tells whether the process takes new work."""

    def __init__(
        self,
        render: Callable[[], bytes] | None,
        is_ready: Callable[[], bool],
        is_alive: Callable[[], bool] = lambda: True,
        option: str = "--metrics",
    ) -> None:
        self._render = render
        self._is_ready = is_ready
        self._is_alive = is_alive
        self._option = option
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises UsageError."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES)
        except OSError as exc:
            raise UsageError(f"option '{self._option}': cannot listen on {host}:{port}: {exc.strerror}") from None
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
                return ("200 OK", b"ok\n") if self._is_alive() else ("503 Service Unavailable", b"stuck\n")
            case b"/readyz":
                return ("200 OK", b"ready\n") if self._is_ready() else ("503 Service Unavailable", b"not ready\n")
            case b"/metrics" if self._render is not None:
                return "200 OK", self._render()
        return "404 Not Found", b"there is /healthz, /readyz and, on a host, /metrics\n"


@asynccontextmanager
async def health_checks(host: str, port: int, is_ready: Callable[[], bool]) -> AsyncIterator[None]:
    """Answer probes in a thread with a loop of its own. Raises UsageError."""
    last_beat = time.monotonic()

    async def beat() -> None:
        nonlocal last_beat
        while True:
            last_beat = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    own_loop = asyncio.new_event_loop()
    server = MetricsServer(None, is_ready, lambda: time.monotonic() - last_beat < STUCK_SECONDS, "--health")
    thread = threading.Thread(target=own_loop.run_forever, name="health", daemon=True)
    thread.start()
    beating = asyncio.create_task(beat())
    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(server.start(host, port), own_loop))
        yield
    finally:
        beating.cancel()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(server.close(), own_loop))
        own_loop.call_soon_threadsafe(own_loop.stop)
        thread.join()
        own_loop.close()
