"""Requests and replies: JSON bodies, parameters of URLs, headers, and replies at the pace of their client.

Nothing that the API sends may run, be framed, be guessed at or be kept by a browser (`ReplyHeaders`). A proxy may serve
the gateway under a path of its own (`PathPrefix`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import MutableHeaders, QueryParams
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley.gateway.http.auth import ADMITTED, PEER, Admitted, Gate
from parley.gateway.http.frames import PART_BYTES
from parley.gateway.live_session import LiveSession
from parley.gateway.refusal import Refusal, error_body, status_of
from parley.gateway.security.access import Principal
from parley.gateway.security.quotas import Peer, TokenUse, Unsent
from parley.protocol.base import Json

BODY_BYTES = 64 * 1024 * 1024
"""The longest body of a request that a gateway elsewhere passes on."""
BODY_SECONDS = 60
"""How long the body of a request may take to arrive."""

T = TypeVar("T")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""A route that sets one of them keeps its own."""
LARGEST = 2**53 - 1
"""The largest number that JavaScript knows exactly."""
PREFIX = "x-forwarded-prefix"
"""The header by which a proxy tells the path that it has removed."""
PREFIX_PATH = re.compile(r"(?:/[\w.~-]+)*", re.ASCII)


class PacedReplies:
    """The middleware that sends replies in parts, as fast as their clients read them.

    A whole reply counts for its token while a part of it waits. What event streams hold is counted where it is made.
    """

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer: Peer | None = scope.get(PEER)
        if scope["type"] != "http" or peer is None:  # a gateway elsewhere does it
            await self._app(scope, receive, send)
            return
        head: Message | None = None

        async def send_part(message: Message) -> None:
            try:
                async with asyncio.timeout(self._gate.limits.send_seconds):
                    await send(message)
            except TimeoutError:
                peer.end("timed_out", "the client does not read the reply")

        async def send_body(body: bytes, has_more: bool) -> None:
            for start in range(0, len(body) - PART_BYTES, PART_BYTES):
                part = body[start : start + PART_BYTES]
                await send_part({"type": "http.response.body", "body": part, "more_body": True})
            rest = body[(len(body) - 1) // PART_BYTES * PART_BYTES :] if body else b""
            await send_part({"type": "http.response.body", "body": rest, "more_body": has_more})

        async def send_paced(message: Message) -> None:
            nonlocal head
            if message["type"] == "http.response.start":
                head = message
                return
            start, head = head, None
            body, has_more = message.get("body", b""), message.get("more_body", False)
            admitted: Admitted | None = scope.get(ADMITTED)
            unsent = Unsent(TokenUse() if admitted is None else admitted.use)
            if start is not None and not has_more:
                if unsent.is_refused(len(body)):
                    refusal = Refusal("quota_exceeded", "too much of what was sent to this token has not been read")
                    await error_response(refusal)(scope, receive, send)
                    return
                unsent.set(len(body))
            try:
                if start is not None:
                    await send_part(start)
                await send_body(body, has_more)
            finally:
                unsent.set(0)

        await self._app(scope, receive, send_paced)


def json_response(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def ask_engine(session: LiveSession, principal: Principal, request: Json) -> Any:
    """The response to a control request. Raises Refusal."""
    reply = await session.request(principal, request)
    response = msgspec.json.decode(reply)["response"]
    if response["subtype"] == "error":
        raise Refusal(str(response.get("error_code") or "failed"), str(response.get("error")))
    return response.get("response")


async def read_as(request: Request, type: type[T], code: str = "invalid_body") -> T:
    """The body of a request as an object of a class. Raises Refusal, with `code` if it does not fit."""
    try:
        return msgspec.convert(await read_body(request), type)
    except msgspec.ValidationError as exc:
        raise Refusal(code, str(exc)) from None


async def read_body(request: Request) -> Json:
    """The JSON object of a request; empty without a body. Raises Refusal."""
    body = await receive_body(request)
    if not body:
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Refusal("invalid_body", f"the request body is not JSON: {exc}") from None
    if not isinstance(found, dict):
        raise Refusal("invalid_body", "the request body must be a JSON object")
    return found


async def receive_body(request: Request) -> bytearray:
    """Raises Refusal."""
    body = bytearray()
    admitted: Admitted | None = request.scope.get(ADMITTED)
    most = BODY_BYTES if admitted is None else admitted.line_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise Refusal("too_large", f"the request body is longer than {most} bytes")
    held = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                if admitted is not None:
                    held += len(chunk)
                    admitted.use.hold(admitted.principal, len(chunk))
                body += chunk
                if len(body) > most:
                    raise Refusal("too_large", f"the request body is longer than {most} bytes")
    except ClientDisconnect:
        raise Refusal("invalid_body", "the client disconnected before the end of the body") from None
    except TimeoutError:
        raise Refusal("timed_out", f"the request body did not arrive within {BODY_SECONDS} seconds") from None
    finally:
        if admitted is not None:
            admitted.use.release(held)
    if admitted is not None:  # the body may have come long after the head
        admitted.check_current()
    return body


def error_response(refusal: Refusal, headers: Mapping[str, str] | None = None) -> Response:
    status = status_of(refusal.code)
    if status == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    return Response(error_body(refusal.code, str(refusal)), status, headers, "application/json")


class ReplyHeaders:
    """The middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


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
