"""What the server says on stderr: lines of text, or with `--log-format json` one JSON object per event.

    {"at": "2026-11-17T08:00:00.123Z", "level": "info", "event": "request", "method": "GET", "path": "/sessions", ...}

Text has what an operator must know. JSON also has every request and connection, and when engines start and end. Neither
contains tokens, bodies, or the query of a URL.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

WHO = "parley.who"
"""The key of an ASGI scope with the name of the token."""
STATUS = {"http.response.start": "status", "websocket.close": "code", "websocket.http.response.start": "status"}
"""The messages that say how a request or a connection ended, and their field."""


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
