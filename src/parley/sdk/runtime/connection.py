"""The client's end of a connection to an engine.

One job reads lines until the engine closes its output. Responses are passed to the pending request;
each request of the engine is answered by a separate job; all other messages go to `deliver`, in order.
The reader never waits for a callback.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from parley.protocol.base import UNSET, Message, Refused, Role, decode, encode_json
from parley.protocol.connection import Connection
from parley.protocol.dialects.base import StreamJson
from parley.protocol.messages.control import (
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    Failure,
    RequestId,
    Success,
)
from parley.protocol.messages.dialects import JsonRpc
from parley.protocol.messages.notices import KeepAlive
from parley.protocol.messages.requests import Request, UnknownRequest
from parley.sdk.errors import ClaudeSDKError, CLIConnectionError, ControlError, ControlTimeout, describe_exception
from parley.sdk.permissions import Signal
from parley.sdk.runtime.background import Job, is_stray, log, start
from parley.sdk.runtime.transport import Ended, Wire

LINE_CAP_BYTES = 64 * 1024 * 1024
WAIT_SECONDS = 60.0
CALLBACK_GRACE_SECONDS = 5.0
"""How long callbacks have to end after they are cancelled."""
READ_GRACE_SECONDS = 1.0
"""How long to wait for the remaining output after the wire is closed."""

HANDLED = frozenset({ControlCancelRequest, ControlRequest, ControlResponse, JsonRpc, KeepAlive, Refused})
"""The messages that are not only delivered."""

Handler = Callable[[Request | UnknownRequest, Signal], Awaitable[Any]]
"""Answers a request of the engine. If it raises, the engine receives the exception's text as an error."""


class PendingResponse:
    """A request of ours that waits for its response."""

    def __init__(self, subtype: str) -> None:
        from anyio import Event

        self.subtype = subtype
        self.event = Event()
        self.response: Success | Failure | None = None


