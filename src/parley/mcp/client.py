"""The conversation with one MCP server: JSON-RPC over any wire.

    await client.connect(capabilities)
    answer = await client.request("tools/call", {...}, seconds=60)

A request waits no longer than it may; a sign of progress starts its time anew, and while the
server asks the person something, no time runs. Whoever stops waiting tells the server so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from parley.mcp.base import ConnectionLost, ServerError, ServerTransport
from parley.mcp.content import clean
from parley.protocol.base import Json
from parley.version import __version__

PROTOCOL_VERSION = "2025-11-25"
CLIENT = {"name": "parley", "title": "Parley", "version": __version__}
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
MAX_NAME_CHARS = 200
MAX_PAGES = 100
MAX_LISTED = 2_000
"""Of tools, prompts or resources. All of them are in a line to the host, which must not grow too long for it."""
FOR_PEOPLE = ("elicitation/create",)
MAX_QUESTIONS = 64
"""How many questions of one server are answered at a time; more are refused."""

Progress = Callable[[Json], None]
Answerer = Callable[[str, Json], Awaitable[Json]]


class RequestTimeout(Exception):
    """A server did not answer in its time."""


class PendingRequest:
    """One request that waits for its answer."""

    def __init__(self, answer: asyncio.Future[Json], seconds: float | None, progress: Progress | None) -> None:
        self.answer = answer
        self.seconds = seconds
        self.progress = progress
        self.limit: asyncio.Timeout | None = None

    def reset_timeout(self, *, running: bool = True) -> None:
        """Begin the time anew, or stop it."""
        if self.limit is None or self.answer.done() or self.limit.expired():
            return
        now = asyncio.get_running_loop().time()
        self.limit.reschedule(now + self.seconds if running and self.seconds is not None else None)


class IncomingRequest:
    """One request of the server that is being answered."""

    def __init__(self, calls: set[int]) -> None:
        self.calls = calls
        """The requests of ours that were open when it came: it belongs to one of them, if there was any."""
        self.is_moot = False
        """Whether none of them is left, because nobody waits for them any more."""
        self.task: asyncio.Task[None] | None = None

    def withdraw(self, call: int) -> None:
        if call in self.calls:
            self.calls.remove(call)
            self.is_moot = not self.calls
            if self.is_moot and self.task is not None:
                self.task.cancel()


class McpClient:
    def __init__(
        self,
        transport: ServerTransport,
        *,
        on_request: Answerer,
        on_notification: Callable[[str, Json], None] = lambda method, params: None,
        on_lost: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.info: Json = {}
        self.capabilities: Json = {}
        self.instructions = ""
        self._transport = transport
        self._on_request = on_request
        """Answers the server's requests. Raises ServerError."""
        self._on_notification = on_notification
        self._on_lost = on_lost
        self._waiting: dict[int, PendingRequest] = {}
        self._next_id = 0
        self._questions = 0
        """What the server asks a person, and has no answer yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._incoming: dict[Any, IncomingRequest] = {}
        """What the server wants to know, by its own numbers."""
        self._failure: ConnectionLost | None = None

    async def connect(self, capabilities: Json) -> None:
        """The handshake, up to the server's facts. Raises Lost or ServerError."""
        await self._transport.open(self.receive, self._fail)
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": capabilities, "clientInfo": CLIENT}
        facts = await self.request("initialize", params, seconds=None)
        await self.notify("notifications/initialized")
        if not isinstance(facts.get("protocolVersion"), str):
            raise ConnectionLost("answered the handshake without a protocol version")
        info = as_object(facts.get("serverInfo"))
        self.info = {key: clean(value)[:MAX_NAME_CHARS] for key, value in info.items() if isinstance(value, str)}
        self.capabilities = as_object(facts.get("capabilities"))
        self.instructions = clean(facts["instructions"]) if isinstance(facts.get("instructions"), str) else ""

    async def request(
        self, method: str, params: Json | None = None, *, seconds: float | None, progress: Progress | None = None
    ) -> Json:
        """The result of a request; None seconds is for ever. Raises Lost, ServerError or Late."""
        if self._failure is not None:
            raise self._failure
        number, self._next_id = self._next_id, self._next_id + 1
        waiting = PendingRequest(asyncio.get_running_loop().create_future(), seconds, progress)
        self._waiting[number] = waiting
        try:
            async with asyncio.timeout(seconds) as waiting.limit:
                await self._transport.send(format_request(method, params, number, progress is not None))
                return await waiting.answer
        except TimeoutError:
            self._withdraw(number, "timed out")
            raise RequestTimeout(f"{method} got no answer and no sign of progress for {seconds:g} s") from None
        except asyncio.CancelledError:
            self._withdraw(number, "cancelled")
            raise
        finally:
            del self._waiting[number]
            consume_exception(waiting.answer)

    async def notify(self, method: str, params: Json | None = None) -> None:
        """Raises Lost."""
        message: Json = {"jsonrpc": "2.0", "method": method}
        await self._transport.send(message if params is None else {**message, "params": params})

    async def list_all(self, method: str, key: str, seconds: float | None) -> list[Json]:
        """Everything of a list, page by page. Raises Lost, ServerError or Late."""
        found: list[Json] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.request(method, {"cursor": cursor} if cursor else None, seconds=seconds)
            items = page.get(key)
            found += [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or len(found) >= MAX_LISTED:
                break
        return found[:MAX_LISTED]

    async def close(self) -> None:
        self._fail("the connection was closed")
        for chore in list(self._tasks):
            chore.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._transport.close()

    def stderr_tail(self) -> str:
        return self._transport.stderr_tail()

    # What the server says.

    def receive(self, message: Json) -> None:
        """A message of the server, which may be anything at all."""
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            params = as_object(message.get("params"))
            if number is None:
                self._handle_notification(method, params)
            elif isinstance(number, int | str):
                asked = self._incoming[number] = IncomingRequest(set(self._waiting))
                asked.task = self._start_task(self._handle_request(number, method, params, asked))
        elif type(number) is int and number in self._waiting:  # true is a 1, too
            resolve(self._waiting[number].answer, message)

    def _handle_notification(self, method: str, params: Json) -> None:
        if method == "notifications/cancelled" and isinstance(params.get("requestId"), int | str):
            withdrawn = self._incoming.get(params["requestId"])
            if withdrawn is not None and withdrawn.task is not None:
                withdrawn.task.cancel()
            return
        if method != "notifications/progress":
            self._on_notification(method, params)
            return
        token = params.get("progressToken")
        waiting = self._waiting.get(token) if type(token) is int else None
        if waiting is not None:
            waiting.reset_timeout(running=self._questions == 0)
            if waiting.progress is not None:
                waiting.progress(params)

    async def _handle_request(self, number: Any, method: str, params: Json, asked: IncomingRequest) -> None:
        answer: Json = {"jsonrpc": "2.0", "id": number}
        try:
            if len(self._tasks) > MAX_QUESTIONS:
                raise ServerError(INTERNAL_ERROR, "too many requests at a time")
            answer["result"] = {} if method == "ping" else await self._answer_request(method, params)
        except ServerError as exc:
            answer["error"] = {"code": exc.code, "message": str(exc)}
        except asyncio.CancelledError:
            if not asked.is_moot:
                raise
            answer["error"] = {"code": INTERNAL_ERROR, "message": "the call that it belongs to was withdrawn"}
        except Exception as exc:
            # Whoever asks is answered, also where the fault is ours.
            answer["error"] = {"code": INTERNAL_ERROR, "message": f"internal error: {type(exc).__name__}"}
        finally:
            self._incoming.pop(number, None)
        await self._transport.send(answer)

    async def _answer_request(self, method: str, params: Json) -> Json:
        """While a person is asked, the server cannot be expected to hurry."""
        if method not in FOR_PEOPLE:
            return await self._on_request(method, params)
        self._questions += 1
        self._reset_timeouts()
        try:
            return await self._on_request(method, params)
        finally:
            self._questions -= 1
            self._reset_timeouts()

    def _reset_timeouts(self) -> None:
        for waiting in self._waiting.values():
            waiting.reset_timeout(running=self._questions == 0)

    # The end.

    def _withdraw(self, number: int, reason: str) -> None:
        if self._failure is None and number > 0:  # the handshake cannot be withdrawn
            self._start_task(self.notify("notifications/cancelled", {"requestId": number, "reason": reason}))
            for asked in list(self._incoming.values()):
                asked.withdraw(number)

    def _fail(self, reason: ConnectionLost | str) -> None:
        if self._failure is not None:
            return
        self._failure = loss = reason if isinstance(reason, ConnectionLost) else ConnectionLost(reason)
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(loss)
        self._on_lost(str(loss))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside; a server that is gone by then does not need it."""

        async def quietly() -> None:
            with contextlib.suppress(ConnectionLost):
                await work

        chore = asyncio.get_running_loop().create_task(quietly())
        self._tasks.add(chore)
        chore.add_done_callback(self._tasks.discard)
        chore.add_done_callback(lambda done: work.close())  # it may not even have begun
        return chore


def format_request(method: str, params: Json | None, number: int, wants_progress: bool) -> Json:
    """A request. Its number is its progress token as well."""
    message: Json = {"method": method}
    if wants_progress:
        params = params or {}
        params = {**params, "_meta": {**as_object(params.get("_meta")), "progressToken": number}}
    if params is not None:
        message["params"] = params
    return {**message, "jsonrpc": "2.0", "id": number}


def consume_exception(answer: asyncio.Future[Json]) -> None:
    """Nobody waits for it any more. A failure that nobody asks about would be complained of."""
    if not answer.cancel() and not answer.cancelled():
        answer.exception()


def resolve(answer: asyncio.Future[Json], message: Json) -> None:
    if answer.done():
        return
    error = message.get("error")
    if error is not None:
        told = as_object(error)
        answer.set_exception(ServerError(told.get("code"), str(told.get("message") or "an error without a message")))
    else:
        answer.set_result(as_object(message.get("result")))


def as_object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
