"""Connects a session with the client at the other end of a transport.

The reader never waits for a turn, a tool or a callback: `Session.handle` returns at once, and a reply of the client
goes straight to the coroutine that waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from parley.engine.session.session import Session
from parley.errors import LocalProtocolError
from parley.host import HostError, HostGone
from parley.protocol.base import Message, Refused
from parley.protocol.connection import Connection
from parley.protocol.dialects.base import Reply
from parley.protocol.messages.control import (
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    Failure,
    RequestId,
    Success,
)
from parley.protocol.messages.requests import Request

if TYPE_CHECKING:
    from parley.transports.base import Transport


class Pump:
    """The client at the other end of a transport."""

    def __init__(self, connection: Connection, transport: Transport, new_id: Callable[[], str]) -> None:
        self._connection = connection
        self._transport = transport
        self._new_id = new_id
        self._waiting: dict[RequestId, asyncio.Future[Any]] = {}
        self._requests: dict[RequestId, ControlRequest] = {}
        self._is_closed = False
        self._is_unread = False
        self.on_disconnect: Callable[[], None] | None = None
        """Called instead of ending the session politely when the client closes its end without `end_session`."""

    def send(self, *messages: Message) -> None:
        if ControlResponse in map(type, messages):
            messages = tuple(message for message in messages if self._is_expected(message))
        self._write(self._connection.send(*messages))

    def _write(self, data: bytes) -> None:
        try:
            self._transport.write(data)
        except BrokenPipeError:
            # The client is gone. The turn continues to its end, which is journalled.
            self._is_closed = self._is_unread = True

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        if self._is_closed or not self._connection.can_request:
            raise HostGone(
                "the client has disconnected" if self._is_closed else "this dialect cannot send requests to the client"
            )
        request_id = request_id or self._new_id()
        if request_id in self._waiting:
            raise LocalProtocolError(f"request id {request_id!r} is already used by an unanswered request")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        question = self._requests[request_id] = ControlRequest(request_id=request_id, request=request)
        self.send(question)
        try:
            return await answer
        except asyncio.CancelledError:
            self.send(ControlCancelRequest(request_id=request_id))
            raise
        finally:
            del self._waiting[request_id], self._requests[request_id]

    async def drain(self) -> bool:
        await self._transport.drain()
        self._write(b"")  # raises if the other end is closed
        return not self._is_unread

    def pending_requests(self) -> list[ControlRequest]:
        return [question for asked, question in self._requests.items() if not self._waiting[asked].done()]

    def receive(self, chunk: bytes, session: Session) -> None:
        self.handle_all(self._connection.iter_messages(chunk), session)

    def handle_all(self, messages: Iterable[Message], session: Session) -> None:
        for message in messages:
            self._dispatch(message, session)

    def close_input(self, session: Session) -> None:
        """The client closed its end: no more input, and no reply to open requests."""
        self.handle_all(self._connection.end(), session)
        if self.on_disconnect is not None and not session.prompt_queue.is_closed:
            self.on_disconnect()
        self.fail_requests(session)
        session.close_input()

    def fail_requests(self, session: Session) -> None:
        """The client cannot reply: fail every open request."""
        self._is_closed = session.outbox.is_client_gone = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(HostGone("the client disconnected before it answered"))

    def _dispatch(self, message: Message, session: Session) -> None:
        if isinstance(message, ControlResponse):
            self._resolve(message.response)
        elif isinstance(message, Reply):
            self._write(b"".join(line + b"\n" for line in message.lines))
        elif isinstance(message, Refused) and message.answers is not None:
            # No other reply will come, so the request fails.
            self._resolve(Failure(request_id=message.answers, error=message.reason))
            session.handle(message)
        else:
            session.handle(message)

    def _resolve(self, response: Success | Failure) -> None:
        answer = self._waiting.get(response.request_id)  # type: ignore[arg-type]  # the connection checked it
        if answer is None or answer.done():
            return
        if isinstance(response, Failure):
            answer.set_exception(HostError(response.error))
        else:
            answer.set_result(response.response)

    def _is_expected(self, message: Message) -> bool:
        """A request may be cancelled by the time its reply arrives."""
        return not isinstance(message, ControlResponse) or (
            message.response.request_id in self._connection.peer_requests
        )


async def serve(transport: Transport, pump: Pump, session: Session, received: Iterable[Message] = ()) -> None:
    """Run until the client closes its end and the last turn is done. `received`: messages that were read before."""
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(read_input(transport, pump, session, received))
        try:
            await session.run_turns()
        finally:
            reader.cancel()
    await transport.drain()


async def read_input(transport: Transport, pump: Pump, session: Session, received: Iterable[Message] = ()) -> None:
    pump.handle_all(received, session)
    async for chunk in transport.chunks():
        pump.receive(chunk, session)
    pump.close_input(session)