class EngineConnection:
    """Sends messages and requests over a `Wire`, and dispatches what the engine sends."""

    def __init__(
        self,
        wire: Wire,
        deliver: Callable[[Message], None],
        answer: Handler,
        cap_bytes: int = LINE_CAP_BYTES,
    ) -> None:
        self.wire = wire
        self.end: Ended | None = None
        """How the engine exited, or None while it runs."""
        self.error: BaseException | None = None
        """The exception that ended the reading, if any."""
        self._deliver = deliver
        self._answer = answer
        self._connection = Connection(Role.HOST, StreamJson(), cap_bytes)
        self._pending: dict[RequestId, PendingResponse] = {}
        self._answering: dict[RequestId, tuple[Job, Signal]] = {}
        self._count = 0
        self._reading: Job | None = None
        self.closing = False
        """Whether the client is closing the connection. The engine's exit is not an error then."""
        self.on_end: Callable[[], None] = lambda: None

    async def open(self) -> None:
        await self.wire.open()
        self._reading = start(self._read)

    @property
    def is_open(self) -> bool:
        return self._reading is not None and self.end is None

    def send(self, message: Message) -> None:
        """Raises CLIConnectionError if the engine has exited."""
        if not self.is_open:
            raise CLIConnectionError("the engine has exited")
        self.wire.write(self._connection.send(message))

    async def flush(self) -> None:
        await self.wire.flush()

    async def request(self, request: Request, timeout_seconds: float = WAIT_SECONDS) -> Any:
        """Send a request; returns the response's payload. Raises ControlError, ControlTimeout, CLIConnectionError."""
        from anyio import move_on_after

        self._count += 1
        request_id = f"req_{self._count}"
        waiting = self._pending[request_id] = PendingResponse(request.subtype)
        try:
            self.send(ControlRequest(request_id=request_id, request=request))
            with move_on_after(timeout_seconds if math.isfinite(timeout_seconds) else math.inf):
                await self.flush()
                await waiting.event.wait()
        finally:
            del self._pending[request_id]
            if waiting.response is None and request_id in self._connection.our_requests:
                with suppress(ClaudeSDKError):
                    self.send(ControlCancelRequest(request_id=request_id))
        return unwrap_response(waiting, request.subtype, timeout_seconds, self.end is not None)

    async def wait_finished(self, seconds: float) -> None:
        """Wait until all output of the engine is read, at most this long."""
        from anyio import CancelScope, move_on_after

        if self._reading is not None:
            with CancelScope(shield=True), move_on_after(seconds):
                await self._reading.wait()

    async def close(self, busy: bool = False) -> Ended:
        """End the engine; returns when it and its children have exited."""
        from anyio import CancelScope, move_on_after

        with CancelScope(shield=True):
            # A callback that closes its own client is neither awaited nor cancelled; its response is dropped.
            self._answering = {key: entry for key, entry in self._answering.items() if not entry[0].is_ours}
            jobs = list(self._answering.values())
            for job, signal in jobs:
                signal.aborted = True
                job.cancel()
            ended = await self.wire.close(busy)
            with move_on_after(CALLBACK_GRACE_SECONDS):
                for job, _ in jobs:
                    await job.wait()
            if self._reading is not None:
                with move_on_after(READ_GRACE_SECONDS):
                    await self._reading.wait()
                self._reading.cancel()
            self._finish(self.end or ended)
        return ended

    def abandon(self) -> None:
        """End the engine without waiting, because the client was collected. Its loop may be closed."""
        self.wire.abandon()

    async def _read(self) -> None:
        ended = Ended()
        try:
            async for chunk in self.wire.chunks():
                for message in self._connection.receive(chunk):
                    self._handle(message)
            for message in self._connection.end():
                self._handle(message)
            ended = await self.wire.ended()
        except Exception as exc:
            self.error = exc
        except BaseException:
            # The loop is ending, so close() will not be called.
            self.wire.abandon()
            raise
        finally:
            self._finish(ended)

    def _finish(self, ended: Ended) -> None:
        if self.end is not None:
            return
        self.end = ended
        for waiting in self._pending.values():
            waiting.event.set()
        self.on_end()

    def _handle(self, message: Message) -> None:
        if type(message) not in HANDLED:
            self._deliver(message)
            return
        match message:
            case ControlResponse(response=response):
                self._wake(response)
            case ControlRequest():
                self._start_answer(message)
            case ControlCancelRequest(request_id=request_id):
                self._withdraw(request_id)
            case Refused(request_id=str() | int() as request_id):
                self._reply(request_id, Failure(request_id=request_id, error=message.reason))
                self._deliver(message)
            case Refused(answers=str() | int() as request_id):
                self._wake(Failure(request_id=request_id, error=message.reason, error_code="unreadable"))
            case Refused(kind="control_response"):
                log.debug("ignored a response without a pending request: %s", message.reason)
            case KeepAlive():
                pass
            case JsonRpc(result={"type": str()} as frame):
                self._deliver(decode(encode_json(frame)))
            case _:
                self._deliver(message)

    def _wake(self, response: Success | Failure) -> None:
        waiting = self._pending.get(response.request_id)  # type: ignore[arg-type]  # the connection checked it
        if waiting is not None:
            waiting.response = response
            waiting.event.set()

    def _start_answer(self, control: ControlRequest) -> None:
        request_id, signal = control.request_id, Signal()

        async def work() -> None:
            try:
                await self._respond(control, signal)
            finally:
                self._answering.pop(request_id, None)

        self._answering[request_id] = (start(work), signal)

    async def _respond(self, control: ControlRequest, signal: Signal) -> None:
        request_id = control.request_id
        try:
            payload = await self._answer(control.request, signal)
            self._reply(request_id, Success(request_id=request_id, response=payload))
        except Exception as exc:
            log.debug("the callback for the request %s failed", control.request.subtype, exc_info=True)
            self._reply(request_id, Failure(request_id=request_id, error=describe_exception(exc)))
        except GeneratorExit:
            raise  # the loop is closed
        except BaseException as exc:
            if not signal.aborted:
                # Neither the engine nor the client cancelled the callback, so the engine still waits for a response.
                error = f"the callback ended with {type(exc).__name__}"
                self._reply(request_id, Failure(request_id=request_id, error=error))
            if not is_stray(exc):
                raise
            log.warning("the callback for the request %s was cancelled", control.request.subtype, exc_info=True)
        with suppress(CLIConnectionError):
            await self.flush()

    def _reply(self, request_id: RequestId, response: Success | Failure) -> None:
        """Send a response, unless the request was cancelled or the engine has exited."""
        if request_id not in self._connection.peer_requests:
            return
        try:
            encode_json(response)
        except (TypeError, ValueError, NotImplementedError, OverflowError) as exc:
            # A callback may return a value that cannot be encoded.
            response = Failure(request_id=request_id, error=f"the callback's return value is not JSON: {exc}")
        data = self._connection.send(ControlResponse(response=response))
        with suppress(CLIConnectionError):
            self.wire.write(data)

    def _withdraw(self, request_id: RequestId) -> None:
        found = self._answering.get(request_id)
        if found is not None:
            job, signal = found
            signal.aborted = True
            job.cancel()


def unwrap_response(waiting: PendingResponse, subtype: str, timeout_seconds: float, has_exited: bool) -> Any:
    """Return the payload of a response. Raises ControlError, ControlTimeout, CLIConnectionError."""
    match waiting.response:
        case Success(response=payload):
            return None if payload is UNSET else payload
        case Failure(error=error, error_code=code):
            raise ControlError(error or f"{subtype} failed", subtype, None if code is UNSET else code)
    if has_exited:
        raise CLIConnectionError(f"the engine exited before it answered {subtype}")
    raise ControlTimeout(f"{subtype} was not answered within {timeout_seconds:g} s", subtype)
