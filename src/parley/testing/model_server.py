"""The Messages API on loopback, answered by a script: a real HTTP server for tests and for work without a network.

    async with ModelServer(script) as server:      # in an event loop
        server.url                                 # what ANTHROPIC_BASE_URL should say
    with running(script) as server:                # in a thread of its own
        server.exchanges[0].body["messages"]       # what a client sent

A scripted error becomes an HTTP error with the API's body; one without a status breaks the line instead. Every
request is kept, without its keys. Whether an answer is `complete` is settled once the server is closed.

Not here: how a script is written (models/script.py), how a turn is played (models/scripted.py).
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from http.client import responses
from typing import Any
from uuid import uuid4

import msgspec

from parley.errors import ModelError
from parley.models.base import ModelRequest
from parley.models.script import Player, Script
from parley.models.scripted import play
from parley.protocol.base import Json, Struct

MESSAGES, COUNT_TOKENS = "/v1/messages", "/v1/messages/count_tokens"
SECRETS = ("x-api-key", "authorization", "proxy-authorization", "cookie")
REDACTED = "(redacted)"
THREAD_SECONDS = 10


class Exchange(Struct, kw_only=True):
    """A request as it came in, and how far its answer got: to a status, to its end."""

    method: str = ""
    path: str = ""
    headers: dict[str, str] = {}
    """Names in lower case; keys are redacted."""
    raw: bytes = b""
    status: int | None = None
    complete: bool = False

    @property
    def body(self) -> Any:
        """Raises msgspec.DecodeError if it is no JSON."""
        return msgspec.json.decode(self.raw)


class Asked(Struct, frozen=True, kw_only=True):
    """The part of a body that decides how it is answered."""

    model: str
    messages: list[Json]
    max_tokens: int = 0
    stream: bool = False


class ModelServer:
    """Plays one script to whoever asks, in the order they ask."""

    def __init__(self, script: Script, *, port: int = 0, new_id: Callable[[], str] | None = None) -> None:
        self.exchanges: list[Exchange] = []
        self._player = Player(script)
        self._port = port
        self._new_id = new_id or (lambda: uuid4().hex[:24])
        self._connections: dict[asyncio.Task[Any], StreamWriter] = {}

    async def __aenter__(self) -> ModelServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._server.close()
        for task, writer in self._connections.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._connections)
        await self._server.wait_closed()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One connection: request after request, until either side hangs up."""
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        # Also a task that we cancel ends well: asyncio logs any other end of a connection as an error.
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            while await self._exchange(reader, writer):
                await writer.drain()
        writer.close()
        del self._connections[task]

    async def _exchange(self, reader: StreamReader, writer: StreamWriter) -> bool:
        """One request and its answer; says whether another may follow."""
        exchange = Exchange()
        try:
            await receive(reader, exchange)
            self.exchanges.append(exchange)
            await self._answer(exchange, understood(exchange), writer)
        except ModelError as flaw:
            if flaw.status is None:
                return False
            error = {"type": "error", "error": {"type": flaw.kind or "api_error", "message": flaw.message}}
            wait = [] if flaw.retry_after_seconds is None else [f"retry-after: {flaw.retry_after_seconds:g}"]
            self._send(exchange, writer, flaw.status, error, *wait)
            # Whoever strays from the API may not agree with us on where its request ends.
            return flaw.status not in (404, 411)
        return True

    async def _answer(self, exchange: Exchange, asked: Asked, writer: StreamWriter) -> None:
        """Raises ModelError, or ConnectionError when the client hangs up."""
        if exchange.path == COUNT_TOKENS:
            self._send(exchange, writer, 200, {"input_tokens": max(1, len(exchange.raw) // 4)})
            return
        request = ModelRequest(model=asked.model, system=[], messages=asked.messages, max_tokens=asked.max_tokens)
        try:
            turn = self._player.turn_for(request)
        except ModelError as over:
            raise refused(400, over.message) from None
        async for event in play(turn, request, self._new_id):
            # An answer in one piece is played as well: its time and its error are the same.
            if asked.stream:
                if exchange.status is None:
                    writer.write(self._head(exchange, 200, "text/event-stream", "transfer-encoding: chunked"))
                text = b"event: %b\ndata: %b\n\n" % (event.type.encode(), event.raw)
                writer.write(b"%x\r\n%b\r\n" % (len(text), text))
                await writer.drain()
        if asked.stream:
            writer.write(b"0\r\n\r\n")
            exchange.complete = True
        else:
            self._send(exchange, writer, 200, turn.message(asked.model, self._new_id, len(exchange.raw)))

    def _send(self, exchange: Exchange, writer: StreamWriter, status: int, value: Json, *lines: str) -> None:
        content = msgspec.json.encode(value)
        sized = (f"content-length: {len(content)}", *lines)
        writer.write(self._head(exchange, status, "application/json", *sized) + content)
        exchange.complete = True

    def _head(self, exchange: Exchange, status: int, content_type: str, *lines: str) -> bytes:
        exchange.status = status
        first = (f"HTTP/1.1 {status} {responses.get(status, 'Error')}", f"content-type: {content_type}")
        return "\r\n".join((*first, f"request-id: req_{self._new_id()}", *lines, "", "")).encode()


async def receive(reader: StreamReader, exchange: Exchange) -> None:
    """Read one request. Raises ModelError, IncompleteReadError if there is none, LimitOverrunError if it is huge."""
    opening, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
    exchange.method, target, *_ = (*opening.split(" "), "")
    exchange.path = target.partition("?")[0]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    exchange.headers = {name: REDACTED if name in SECRETS else value for name, value in headers.items()}
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
        raise refused(411, "a content-length is needed")
    exchange.raw = await reader.readexactly(int(length))


def understood(exchange: Exchange) -> Asked:
    """Raises ModelError."""
    if exchange.method != "POST" or exchange.path not in (MESSAGES, COUNT_TOKENS):
        raise refused(404, f"there is no {exchange.method} {exchange.path} here", "not_found_error")
    try:
        return msgspec.json.decode(exchange.raw, type=Asked)
    except (msgspec.DecodeError, UnicodeDecodeError) as flaw:
        raise refused(400, str(flaw)) from None


def refused(status: int, text: str, kind: str = "invalid_request_error") -> ModelError:
    return ModelError(text, status=status, kind=kind)


@contextmanager
def running(script: Script) -> Iterator[ModelServer]:
    """A server in a thread, for those who have no event loop."""
    loop, server = asyncio.new_event_loop(), ModelServer(script)
    thread = threading.Thread(target=loop.run_forever, name="model server", daemon=True)

    def run(coroutine: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, loop).result(THREAD_SECONDS)

    thread.start()
    try:
        run(server.__aenter__())
        try:
            yield server
        finally:
            run(server.__aexit__())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(THREAD_SECONDS)
        loop.close()
