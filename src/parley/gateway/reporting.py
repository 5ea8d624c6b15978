"""What operators learn about a server: its log, the audit log, metrics, and health checks.

`ServerLog` writes to stderr: lines of text, or with `--log-format json` one JSON object per event.

    {"at": "2026-11-17T08:00:00.123Z", "level": "info", "event": "request", "method": "GET", "path": "/sessions", ...}

Text has what an operator must know. JSON also has every request and connection, and when engines start and end. Neither
contains tokens, bodies, or the query of a URL. `AuditLog` says who did what, and is complete before it is done; the
text of prompts is not in it. `Metrics` are figures in the format of Prometheus. `MetricsServer` serves them and the
probes `/healthz` and `/readyz`: figures only, no names of sessions or tenants. A gateway runs one in a thread of its
own (`health_checks`), so that a probe does not wait for what sessions do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley.errors import UsageError, explain_os_errors
from parley.gateway.security.access import Principal

WHO = "parley.who"
"""The key of an ASGI scope with the name of the token."""
STATUS = {"http.response.start": "status", "websocket.close": "code", "websocket.http.response.start": "status"}
"""The messages that say how a request or a connection ended, and their field."""
MAX_CHARS = 1000
"""How much of a value that a client has chosen is recorded."""
LAG_SAMPLES = 1000
HELP = {
    "parley_prompts_total": "Prompts accepted.",
    "parley_results_total": "Turns ended, by outcome.",
    "parley_lines_total": "Engine lines stored.",
    "parley_live_lines_total": "Engine lines sent but not stored, such as stream events.",
    "parley_resyncs_total": "How often a client was so slow that its queue was discarded.",
    "parley_questions_total": "Questions asked by sessions.",
    "parley_decisions_total": "Questions decided.",
    "parley_refusals_total": "Requests and lines refused, by error code.",
    "parley_engine_starts_total": "Engines started.",
}
HEAD_BYTES = 8192
HEAD_SECONDS = 5.0
CLOSE_SECONDS = 2.0
TEXT = "text/plain; version=0.0.4"
BEAT_SECONDS = 1.0
STUCK_SECONDS = 60.0
"""If the loop of the server runs nothing for so long, the server does not come back by itself."""


class ServerLog:
    def __init__(self, write: Callable[[str], None], *, is_json: bool = False) -> None:
        """`write` gets a line without its end."""
        self._write = write
        self.is_json = is_json

    def say(self, text: str, event: str, *, level: str = "info", **fields: Any) -> None:
        """Write what an operator must know."""
        if self.is_json:
            self.note(event, level=level, message=text, **fields)
        else:
            self._write(text)

    def warn(self, text: str) -> None:
        self.say(text, "warning", level="warning")

    def note(self, event: str, *, level: str = "info", **fields: Any) -> None:
        """Write what only a program reads."""
        if self.is_json:
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self._write(msgspec.json.encode({"at": at, "level": level, "event": event, **fields}).decode())


class FaultLog(logging.Handler):
    """Notes what libraries report: faults of the server, with their traceback."""

    def __init__(self, log: ServerLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else None
        self._log.note("fault", level=record.levelname.lower(), message=record.getMessage(), traceback=trace)


class RequestLog:
    """The middleware that notes every request and connection."""

    def __init__(self, app: ASGIApp, log: ServerLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._log.is_json or scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        started, outcome = time.monotonic(), None

        async def watch(message: Message) -> None:
            nonlocal outcome
            if (field := STATUS.get(message["type"])) is not None:
                outcome = message.get(field)
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            client = scope.get("client")
            self._log.note(
                "request" if scope["type"] == "http" else "connection",
                method=scope.get("method"),
                path=scope["path"],
                status=outcome,
                seconds=round(time.monotonic() - started, 4),
                who=scope.get(WHO),
                address=client[0] if client else None,
            )


class AuditLog:
    def __init__(self, path: Path) -> None:
        """Raises SessionError."""
        self._path = path
        with explain_os_errors(f"cannot open {path}"):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, act: str, principal: Principal, **details: Any) -> None:
        """Record an act before it has an effect. Raises SessionError."""
        details = {key: value[:MAX_CHARS] if isinstance(value, str) else value for key, value in details.items()}
        line = {"at": time.time(), "who": principal.name, "tenant": principal.tenant, "act": act, **details}
        data = msgspec.json.encode(line) + b"\n"
        with explain_os_errors(f"cannot write {self._path}"):
            if os.write(self._file, data) != len(data):
                raise OSError(None, "the device is full")

    def close(self) -> None:
        os.close(self._file)


Labels = tuple[tuple[str, str], ...]


class Metrics:
    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._lags: deque[float] = deque(maxlen=LAG_SAMPLES)

    def record_lag(self, seconds: float) -> None:
        """How late the event loop was."""
        self._lags.append(seconds)

    def lag(self, share: float) -> float:
        """The lag that this share of the last samples did not exceed, in seconds."""
        ordered = sorted(self._lags)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        self._counts[name, tuple(labels.items())] += amount

    def render(self, gauges: Iterable[tuple[str, str, float]]) -> bytes:
        """The page. `gauges`: names, descriptions and values of what is measured now."""
        lines = []
        for name, help in HELP.items():
            lines += [f"# HELP {name} {help}", f"# TYPE {name} counter"]
            found = {labels: value for (counted, labels), value in self._counts.items() if counted == name}
            lines += [f"{name}{format_labels(labels)} {value}" for labels, value in (found or {(): 0}).items()]
        for name, help, value in gauges:
            lines += [f"# HELP {name} {help}", f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "".join(f"{line}\n" for line in lines).encode()


def format_labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{escape(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


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
        with explain_os_errors(f"option '{self._option}': cannot listen on {host}:{port}", UsageError):
            self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES)
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
