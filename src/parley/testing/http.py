"""A minimal HTTP server side on asyncio streams, for the model server: read a request, write a response, reset."""

from __future__ import annotations

import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from http.client import responses
from typing import Any

import msgspec

from parley.errors import ModelError
from parley.protocol.base import Struct

SECRETS = ("x-api-key", "authorization", "proxy-authorization", "cookie", "api-key")
REDACTED = "(redacted)"


class Exchange(Struct, kw_only=True):
    """A request and the state of its response."""

    method: str = ""
    path: str = ""
    headers: dict[str, str] = {}
    """Names are in lower case; keys are redacted."""
    raw: bytes = b""
    status: int | None = None
    complete: bool = False

    @property
    def body(self) -> Any:
        """Raises msgspec.DecodeError if it is not JSON."""
        return msgspec.json.decode(self.raw)


async def receive(reader: StreamReader, exchange: Exchange) -> None:
    """Read one request. Raises ModelError, IncompleteReadError at the end of input, or LimitOverrunError."""
    opening, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
    exchange.method, target, *_ = (*opening.split(" "), "")
    exchange.path = target.partition("?")[0]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    exchange.headers = {name: REDACTED if name in SECRETS else value for name, value in headers.items()}
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
        raise request_error(411, "a content-length header is required")
    exchange.raw = await reader.readexactly(int(length))


def request_error(status: int, text: str, kind: str = "invalid_request_error") -> ModelError:
    return ModelError(text, status=status, kind=kind)


class ResponseWriter:
    """Writes the response of one exchange."""

    def __init__(self, exchange: Exchange, writer: StreamWriter, request_id: str) -> None:
        self._exchange = exchange
        self._writer = writer
        self._request_id = request_id

    def send_json(self, status: int, value: Any, *lines: str) -> None:
        """Send a JSON body."""
        content = msgspec.json.encode(value)
        self._head(status, "application/json", f"content-length: {len(content)}", *lines)
        self._writer.write(content)
        self._exchange.complete = True

    async def stream(self, content_type: str, chunks: AsyncIterator[bytes]) -> None:
        """Send chunks as they come. Nothing is sent before the first chunk."""
        async for chunk in chunks:
            if self._exchange.status is None:
                self._head(200, content_type, "transfer-encoding: chunked")
            if chunk:
                self._writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await self._writer.drain()
        if self._exchange.status is None:
            self._head(200, content_type, "transfer-encoding: chunked")
        self._writer.write(b"0\r\n\r\n")
        self._exchange.complete = True

    def _head(self, status: int, content_type: str, *lines: str) -> None:
        self._exchange.status = status
        first = (f"HTTP/1.1 {status} {responses.get(status, 'Error')}", f"content-type: {content_type}")
        # The two APIs use different names for the request id.
        ids = (f"request-id: {self._request_id}", f"x-request-id: {self._request_id}")
        self._writer.write("\r\n".join((*first, *ids, *lines, "", "")).encode())


async def reset(writer: StreamWriter) -> None:
    """Reset the TCP connection after everything was written."""
    writer.transport.set_write_buffer_limits(high=0)
    await writer.drain()
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
