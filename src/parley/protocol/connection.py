"""The rules of the conversation, with no I/O of their own.

A `Connection` is one end. Bytes from the peer go into `receive`, which returns
messages; `send` turns a message into bytes to write. What the protocol forbids
is refused: a line the peer may not say, an answer nobody asked for, a request id
used twice.

    stdin -> receive() -> messages -> session -> send() -> stdout

Ids are counted per direction: both ends number on their own and may pick the same.

Not here: what a message means (engine/session/session.py), how a line is spelled
(dialects/), who reads the pipe (transports/).
"""

from __future__ import annotations

from collections.abc import Iterator

from parley.errors import LocalProtocolError, UnexpectedAnswer
from parley.protocol.base import Message, Refused
from parley.protocol.dialects.base import Dialect, Reply
from parley.protocol.framing import INBOUND_CAP, Framer, Line, OverLong
from parley.protocol.messages.control import (
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    RequestId,
)
from parley.protocol.messages.conversation import StreamEvent
from parley.protocol.roles import Role, may_say
from parley.protocol.truncated import members


class Connection:
    """One end of the wire."""

    def __init__(self, role: Role, dialect: Dialect, cap_bytes: int = INBOUND_CAP) -> None:
        self.role = role
        self.asked_by_us: set[RequestId] = set()
        self.asked_by_peer: set[RequestId] = set()
        self._dialect = dialect
        self._framer = Framer(cap_bytes)

    @property
    def can_ask(self) -> bool:
        """Whether the peer's dialect has words for an answer."""
        return self._dialect.asks

    def receive(self, chunk: bytes) -> list[Message]:
        """The messages that these bytes complete."""
        return list(self.received(chunk))

    def received(self, chunk: bytes) -> Iterator[Message]:
        """The same one by one: no line is looked at before the messages of the last one were taken."""
        for line in self._framer.feed(chunk):
            yield from self._take(line)

    def end(self) -> list[Message]:
        """The peer hung up: what its last, unfinished line says."""
        return [message for line in self._framer.end() for message in self._take(line)]

    def send(self, message: Message) -> bytes:
        """The bytes that say this message. Raises LocalProtocolError if we may not say it."""
        # Stream events are many, an engine's to say, and open no question.
        if type(message) is not StreamEvent or self.role is Role.HOST:
            self._check(message)
        lines = self._dialect.encode(message)
        return lines[0] + b"\n" if len(lines) == 1 else b"".join(line + b"\n" for line in lines)

    def _check(self, message: Message) -> None:
        if not may_say(self.role, message):
            raise LocalProtocolError(f"the {self.role.value} may not say {type(message).__name__}")
        match message:
            case ControlRequest(request_id=asked):
                if asked in self.asked_by_us:
                    raise LocalProtocolError(f"request id {asked!r} is still open")
                self.asked_by_us.add(asked)
            case ControlCancelRequest(request_id=asked):
                self.asked_by_us.discard(asked)
            case ControlResponse(response=answer) if isinstance(answer.request_id, str | int):
                if answer.request_id not in self.asked_by_peer:
                    raise LocalProtocolError(f"the peer does not wait for an answer to {answer.request_id!r}")
                self.asked_by_peer.discard(answer.request_id)

    def _take(self, line: Line) -> list[Message]:
        if isinstance(line, OverLong):
            return [self._judge(dropped(line))]
        said = self._dialect.decode(line)
        if self.role is Role.ENGINE:
            said = [unambiguous(message, line) if type(message) is ControlResponse else message for message in said]
        return [message if type(message) is Reply else self._judge(message) for message in said]

    def _judge(self, message: Message) -> Message:
        """The message, or why it is refused."""
        match message:
            case Refused(request_id=str() | int() as asked):
                return self._opened(asked, message)
            case Refused(answers=str() | int() as asked):
                self.asked_by_us.discard(asked)
            case _ if not may_say(self.role.peer, message):
                return self._refuse(message)
            case ControlRequest(request_id=asked):
                return self._opened(asked, message)
            case ControlResponse(response=answer):
                if answer.request_id not in self.asked_by_us:
                    waiting = [str(asked) for asked in self.asked_by_us]
                    reason = str(UnexpectedAnswer(answer.request_id, waiting))
                    return Refused(reason=reason, kind="control_response")
                self.asked_by_us.discard(answer.request_id)
            case ControlCancelRequest(request_id=asked):
                self.asked_by_peer.discard(asked)
        return message

    def _refuse(self, message: Message) -> Message:
        name, peer = type(message).__name__, self.role.peer.value
        if isinstance(message, ControlRequest):
            reason = f"the {peer} may not ask {message.request.subtype}"
            refused = Refused(reason=reason, kind="control_request", request_id=message.request_id)
            return self._opened(message.request_id, refused)
        return Refused(reason=f"the {peer} may not say {name}", kind=name.lower())

    def _opened(self, asked: RequestId, message: Message) -> Message:
        """Note that the peer waits for an answer. An id that is open already must not be answered twice."""
        if asked in self.asked_by_peer:
            return Refused(reason=f"request id {asked!r} is still open", kind="control_request")
        self.asked_by_peer.add(asked)
        return message


def unambiguous(message: ControlResponse, line: bytes) -> ControlResponse | Refused:
    """The answer of a host, which decides something: it is refused if a key is there twice, at whatever depth."""
    from parley.protocol.duplicate_keys import find_doubled

    wrong = find_doubled(line)
    if wrong is None:
        return message
    answers = message.response.request_id
    return Refused(
        reason=f"control_response: {wrong}",
        kind="control_response",
        answers=answers if isinstance(answers, str | int) else None,
    )


def dropped(line: OverLong) -> Refused:
    """A line that was too long. Whoever waits for what follows from it must be told, so far as its head names him."""
    reason = f"a line is longer than {line.cap_bytes} bytes; it was dropped"
    found = members(line.head)
    match found:
        case {"type": "control_request", "request_id": str() | int() as asked} if not isinstance(asked, bool):
            return Refused(reason=reason, kind="control_request", request_id=asked)
        case {"type": "control_response"}:
            answers = members(line.head.partition(b'"response":')[2]).get("request_id")
            is_id = isinstance(answers, str | int) and not isinstance(answers, bool)
            return Refused(reason=reason, kind="control_response", answers=answers if is_id else None)
        case {"type": str() as kind}:
            return Refused(reason=reason, kind=kind)
    return Refused(reason=reason)
