"""An MCP client: JSON-RPC over any transport.

    client = McpClient(transport, on_request=answer)
    await client.connect(capabilities)
    result = await client.request("tools/call", {...}, seconds=60)

A progress notification restarts the timeout of a request, and the timeout is suspended while the server waits for an
answer from the user. A request that times out or is cancelled is cancelled on the server too.
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
"""Limit of tools, prompts or resources. One message to the client contains all of them."""
USER_REQUESTS = ("elicitation/create",)
MAX_INCOMING = 64
"""How many requests of one server are handled at a time. Further ones are rejected."""

Progress = Callable[[Json], None]
Answerer = Callable[[str, Json], Awaitable[Json]]


class RequestTimeout(Exception):
    """A server did not answer in time."""


class PendingRequest:
    """A request that waits for its response."""

    def __init__(self, answer: asyncio.Future[Json], seconds: float | None, progress: Progress | None) -> None:
        self.answer = answer
        self.seconds = seconds
        self.progress = progress
        self.limit: asyncio.Timeout | None = None

    def reset_timeout(self, *, running: bool = True) -> None:
        """Restart the timeout, or suspend it."""
        if self.limit is None or self.answer.done() or self.limit.expired():
            return
        now = asyncio.get_running_loop().time()
        self.limit.reschedule(now + self.seconds if running and self.seconds is not None else None)


class IncomingRequest:
    """A request from the server that is being answered."""

    def __init__(self, calls: set[int]) -> None:
        self.calls = calls
        """Our requests that were pending when it arrived. It belongs to one of them."""
        self.is_moot = False
        """Whether all of them were cancelled."""
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
        self._pending: dict[int, PendingRequest] = {}
        self._next_id = 0
        self._elicitations = 0
        """How many elicitations are waiting for the user."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._incoming: dict[Any, IncomingRequest] = {}
        """Requests from the server by their ids."""
        self._failure: ConnectionLost | None = None

    async def connect(self, capabilities: Json) -> None:
        """Perform the initialize handshake. Raises ConnectionLost or ServerError."""
        await self._transport.open(self.receive, self._fail)
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": capabilities, "clientInfo": CLIENT}
        result = await self.request("initialize", params, seconds=None)
        await self.notify("notifications/initialized")
        if not isinstance(result.get("protocolVersion"), str):
            raise ConnectionLost("the server sent an initialize response without a protocol version")
        info = as_object(result.get("serverInfo"))
        self.info = {key: clean(value)[:MAX_NAME_CHARS] for key, value in info.items() if isinstance(value, str)}
        self.capabilities = as_object(result.get("capabilities"))
        self.instructions = clean(result["instructions"]) if isinstance(result.get("instructions"), str) else ""

    async def request(
        self, method: str, params: Json | None = None, *, seconds: float | None, progress: Progress | None = None
    ) -> Json:
        """Return the result of a request. Raises ConnectionLost, ServerError or RequestTimeout."""
        if self._failure is not None:
            raise self._failure
        number, self._next_id = self._next_id, self._next_id + 1
        pending = PendingRequest(asyncio.get_running_loop().create_future(), seconds, progress)
        self._pending[number] = pending
        try:
            async with asyncio.timeout(seconds) as pending.limit:
                await self._transport.send(format_request(method, params, number, progress is not None))
                return await pending.answer
        except TimeoutError:
            self._withdraw(number, "timed out")
            raise RequestTimeout(f"{method} got no response and no progress for {seconds:g} s") from None
        except asyncio.CancelledError:
            self._withdraw(number, "cancelled")
            raise
        finally:
            del self._pending[number]
            consume_exception(pending.answer)

    async def notify(self, method: str, params: Json | None = None) -> None:
        """Raises ConnectionLost."""
        message: Json = {"jsonrpc": "2.0", "method": method}
        await self._transport.send(message if params is None else {**message, "params": params})

    async def list_all(self, method: str, key: str, seconds: float | None, params: Json | None = None) -> list[Json]:
        """All items of a paginated list. Raises ConnectionLost, ServerError or RequestTimeout."""
        found: list[Json] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            asked = {**(params or {}), "cursor": cursor} if cursor else params
            page = await self.request(method, asked, seconds=seconds)
            items = page.get(key)
            found += [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or len(found) >= MAX_LISTED:
                break
        return found[:MAX_LISTED]

    async def close(self) -> None:
        self._fail("the connection was closed")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._transport.close()

    def stderr_tail(self) -> str:
        return self._transport.stderr_tail()

    def receive(self, message: Json) -> None:
        """Handle a message from the server. It can be any JSON object."""
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            params = as_object(message.get("params"))
            if number is None:
                self._handle_notification(method, params)
            elif isinstance(number, int | str):
                request = self._incoming[number] = IncomingRequest(set(self._pending))
                request.task = self._start_task(self._handle_request(number, method, params, request))
        elif type(number) is int and number in self._pending:  # bool is a subclass of int
            resolve(self._pending[number].answer, message)

    def _handle_notification(self, method: str, params: Json) -> None:
        if method == "notifications/cancelled" and isinstance(params.get("requestId"), int | str):
            cancelled = self._incoming.get(params["requestId"])
            if cancelled is not None and cancelled.task is not None:
                cancelled.task.cancel()
            return
        if method != "notifications/progress":
            self._on_notification(method, params)
            return
        token = params.get("progressToken")
        pending = self._pending.get(token) if type(token) is int else None
        if pending is not None:
            pending.reset_timeout(running=self._elicitations == 0)
            if pending.progress is not None:
                pending.progress(params)

    async def _handle_request(self, number: Any, method: str, params: Json, request: IncomingRequest) -> None:
        answer: Json = {"jsonrpc": "2.0", "id": number}
        try:
            if len(self._tasks) > MAX_INCOMING:
                raise ServerError(INTERNAL_ERROR, "too many concurrent requests")
            answer["result"] = {} if method == "ping" else await self._answer_request(method, params)
        except ServerError as exc:
            answer["error"] = {"code": exc.code, "message": str(exc)}
        except asyncio.CancelledError:
            if not request.is_moot:
                raise
            answer["error"] = {"code": INTERNAL_ERROR, "message": "the call that this request belongs to was cancelled"}
        except Exception as exc:
            # Every request gets a response, also after a bug of ours.
            answer["error"] = {"code": INTERNAL_ERROR, "message": f"internal error: {type(exc).__name__}"}
        finally:
            self._incoming.pop(number, None)
        await self._transport.send(answer)

    async def _answer_request(self, method: str, params: Json) -> Json:
        """Timeouts are suspended while the user is asked."""
        if method not in USER_REQUESTS:
            return await self._on_request(method, params)
        self._elicitations += 1
        self._reset_timeouts()
        try:
            return await self._on_request(method, params)
        finally:
            self._elicitations -= 1
            self._reset_timeouts()

    def _reset_timeouts(self) -> None:
        for pending in self._pending.values():
            pending.reset_timeout(running=self._elicitations == 0)

    def _withdraw(self, number: int, reason: str) -> None:
        if self._failure is None and number > 0:  # the handshake cannot be cancelled
            self._start_task(self.notify("notifications/cancelled", {"requestId": number, "reason": reason}))
            for request in list(self._incoming.values()):
                request.withdraw(number)

    def _fail(self, reason: ConnectionLost | str) -> None:
        if self._failure is not None:
            return
        self._failure = loss = reason if isinstance(reason, ConnectionLost) else ConnectionLost(reason)
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(loss)
        self._on_lost(str(loss))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run in the background. Errors after a disconnect are ignored."""

        async def run() -> None:
            with contextlib.suppress(ConnectionLost):
                await work

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: work.close())  # it may not have started
        return task


def format_request(method: str, params: Json | None, number: int, wants_progress: bool) -> Json:
    """A JSON-RPC request. The progress token is the id."""
    message: Json = {"method": method}
    if wants_progress:
        params = params or {}
        params = {**params, "_meta": {**as_object(params.get("_meta")), "progressToken": number}}
    if params is not None:
        message["params"] = params
    return {**message, "jsonrpc": "2.0", "id": number}


def consume_exception(answer: asyncio.Future[Json]) -> None:
    """Mark the exception as retrieved, because asyncio warns about exceptions that are never retrieved."""
    if not answer.cancel() and not answer.cancelled():
        answer.exception()


def resolve(answer: asyncio.Future[Json], message: Json) -> None:
    if answer.done():
        return
    error = message.get("error")
    if error is not None:
        details = as_object(error)
        answer.set_exception(
            ServerError(
                details.get("code"), str(details.get("message") or "the server returned an error without a message")
            )
        )
    else:
        answer.set_result(as_object(message.get("result")))


def as_object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
