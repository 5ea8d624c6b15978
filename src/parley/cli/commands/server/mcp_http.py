"""The HTTP side of `parley mcp serve`: streamable HTTP, one JSON reply per POST to /mcp.

The token, the host name and the origin are checked as those of the gateway. There are no MCP sessions and no streams:
the revision 2026-07-28 has none, and earlier ones do not require them. So a GET is refused, and a client cancels a call
by closing its request. A `notifications/cancelled` has no effect, because ids of different clients may be equal.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from parley.gateway.http.auth import Gate
from parley.gateway.http.replies import PacedReplies, error_response, receive_body
from parley.gateway.http.routes import refuse_route, report_fault
from parley.gateway.refusal import Refusal
from parley.gateway.reporting import ServerLog
from parley.gateway.security.tokens import Tokens
from parley.gateway.server import (
    QuietServer,
    ServerSettings,
    apply_config,
    describe,
    find_token,
    listen,
    make_config,
    watch_signals,
)
from parley.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from parley.mcp.tool_server import HANDSHAKE_VERSIONS, HEADER_MISMATCH, META_VERSIONS, VERSION_KEY, ToolServer
from parley.protocol.base import Json, encode_json

VERSION_HEADER = "mcp-protocol-version"
MAX_WAITING = 256
"""How many requests are answered at a time."""


async def serve_http(
    settings: ServerSettings, log: ServerLog, make_server: Callable[[Callable[[bytes], None]], ToolServer]
) -> None:
    """Serve until a signal. Raises UsageError."""
    token = find_token(settings, log)
    gate = Gate(Tokens(token), is_open=token is None)
    apply_config(gate, settings)
    listener = listen(settings.address)
    app = Starlette(
        routes=[Route("/mcp", McpEndpoint(gate, make_server).answer, methods=["POST"])],
        exception_handlers={HTTPException: refuse_route, Exception: report_fault},
    )
    server, stop = QuietServer(make_config(settings, gate, PacedReplies(app, gate))), asyncio.Event()
    watch_signals(stop, lambda: None)
    serving, waiting = asyncio.create_task(server.serve(sockets=[listener])), asyncio.create_task(stop.wait())
    try:
        log.say(f"listening on {describe(settings, listener)}", "listening")
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        server.should_exit = True
        await serving
        listener.close()
        if settings.address.path:
            os.unlink(settings.address.path)


class McpEndpoint:
    def __init__(self, gate: Gate, make_server: Callable[[Callable[[bytes], None]], ToolServer]) -> None:
        self._gate = gate
        self._make_server = make_server
        self._waiting = 0

    async def answer(self, request: Request) -> Response:
        try:
            self._gate.require(request)
            body = bytes(await receive_body(request))
        except Refusal as refusal:
            return error_response(refusal)
        message = read_object(body)
        if (mismatch := check_headers(request, message)) is not None:
            return mismatch
        if "method" in message and "id" not in message:
            return Response(status_code=202)
        if self._waiting >= MAX_WAITING:
            return reply_error(message, INTERNAL_ERROR, f"{MAX_WAITING} requests are running already", 503)
        self._waiting += 1
        try:
            reply = await self._run(request, body)
        finally:
            self._waiting -= 1
        if reply is None:
            return Response(status_code=202)  # a response, to which there is none, or a client that is gone
        return Response(reply, find_status(reply, names_version(message)), media_type="application/json")

    async def _run(self, request: Request, body: bytes) -> bytes | None:
        """The reply to a message; None if there is none. A client that is gone cancels what runs."""
        replies: asyncio.Queue[bytes] = asyncio.Queue()
        server = self._make_server(replies.put_nowait)
        server.receive(body)
        if replies.empty() and not server.is_busy:
            return None
        replied, gone = asyncio.ensure_future(replies.get()), asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait([replied, gone], return_when=asyncio.FIRST_COMPLETED)
            return replied.result() if replied.done() else None
        finally:
            replied.cancel()
            gone.cancel()
            await server.close()


def read_object(body: bytes) -> Json:
    """The message of a body; empty if it is malformed, which the server answers."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_meta(message: Json) -> tuple[Json, Json]:
    """The parameters of a message, and what `_meta` they have."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    return params, meta if isinstance(meta, dict) else {}


def names_version(message: Json) -> bool:
    return VERSION_KEY in read_meta(message)[1]


def check_headers(request: Request, message: Json) -> Response | None:
    """The reply to a request whose headers are not those of its body; None if they are."""
    version = request.headers.get(VERSION_HEADER)
    params, meta = read_meta(message)
    if VERSION_KEY not in meta:
        if version in META_VERSIONS and "id" in message:
            return reply_error(message, INVALID_PARAMS, f"_meta: {VERSION_KEY} is missing", 400)
        if version is not None and version not in (*HANDSHAKE_VERSIONS, *META_VERSIONS):
            return reply_error(message, INVALID_REQUEST, f"unsupported protocol version {version[:100]!r}", 400)
        return None
    expected = {VERSION_HEADER: meta[VERSION_KEY], "mcp-method": message.get("method")}
    if message.get("method") == "tools/call":
        expected["mcp-name"] = params.get("name")
    for name, value in expected.items():
        if [given.strip() for given in request.headers.getlist(name)] != [value]:
            return reply_error(message, HEADER_MISMATCH, f"the header {name} does not match the body", 400)
    return None


def reply_error(message: Json, code: int, text: str, status: int) -> Response:
    id = message.get("id")
    reply = {
        "jsonrpc": "2.0",
        "id": id if isinstance(id, str | int) else None,
        "error": {"code": code, "message": text},
    }
    return Response(encode_json(reply), status, media_type="application/json")


def find_status(reply: bytes, is_modern: bool) -> int:
    """Earlier revisions have a status of their own only for what is not a message; 2026-07-28 for each error."""
    message = msgspec.json.decode(reply)
    error = message.get("error")
    if error is None or error["code"] == INTERNAL_ERROR:
        return 200
    if not is_modern:
        return 200 if message["id"] is not None else 400
    return 404 if error["code"] == METHOD_NOT_FOUND else 400
