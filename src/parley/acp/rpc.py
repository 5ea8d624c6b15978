"""JSON-RPC 2.0 in both directions, without I/O.

`receive(line)` dispatches a message of the peer: a request or notification to its handler, in a task of its own, a
response to the request that waits for it. `request` and `notify` write messages. A handler that raises `RpcError` sends
that error; an invalid message gets an error response, and the connection continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
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


class RpcError(Exception):
    """An error response, from either side."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Incoming(Struct, frozen=True, kw_only=True):
    """Any message. A request has a method and an id, a notification only a method, a response only an id."""

    id: int | str | None | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Any = None
    result: Any = UNSET
    error: Json | UnsetType = UNSET


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
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[int | str, asyncio.Task[None]] = {}
        """The requests of the peer that are being handled, by id."""
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
            self._cancel(message.params)
        elif isinstance(message.method, str) and len(self._tasks) >= MOST_RUNNING:
            self.send_error(message.id, RpcError(INVALID_REQUEST, f"{MOST_RUNNING} requests are open; wait for one"))
        elif isinstance(message.method, str):
            task = asyncio.create_task(self._run(message, message.method))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if isinstance(id := message.id, int | str):
                self._running[id] = task
                task.add_done_callback(lambda _: self._running.pop(id, None))
        elif isinstance(message.id, int) and (future := self._pending.pop(message.id, None)) is not None:
            if not future.done():
                self._settle(future, message)
        elif message.id is UNSET:
            self.send_error(None, RpcError(INVALID_REQUEST, "the message has neither a method nor an id"))

    def _cancel(self, params: Any) -> None:
        id = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(id, int | str) and (task := self._running.get(id)) is not None:
            task.cancel()

    def _settle(self, future: asyncio.Future[Any], message: Incoming) -> None:
        if isinstance(message.error, dict):
            code, text = message.error.get("code"), message.error.get("message")
            future.set_exception(RpcError(code if isinstance(code, int) else INTERNAL_ERROR, str(text)))
        else:
            future.set_result(None if message.result is UNSET else message.result)

    async def _run(self, message: Incoming, name: str) -> None:
        try:
            result = await self._call(name, message.params)
        except RpcError as exc:
            if message.id is UNSET:
                log.warning("notification %s: %s", name, exc)
            else:
                self.send_error(message.id, exc)
        except asyncio.CancelledError:
            self.send_error(message.id, RpcError(CANCELLED, "the request was cancelled"))
        except Exception as exc:
            log.exception("%s failed", name)
            if message.id is not UNSET:
                self.send_error(message.id, RpcError(INTERNAL_ERROR, f"{type(exc).__name__}: {exc}"))
        else:
            if message.id is not UNSET:
                self._send({"id": message.id, "result": result})

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
            self._send({"id": id, "method": method, "params": params})
            return await future
        except asyncio.CancelledError:
            self.notify(CANCEL, {"requestId": id})
            raise
        finally:
            self._pending.pop(id, None)

    def notify(self, method: str, params: Json) -> None:
        self._send({"method": method, "params": params})

    def send_error(self, id: int | str | None | UnsetType, error: RpcError) -> None:
        data = {} if error.data is None else {"data": error.data}
        self._send({"id": id, "error": {"code": error.code, "message": str(error), **data}})

    def _send(self, message: Json) -> None:
        if not self._is_closed:
            self._write(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")

    def disconnect(self) -> None:
        """The peer is gone: nothing more is sent, and requests that wait for it fail."""
        self._is_closed = True
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionError("the client has disconnected"))

    async def close(self) -> None:
        """End the handlers that still run. Call it after what they wait for has ended."""
        self.disconnect()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
