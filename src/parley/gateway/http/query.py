"""The parameters of URLs, and the path that a proxy puts before ours."""

from __future__ import annotations

import re

from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.gateway.refusal import Refusal

LARGEST = 2**53 - 1
"""The largest number that JavaScript knows exactly."""


PREFIX = "x-forwarded-prefix"
"""The header by which a proxy tells the path that it has removed."""
PREFIX_PATH = re.compile(r"(?:/[\w.~-]+)*", re.ASCII)


class PathPrefix:
    """The middleware for a proxy that does not remove its path, or does not tell."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._prefix and scope["type"] in ("http", "websocket"):
            path = scope["path"]
            if path == self._prefix or path.startswith(f"{self._prefix}/"):
                scope["path"] = path[len(self._prefix) :] or "/"
                scope["raw_path"] = scope["path"].encode()
            others = [(name, value) for name, value in scope["headers"] if name != PREFIX.encode()]
            scope["headers"] = [*others, (PREFIX.encode(), self._prefix.encode())]
        await self._app(scope, receive, send)


def read_prefix(connection: HTTPConnection) -> str:
    """The path before ours in the URL that the client has used. It only becomes a part of what that client gets."""
    given = connection.headers.get(PREFIX, "").rstrip("/")
    return given if PREFIX_PATH.fullmatch(given) else ""


def read_number(query: QueryParams, name: str, default: int, most: int = LARGEST, code: str = "invalid_query") -> int:
    """Raises Refusal."""
    given = query.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) <= 16 and int(given) <= most):
        raise Refusal(code, f"{name} must be a number from 0 to {most}, not {given!r:.50}")
    return int(given)


def read_text(query: QueryParams, name: str, most_chars: int = 1000) -> str:
    """Raises Refusal."""
    given = query.get(name, "")
    if len(given) > most_chars:
        raise Refusal("invalid_query", f"{name} is longer than {most_chars} characters")
    return given
