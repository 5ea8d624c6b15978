"""A model server on loopback, for tests and for work without a network.

    async with ModelServer(script) as server:      # in an event loop
        server.url                                 # for ANTHROPIC_BASE_URL; for OpenAI add /v1
    with running(script) as server:                # in a thread of its own
        server.exchanges[0].body["messages"]       # what a client sent

It serves the Messages API and OpenAI's chat completions and Responses APIs. It plays a script, a recording or the
offline model to all clients, in the order of their requests. A scripted error becomes an HTTP error with the API's
body; one without a status closes the connection. Faults are real: a reset is a TCP reset. All requests are kept,
without keys. `complete` of an exchange is final once the server is closed.

See also: `models/script.py` for the script format, `messages_api.py` and `openai_apis.py` for the APIs,
`cli/commands/model_server.py` for the command.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager, suppress
from http.client import responses
from pathlib import Path
from time import monotonic
from typing import Any, Protocol
from uuid import uuid4

import msgspec

from parley.errors import ModelError
from parley.models.accumulator import MessageAccumulator
from parley.models.base import Model, ModelEvent, ModelRequest
from parley.models.fakes import Offline
from parley.models.faults import NO_FAULT, Fault, FaultPlan, Reset, read_fault
from parley.models.replay import Replay
from parley.models.script import Script, ScriptPlayer, play
from parley.protocol.base import Json, Struct
from parley.testing.messages_api import ApiFormat, MessagesApi, request_error
from parley.testing.openai_apis import ChatCompletionsApi, ResponsesApi

__all__ = ["Exchange", "ModelServer", "running"]
COUNT_TOKENS, MODELS = "/v1/messages/count_tokens", "/v1/models"
FORMATS: dict[str, ApiFormat] = {
    "/v1/messages": MessagesApi(),
    "/v1/chat/completions": ChatCompletionsApi(),
    "/v1/responses": ResponsesApi(),
}
SECRETS = ("x-api-key", "authorization", "proxy-authorization", "cookie", "api-key")
REDACTED = "(redacted)"
PIECES = 3
"""Byte faults treat an unstreamed response as this many events."""
THREAD_SECONDS = 10
SourceAnswer = tuple[AsyncGenerator[ModelEvent, None], Fault | None]
"""The events of an answer, and the fault to apply."""


class AnswerSource(Protocol):
    @property
    def names(self) -> tuple[str, ...]:
        """The models that the server lists. It accepts any name."""

    def answer(self, request: ModelRequest) -> SourceAnswer:
        """Raises ModelError."""


class ScriptSource:
    names = ("scripted",)

    def __init__(self, script: Script, new_id: Callable[[], str]) -> None:
        self._player = ScriptPlayer(script)
        self._new_id = new_id

    def answer(self, request: ModelRequest) -> SourceAnswer:
        try:
            turn = self._player.turn_for(request)
        except ModelError as exc:
            # With a status, clients do not retry.
            raise ModelError(exc.message, status=400, kind="invalid_request_error") from None
        return play(turn, request, self._new_id), None if turn.fault is None else read_fault(turn.fault)


class ModelSource:
    """A model that answers in this process."""

    def __init__(self, model: Model, *names: str) -> None:
        self.names = names
        self._model = model

    def answer(self, request: ModelRequest) -> SourceAnswer:
        return self._stream(request), None

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    yield event
        except ModelError as exc:
            if exc.status is not None or exc.retryable:
                raise
            # The conversation differs from the recording. The client must receive the error and not retry.
            raise ModelError(exc.message, status=400, kind="invalid_request_error") from None


def to_source(source: Script | AnswerSource, new_id: Callable[[], str]) -> AnswerSource:
    return ScriptSource(source, new_id) if isinstance(source, Script) else source


def from_recording(path: Path, *, pace: float = 0, in_order: bool = False) -> AnswerSource:
    """Raises UsageError."""
    return ModelSource(Replay(path, pace=pace, in_order=in_order), "replay")


def offline(new_id: Callable[[], str]) -> AnswerSource:
    return ModelSource(Offline(new_id), "offline")


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


class ModelServer:
    """Plays one source to all clients."""

    def __init__(
        self,
        source: Script | AnswerSource,
        *,
        port: int = 0,
        new_id: Callable[[], str] | None = None,
        plan: FaultPlan | None = None,
        keeps: int | None = None,
        log: Callable[[Exchange, float], None] | None = None,
    ) -> None:
        """`plan` injects faults; `keeps` limits how many exchanges are kept (default: all).

        `log` is called after each exchange, with the seconds it took.
        """
        self.exchanges: list[Exchange] = []
        self._new_id = new_id or (lambda: uuid4().hex[:24])
        self._source = to_source(source, self._new_id)
        self._port = port
        self._plan = plan or FaultPlan()
        self._keeps = keeps
        self._log = log
        self._connections: dict[asyncio.Task[Any], StreamWriter] = {}

    async def __aenter__(self) -> ModelServer:
        """Raises OSError if the port is in use."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task, writer in self._connections.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._connections)
        await self._server.wait_closed()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Handle one connection: request after request until either side closes it."""
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        # A cancelled task must end normally, because asyncio logs any other end of a connection as an error.
        try:
            with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
                while await self._exchange(reader, writer):
                    await writer.drain()
        finally:
            # Also after a bug of ours: the client must not wait forever, and the server keeps running.
            writer.close()
            del self._connections[task]

    async def _exchange(self, reader: StreamReader, writer: StreamWriter) -> bool:
        """Handle one request. Returns whether another may follow."""
        exchange = Exchange()
        reply = ResponseWriter(exchange, writer, f"req_{self._new_id()}")
        started: float | None = None
        try:
            await receive(reader, exchange)
            started = monotonic()
            self.exchanges.append(exchange)
            if self._keeps is not None:
                del self.exchanges[: -self._keeps or None]
            await self._answer(exchange, reply)
        except Reset:
            await reset(writer)
            return False
        except ModelError as exc:
            if exc.status is None or exchange.status is not None:
                return False
            wait = [] if exc.retry_after_seconds is None else [f"retry-after: {exc.retry_after_seconds:g}"]
            reply.send_json(exc.status, FORMATS.get(exchange.path, MessagesApi()).error(exc), *wait)
            # The client may not agree with us on where its request ends.
            return exc.status not in (404, 411)
        finally:
            if self._log is not None and exchange.method:
                self._log(exchange, 0 if started is None else monotonic() - started)
        return True

    async def _answer(self, exchange: Exchange, reply: ResponseWriter) -> None:
        """Raises ModelError, Reset, or ConnectionError if the client disconnects."""
        match exchange.method, exchange.path:
            case "POST", path if path in FORMATS:
                await self._send_answer(FORMATS[path], exchange.raw, reply)
            case "POST", path if path == COUNT_TOKENS:
                MessagesApi().read(exchange.raw)
                reply.send_json(200, {"input_tokens": max(1, len(exchange.raw) // 4)})
            case "GET", path if path == MODELS:
                rows = [model_row(name) for name in self._source.names]
                ends = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"], "has_more": False}
                reply.send_json(200, {"object": "list", "data": rows, **ends})
            case "GET", path if path.startswith(f"{MODELS}/"):
                reply.send_json(200, model_row(path.removeprefix(f"{MODELS}/")))
            case method, path:
                raise request_error(404, f"not found: {method} {path}", "not_found_error")

    async def _send_answer(self, api: ApiFormat, raw: bytes, reply: ResponseWriter) -> None:
        request = api.read(raw)
        planned = self._plan.next()
        if planned is not None and (refusal := planned.refusal()) is not None:
            raise refusal  # before a turn is consumed
        events, own_fault = self._source.answer(request.request)
        fault = planned or own_fault or NO_FAULT
        if (refusal := fault.refusal()) is not None:
            raise refusal
        async with aclosing(events):
            changed = fault.on_events(events)
            if request.stream:
                await reply.stream("text/event-stream", fault.on_chunks(api.encode_events(changed, request)))
                return
            message = api.encode_message(await collect_message(changed))
            if fault is NO_FAULT:
                reply.send_json(200, message)
            else:
                await reply.stream("application/json", fault.on_chunks(split_message(message)))


async def collect_message(events: AsyncIterator[ModelEvent]) -> Json:
    """The complete message. An unstreamed answer is played too, because its delays and errors are the same."""
    accumulator = MessageAccumulator()
    start: Json = {}
    async for event in events:
        start = event.message or start
        try:
            accumulator.feed(event)
        except ModelError:
            raise Reset from None  # the events are not a valid message
    if not accumulator.finished:
        raise Reset
    ending = {"stop_reason": accumulator.stop_reason, "stop_sequence": accumulator.stop_sequence}
    content = [block.json for block in accumulator.blocks]
    return {**start, "content": content, **ending, "usage": accumulator.final_usage}


async def split_message(message: Json) -> AsyncGenerator[bytes, None]:
    content = msgspec.json.encode(message)
    size = len(content) // PIECES + 1
    for at in range(0, len(content), size):
        yield content[at : at + size]


def model_row(name: str) -> Json:
    """A model in the format of all APIs."""
    row = {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, **row, "object": "model", "created": 0, "owned_by": "parley"}


@contextmanager
def running(source: Script | AnswerSource, *, plan: FaultPlan | None = None) -> Iterator[ModelServer]:
    """Run a server in a thread, for callers without an event loop."""
    loop, server = asyncio.new_event_loop(), ModelServer(source, plan=plan)
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
