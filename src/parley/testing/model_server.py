"""A model behind HTTP on loopback, for tests and for work without a network.

    async with ModelServer(script) as server:      # in an event loop
        server.url                                 # what ANTHROPIC_BASE_URL should say; OpenAI's has /v1 behind it
    with running(script) as server:                # in a thread of its own
        server.exchanges[0].body["messages"]       # what a client sent

It speaks the Messages API and OpenAI's chat completions, and plays a script, a tape or the offline model (source.py)
to whoever asks, in the order they ask. A scripted error
becomes an HTTP error with the API's body; one without a status breaks the line instead. Faults are real ones: a reset
is a TCP reset. Every request is kept, without its keys. Whether an answer is `complete` is settled once the server is
closed.

Not here: how a script is written (models/fake/script.py), the APIs (messages_api.py, chat_completions.py), the
command (cli/commands/model_server.py).
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any
from uuid import uuid4

import msgspec

from parley.errors import ModelError
from parley.models.accumulator import Growing
from parley.models.base import Event
from parley.models.fake.script import Script
from parley.models.faults.catalog import SOUND, Plan, Reset
from parley.protocol.base import Json
from parley.testing.chat_completions import Chat
from parley.testing.http import Exchange, Reply, receive, refused, reset
from parley.testing.messages_api import Messages, Wire
from parley.testing.source import Source, source_of

__all__ = ["Exchange", "ModelServer", "running"]

COUNT_TOKENS, MODELS = "/v1/messages/count_tokens", "/v1/models"
WIRES: dict[str, Wire] = {"/v1/messages": Messages(), "/v1/chat/completions": Chat()}
PIECES = 3
"""A fault of bytes sees an answer in one piece as so many events."""
THREAD_SECONDS = 10


class ModelServer:
    """Plays one source to whoever asks."""

    def __init__(
        self,
        source: Script | Source,
        *,
        port: int = 0,
        new_id: Callable[[], str] | None = None,
        plan: Plan | None = None,
        keeps: int | None = None,
    ) -> None:
        """`plan` says what goes wrong; `keeps` is how many exchanges are kept, all by default."""
        self.exchanges: list[Exchange] = []
        self._new_id = new_id or (lambda: uuid4().hex[:24])
        self._source = source_of(source, self._new_id)
        self._port = port
        self._plan = plan or Plan()
        self._keeps = keeps
        self._connections: dict[asyncio.Task[Any], StreamWriter] = {}

    async def __aenter__(self) -> ModelServer:
        """Raises OSError if the port is taken."""
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
        try:
            with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
                while await self._exchange(reader, writer):
                    await writer.drain()
        finally:
            # Also behind a flaw of ours: its client must not wait for ever, and the server goes on.
            writer.close()
            del self._connections[task]

    async def _exchange(self, reader: StreamReader, writer: StreamWriter) -> bool:
        """One request and its answer; says whether another may follow."""
        exchange = Exchange()
        reply = Reply(exchange, writer, f"req_{self._new_id()}")
        try:
            await receive(reader, exchange)
            self.exchanges.append(exchange)
            if self._keeps is not None:
                del self.exchanges[: -self._keeps or None]
            await self._answer(exchange, reply)
        except Reset:
            await reset(writer)
            return False
        except ModelError as flaw:
            if flaw.status is None or exchange.status is not None:
                return False
            wait = [] if flaw.retry_after_seconds is None else [f"retry-after: {flaw.retry_after_seconds:g}"]
            reply.whole(flaw.status, WIRES.get(exchange.path, Messages()).error(flaw), *wait)
            # Whoever strays from the API may not agree with us on where its request ends.
            return flaw.status not in (404, 411)
        return True

    async def _answer(self, exchange: Exchange, reply: Reply) -> None:
        """Raises ModelError, Reset, or ConnectionError when the client hangs up."""
        match exchange.method, exchange.path:
            case "POST", path if path in WIRES:
                await self._say(WIRES[path], exchange.raw, reply)
            case "POST", path if path == COUNT_TOKENS:
                Messages().read(exchange.raw)
                reply.whole(200, {"input_tokens": max(1, len(exchange.raw) // 4)})
            case "GET", path if path == MODELS:
                rows = [listed(name) for name in self._source.names]
                ends = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"], "has_more": False}
                reply.whole(200, {"object": "list", "data": rows, **ends})
            case "GET", path if path.startswith(f"{MODELS}/"):
                reply.whole(200, listed(path.removeprefix(f"{MODELS}/")))
            case method, path:
                raise refused(404, f"there is no {method} {path} here", "not_found_error")

    async def _say(self, wire: Wire, raw: bytes, reply: Reply) -> None:
        asked = wire.read(raw)
        planned = self._plan.next()
        if planned is not None and (refusal := planned.refusal()) is not None:
            raise refusal  # before a turn is used up
        events, own_fault = self._source.answer(asked.request)
        fault = planned or own_fault or SOUND
        if (refusal := fault.refusal()) is not None:
            raise refusal
        async with aclosing(events):
            spoiled = fault.on_events(events)
            if asked.stream:
                await reply.streamed("text/event-stream", fault.on_chunks(wire.spelled(spoiled, asked)))
                return
            message = wire.whole(await gathered(spoiled))
            if fault is SOUND:
                reply.whole(200, message)
            else:
                await reply.streamed("application/json", fault.on_chunks(cut(message)))


async def gathered(events: AsyncIterator[Event]) -> Json:
    """The whole message: an answer in one piece is played as well, for its time and its error are the same."""
    growing = Growing()
    start: Json = {}
    async for event in events:
        start = event.message or start
        try:
            growing.feed(event)
        except ModelError:
            raise Reset from None  # no message could be made of these events
    if not growing.finished:
        raise Reset
    ending = {"stop_reason": growing.stop_reason, "stop_sequence": growing.stop_sequence}
    content = [block.json for block in growing.blocks]
    return {**start, "content": content, **ending, "usage": growing.final_usage}


async def cut(message: Json) -> AsyncGenerator[bytes, None]:
    content = msgspec.json.encode(message)
    size = len(content) // PIECES + 1
    for at in range(0, len(content), size):
        yield content[at : at + size]


def listed(name: str) -> Json:
    """A model as both APIs list it."""
    ours = {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, **ours, "object": "model", "created": 0, "owned_by": "parley"}


@contextmanager
def running(source: Script | Source, *, plan: Plan | None = None) -> Iterator[ModelServer]:
    """A server in a thread, for those who have no event loop."""
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
