"""The client's end of the wire: lines in, messages out, questions both ways.

One job reads for as long as the engine speaks. Answers wake whoever asked; questions of the
engine are answered beside everything else, each by a job of its own; all other messages go
to `deliver`, in their order. The reader waits for nobody.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from parley.protocol.base import UNSET, Message, Refused, decode, spell
from parley.protocol.connection import Connection
from parley.protocol.dialects.stream_json import StreamJson
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
from parley.protocol.roles import Role
from parley.sdk.errors import ClaudeSDKError, CLIConnectionError, ControlError, ControlTimeout
from parley.sdk.permissions import Signal
from parley.sdk.runtime.background import Job, is_stray, log, start
from parley.sdk.runtime.transport import Ended, Wire

LINE_CAP_BYTES = 64 * 1024 * 1024
WAIT_SECONDS = 60.0
CALLBACK_GRACE_SECONDS = 5.0
"""How long callbacks have to end once they are cancelled."""
READ_GRACE_SECONDS = 1.0
"""How long a way that is closed may still have something to say."""

Answer = Callable[[Request | UnknownRequest, Signal], Awaitable[Any]]
"""Answers a question of the engine; what it raises is told as the reason why it cannot."""


class Waiting:
    """One who asked, until the answer is there."""

    def __init__(self, subtype: str) -> None:
        from anyio import Event

        self.subtype = subtype
        self.event = Event()
        self.response: Success | Failure | None = None


class Link:
    def __init__(
        self,
        wire: Wire,
        deliver: Callable[[Message], None],
        answer: Answer,
        cap_bytes: int = LINE_CAP_BYTES,
    ) -> None:
        self.wire = wire
        self.end: Ended | None = None
        """How the engine ended, once it has."""
        self.flaw: BaseException | None = None
        """What broke the reading of it, if something did."""
        self._deliver = deliver
        self._answer = answer
        self._connection = Connection(Role.HOST, StreamJson(), cap_bytes)
        self._waiting: dict[RequestId, Waiting] = {}
        self._answering: dict[RequestId, tuple[Job, Signal]] = {}
        self._count = 0
        self._reading: Job | None = None
        self.closing = False
        """Whether the client wants it to end: then nothing is wrong with its end."""
        self.on_end: Callable[[], None] = lambda: None

    async def open(self) -> None:
        await self.wire.open()
        self._reading = start(self._read)

    @property
    def is_open(self) -> bool:
        return self._reading is not None and self.end is None

    def send(self, message: Message) -> None:
        """Raises CLIConnectionError if nobody is there any more."""
        if not self.is_open:
            raise CLIConnectionError("the engine is not there any more")
        self.wire.write(self._connection.send(message))

    async def flush(self) -> None:
        await self.wire.flush()

    async def ask(self, request: Request, timeout_seconds: float = WAIT_SECONDS) -> Any:
        """The payload of the engine's answer. Raises ControlError, ControlTimeout, CLIConnectionError."""
        from anyio import move_on_after

        self._count += 1
        request_id = f"req_{self._count}"
        waiting = self._waiting[request_id] = Waiting(request.subtype)
        try:
            self.send(ControlRequest(request_id=request_id, request=request))
            with move_on_after(timeout_seconds if math.isfinite(timeout_seconds) else math.inf):
                await self.flush()
                await waiting.event.wait()
        finally:
            del self._waiting[request_id]
            if waiting.response is None and request_id in self._connection.asked_by_us:
                with suppress(ClaudeSDKError):
                    self.send(ControlCancelRequest(request_id=request_id))
        return answered(waiting, request.subtype, timeout_seconds, self.end is not None)

    async def over(self, seconds: float) -> None:
        """Wait until the engine has said all it has to say, but no longer."""
        from anyio import CancelScope, move_on_after

        if self._reading is not None:
            with CancelScope(shield=True), move_on_after(seconds):
                await self._reading.wait()

    async def close(self, busy: bool = False) -> Ended:
        """End everything; returns when the engine and all it started are gone."""
        from anyio import CancelScope, move_on_after

        with CancelScope(shield=True):
            # A callback that closes its own client is neither waited for nor withdrawn: its answer goes nowhere.
            self._answering = {asked: one for asked, one in self._answering.items() if not one[0].is_ours}
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
        """The client is gone, and perhaps its loop."""
        self.wire.abandon()

    async def _read(self) -> None:
        ended = Ended()
        try:
            async for chunk in self.wire.chunks():
                for message in self._connection.receive(chunk):
                    self._take(message)
            for message in self._connection.end():
                self._take(message)
            ended = await self.wire.ended()
        except Exception as flaw:
            self.flaw = flaw
        except BaseException:
            # The loop is ending, and nobody will close us.
            self.wire.abandon()
            raise
        finally:
            self._finish(ended)

    def _finish(self, ended: Ended) -> None:
        if self.end is not None:
            return
        self.end = ended
        for waiting in self._waiting.values():
            waiting.event.set()
        self.on_end()

    def _take(self, message: Message) -> None:
        match message:
            case ControlResponse(response=response):
                self._wake(response)
            case ControlRequest():
                self._begin(message)
            case ControlCancelRequest(request_id=asked):
                self._withdraw(asked)
            case Refused(request_id=str() | int() as asked):
                self._reply(asked, Failure(request_id=asked, error=message.reason))
                self._deliver(message)
            case Refused(answers=str() | int() as asked):
                self._wake(Failure(request_id=asked, error=message.reason, error_code="unreadable"))
            case Refused(kind="control_response"):
                log.debug("an answer to what nobody asks any more: %s", message.reason)
            case KeepAlive():
                pass
            case JsonRpc(result={"type": str()} as frame):
                self._deliver(decode(spell(frame)))
            case _:
                self._deliver(message)

    def _wake(self, response: Success | Failure) -> None:
        waiting = self._waiting.get(response.request_id)  # type: ignore[arg-type]  # the connection checked it
        if waiting is not None:
            waiting.response = response
            waiting.event.set()

    def _begin(self, question: ControlRequest) -> None:
        asked, signal = question.request_id, Signal()

        async def work() -> None:
            try:
                await self._respond(question, signal)
            finally:
                self._answering.pop(asked, None)

        self._answering[asked] = (start(work), signal)

    async def _respond(self, question: ControlRequest, signal: Signal) -> None:
        asked = question.request_id
        try:
            payload = await self._answer(question.request, signal)
            self._reply(asked, Success(request_id=asked, response=payload))
        except Exception as flaw:
            log.debug("a callback for %s failed", question.request.subtype, exc_info=True)
            self._reply(asked, Failure(request_id=asked, error=f"{flaw}" or type(flaw).__name__))
        except GeneratorExit:
            raise  # there is no loop any more
        except BaseException as flaw:
            if not signal.aborted:
                # Neither the engine nor the client ended it, so the engine waits for an answer.
                self._reply(asked, Failure(request_id=asked, error=f"the callback ended with {type(flaw).__name__}"))
            if not is_stray(flaw):
                raise
            log.warning("the callback for %s was cancelled", question.request.subtype, exc_info=True)
        with suppress(CLIConnectionError):
            await self.flush()

    def _reply(self, asked: RequestId, response: Success | Failure) -> None:
        """Nothing, where the question was withdrawn or nobody is there any more."""
        if asked not in self._connection.asked_by_peer:
            return
        try:
            spell(response)
        except (TypeError, ValueError, NotImplementedError, OverflowError) as flaw:
            # A callback may return what no line can say.
            response = Failure(request_id=asked, error=f"the answer is no JSON: {flaw}")
        data = self._connection.send(ControlResponse(response=response))
        with suppress(CLIConnectionError):
            self.wire.write(data)

    def _withdraw(self, asked: RequestId) -> None:
        found = self._answering.get(asked)
        if found is not None:
            job, signal = found
            signal.aborted = True
            job.cancel()


def answered(waiting: Waiting, subtype: str, timeout_seconds: float, is_over: bool) -> Any:
    """The payload, or the error it is."""
    match waiting.response:
        case Success(response=payload):
            return None if payload is UNSET else payload
        case Failure(error=error, error_code=code):
            raise ControlError(error or f"{subtype} failed", subtype, None if code is UNSET else code)
    if is_over:
        raise CLIConnectionError(f"the engine ended before it answered {subtype}")
    raise ControlTimeout(f"{subtype} was not answered within {timeout_seconds:g} s", subtype)
