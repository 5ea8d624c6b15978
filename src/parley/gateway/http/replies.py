"""JSON in requests and replies."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from parley.gateway.http.auth import ADMITTED, Admitted
from parley.gateway.live_session import LiveSession
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal
from parley.protocol.base import Json

BODY_BYTES = 64 * 1024 * 1024
"""The longest body of a request that a gateway elsewhere passes on."""
BODY_SECONDS = 60
"""How long the body of a request may take to arrive."""

T = TypeVar("T")


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
