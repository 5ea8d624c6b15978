"""JSON-RPC 2.0 without I/O: messages and errors, requests that wait for an answer, and requests of the peer that run.

    connection = RpcConnection(write)
    connection.methods = {"session/new": Method(NewSessionParams, new_session)}
    connection.receive(line)                                # for every line of the peer
    result = await connection.request("fs/read_text_file", {"path": path})      # raises RpcError

`RpcConnection` is one end of a connection in both directions: each request or notification of the peer is handled in a
task of its own. A handler that raises `RpcError` sends that error; an invalid message gets an error response, and the
connection continues. MCP has revisions, cancellation and timeouts of its own, so `mcp/client.py` and
`mcp/tool_server.py` use the parts: `RpcError`, the messages, and `RunningRequests`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec

from parley.protocol.base import UNSET, Json, Struct, UnsetType

log = logging.getLogger(__name__)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CANCELLED = -32800
CANCEL = "$/cancel_request"
MOST_RUNNING = 1000
"""How many requests of the peer may be handled at a time."""

RequestId = int | str


class RpcError(Exception):
    """An error response, from either side."""

    def __init__(self, code: Any, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def make_result(id: Any, result: Any) -> Json:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def make_error(id: Any, error: RpcError) -> Json:
    code = error.code if isinstance(error.code, int) else INTERNAL_ERROR
    data = {} if error.data is None else {"data": error.data}
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": str(error), **data}}


def settle(answer: asyncio.Future[Any], result: Any, error: Any) -> None:
    """Give a request its answer: the result, or the `error` of the response, which may be any JSON."""
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
        return
    details = error if isinstance(error, dict) else {}
    text = str(details.get("message") or "the server returned an error without a message")
    answer.set_exception(RpcError(details.get("code"), text, details.get("data")))


class RunningRequests:
    """The requests of the peer that are being handled, each in a task."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._by_id: dict[RequestId, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, id: RequestId) -> bool:
        return id in self._by_id

    def start(self, work: Coroutine[Any, Any, None], id: object = None) -> asyncio.Task[None]:
        """`id` is that of the request; a notification has none."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if isinstance(id, int | str):
            self._by_id[id] = task
            task.add_done_callback(lambda _: self._by_id.pop(id, None))
        return task

    def cancel(self, id: object) -> None:
        """The peer does not wait for it any more. An unknown id is ignored."""
        if isinstance(id, int | str) and (task := self._by_id.get(id)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all, and wait for their ends."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Incoming(Struct, frozen=True, kw_only=True):
    """Any message. A request has a method and an id, a notification only a method, a response only an id."""

    id: RequestId | None | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Any = None
    result: Any = None
    error: Json | None = None


class Method(Struct, frozen=True):
    """A method that the peer may call."""

    params: Any
    """The type of its parameters."""
    handle: Callable[[Any], Awaitable[Json | None]]


async def never_full() -> None:
    """For a connection that takes everything at once."""


class RpcConnection:
    """One connection. `write` sends a line; `wait_written` waits until the peer has read most of what was sent."""

    def __init__(
        self, write: Callable[[bytes], None], wait_written: Callable[[], Awaitable[None]] = never_full
    ) -> None:
        self.methods: Mapping[str, Method] = {}
        self.refused: Mapping[str, str] = {}
        """Why methods are not supported, by their name or its part before the slash."""
        self.wait_written = wait_written
        self._write = write
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._running = RunningRequests()
        self._is_closed = False

    # Receiving.

    def receive(self, line: bytes, refusal: RpcError | None = None) -> None:
        """`refusal`: why the message must not be handled."""
        try:
            message = msgspec.json.decode(line, type=Incoming)
        except msgspec.ValidationError as exc:
            self.send_error(None, RpcError(INVALID_REQUEST, f"the message is not valid JSON-RPC: {exc}"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            self.send_error(None, RpcError(PARSE_ERROR, f"the message is not JSON: {exc}"))
        else:
            if refusal is not None and isinstance(message.method, str):
                self.send_error(message.id, refusal)
            else:  # an answer to a request of ours is always taken
                self._dispatch(message)

    def _dispatch(self, message: Incoming) -> None:
        if message.method == CANCEL:
            self._running.cancel(message.params.get("requestId") if isinstance(message.params, dict) else None)
        elif isinstance(message.method, str) and len(self._running) >= MOST_RUNNING:
            self.send_error(message.id, RpcError(INVALID_REQUEST, f"{MOST_RUNNING} requests are open; wait for one"))
        elif isinstance(message.method, str):
            self._running.start(self._run(message, message.method), message.id)
        elif isinstance(message.id, int) and (future := self._pending.pop(message.id, None)) is not None:
            settle(future, message.result, message.error)
        elif message.id is UNSET:
            self.send_error(None, RpcError(INVALID_REQUEST, "the message has neither a method nor an id"))

    async def _run(self, message: Incoming, name: str) -> None:
        try:
            result = await self._call(name, message.params)
        except RpcError as exc:
            if message.id is UNSET:
                log.warning("notification %s: %s", name, exc)
            self.send_error(message.id, exc)
        except asyncio.CancelledError:
            self.send_error(message.id, RpcError(CANCELLED, "the request was cancelled"))
        except Exception as exc:
            log.exception("%s failed", name)
            self.send_error(message.id, RpcError(INTERNAL_ERROR, f"{type(exc).__name__}: {exc}"))
        else:
            if message.id is not UNSET:
                self._send(make_result(message.id, result))

    async def _call(self, name: str, params: Any) -> Json | None:
        method = self.methods.get(name)
        if method is None:
            reason = self.refused.get(name) or self.refused.get(name.partition("/")[0])
            text = f"{name} is not supported: {reason}" if reason else f"unknown method {name!r}"
            raise RpcError(METHOD_NOT_FOUND, text, {"method": name})
        try:
            given = msgspec.convert({} if params is None else params, method.params)
        except msgspec.ValidationError as exc:
            raise RpcError(INVALID_PARAMS, f"{name}: {exc}") from None
        return await method.handle(given)

    # Sending.

    async def request(self, method: str, params: Json) -> Any:
        """The peer's result. Raises RpcError, and ConnectionError if the connection is closed.

        If the caller is cancelled, the peer is told that its answer is no longer needed.
        """
        if self._is_closed:
            raise ConnectionError("the client has disconnected")
        self._count += 1
        id, future = self._count, asyncio.get_running_loop().create_future()
        self._pending[id] = future
        try:
            self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            return await future
        except asyncio.CancelledError:
            self.notify(CANCEL, {"requestId": id})
            raise
        finally:
            self._pending.pop(id, None)

    def notify(self, method: str, params: Json) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def send_error(self, id: RequestId | None | UnsetType, error: RpcError) -> None:
        """A notification, which has no id, gets no response."""
        if id is not UNSET:
            self._send(make_error(id, error))

    def _send(self, message: Json) -> None:
        if not self._is_closed:
            self._write(msgspec.json.encode(message) + b"\n")

    def disconnect(self) -> None:
        """The peer is gone: nothing more is sent, and requests that wait for it fail."""
        self._is_closed = True
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionError("the client has disconnected"))

    async def close(self) -> None:
        """End the handlers that still run. Call it after what they wait for has ended."""
        self.disconnect()
        await self._running.close()
