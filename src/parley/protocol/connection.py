"""One end of a protocol connection, without I/O.

`receive(data)` returns the messages that the bytes complete; `send(message)` returns the bytes to write. Violations by
the peer become `Refused` messages: a message that it may not send, a reply to no request, a reused request id. Our own
violations raise `LocalProtocolError`.

    stdin -> receive() -> messages -> session -> send() -> stdout

`senders` of a message or request says which end may send it. Request ids are tracked per direction, because both ends
choose them independently.

See also: messages are handled in `engine/session/session.py`, encoded in `dialects/`, and read and written in
`transports/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from parley.errors import LocalProtocolError, UnexpectedAnswer
from parley.protocol.base import ENGINE_ONLY, Json, Message, Refused, Role, find_duplicate_key
from parley.protocol.dialects.base import Dialect, Reply
from parley.protocol.framing import INBOUND_CAP, Framer, Line, OverlongLine
from parley.protocol.messages.control import (
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    RequestId,
)
from parley.protocol.messages.conversation import StreamEvent
from parley.protocol.messages.requests import (
    Request,
)

OPENING = rb"\s*\{"
MEMBER = rb'\s*("(?:[^"\\]|\\.)*")\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+|true|false|null)\s*,'


def may_send(role: Role, message: Message) -> bool:
    """Whether this end may send this message."""
    if isinstance(message, ControlRequest) and isinstance(message.request, Request):
        return role in message.request.senders
    return role in message.senders


class Connection:
    """One end of the connection."""

    def __init__(self, role: Role, dialect: Dialect, cap_bytes: int = INBOUND_CAP) -> None:
        self.role = role
        self.our_requests: set[RequestId] = set()
        self.peer_requests: set[RequestId] = set()
        self._dialect = dialect
        self._framer = Framer(cap_bytes)

    @property
    def can_request(self) -> bool:
        """Whether the dialect supports requests to the peer."""
        return self._dialect.can_request

    def receive(self, chunk: bytes) -> list[Message]:
        """The messages that these bytes complete."""
        return list(self.iter_messages(chunk))

    def iter_messages(self, chunk: bytes) -> Iterator[Message]:
        """The same as an iterator. A line is decoded only after the messages of the previous one were consumed."""
        for line in self._framer.feed(chunk):
            yield from self._handle_line(line)

    def end(self) -> list[Message]:
        """The messages of the last, unterminated line after the peer closed the stream."""
        return [message for line in self._framer.end() for message in self._handle_line(line)]

    def send(self, *messages: Message) -> bytes:
        """The bytes of messages. Raises LocalProtocolError if we may not send one."""
        # Stream events are frequent, sent by engines only, and open no request.
        if self.role is Role.HOST or {*map(type, messages)} != {StreamEvent}:
            for message in messages:
                self._check(message)
        elif len(messages) > 1 and (encode_events := getattr(self._dialect, "encode_events", None)) is not None:
            data: bytes = encode_events(messages)
            return data
        lines = [line for message in messages for line in self._dialect.encode(message)]
        return b"\n".join([*lines, b""])

    def _check(self, message: Message) -> None:
        if not may_send(self.role, message):
            raise LocalProtocolError(f"the {self.role.value} must not send {type(message).__name__}")
        match message:
            case ControlRequest(request_id=request_id):
                if request_id in self.our_requests:
                    raise LocalProtocolError(f"request id {request_id!r} is already used by an unanswered request")
                self.our_requests.add(request_id)
            case ControlCancelRequest(request_id=request_id):
                self.our_requests.discard(request_id)
            case ControlResponse(response=answer) if isinstance(answer.request_id, str | int):
                if answer.request_id not in self.peer_requests:
                    raise LocalProtocolError(f"there is no unanswered request {answer.request_id!r} of the peer")
                self.peer_requests.discard(answer.request_id)

    def _handle_line(self, line: Line) -> list[Message]:
        if isinstance(line, OverlongLine):
            return [self._validate(refuse_overlong(line))]
        messages = self._dialect.decode(line)
        if self.role is Role.ENGINE:
            messages = [
                refuse_duplicate_keys(message, line) if type(message) is ControlResponse else message
                for message in messages
            ]
        return [message if type(message) is Reply else self._validate(message) for message in messages]

    def _validate(self, message: Message) -> Message:
        """The message, or a refusal."""
        if self.role is Role.HOST and message.senders is ENGINE_ONLY:
            return message  # as most messages of an engine: neither a request nor a reply
        match message:
            case Refused(request_id=str() | int() as request_id):
                return self._open_request(request_id, message)
            case Refused(answers=str() | int() as request_id):
                self.our_requests.discard(request_id)
            case _ if not may_send(self.role.peer, message):
                return self._refuse(message)
            case ControlRequest(request_id=request_id):
                return self._open_request(request_id, message)
            case ControlResponse(response=answer):
                if answer.request_id not in self.our_requests:
                    waiting = [str(open_id) for open_id in self.our_requests]
                    reason = str(UnexpectedAnswer(answer.request_id, waiting))
                    return Refused(reason=reason, kind="control_response")
                self.our_requests.discard(answer.request_id)
            case ControlCancelRequest(request_id=request_id):
                self.peer_requests.discard(request_id)
        return message

    def _refuse(self, message: Message) -> Message:
        name, peer = type(message).__name__, self.role.peer.value
        if isinstance(message, ControlRequest):
            reason = f"the {peer} must not send the request {message.request.subtype}"
            refused = Refused(reason=reason, kind="control_request", request_id=message.request_id)
            return self._open_request(message.request_id, refused)
        return Refused(reason=f"the {peer} must not send {name}", kind=name.lower())

    def _open_request(self, request_id: RequestId, message: Message) -> Message:
        """Record that the peer waits for a reply. An open id must not be answered twice."""
        if request_id in self.peer_requests:
            return Refused(
                reason=f"request id {request_id!r} is already used by an unanswered request", kind="control_request"
            )
        self.peer_requests.add(request_id)
        return message


def refuse_duplicate_keys(message: ControlResponse, line: bytes) -> ControlResponse | Refused:
    """Refuse a reply with duplicate keys at any depth, because replies carry decisions."""
    problem = find_duplicate_key(line)
    if problem is None:
        return message
    answers = message.response.request_id
    return Refused(
        reason=f"control_response: {problem}",
        kind="control_response",
        answers=answers if isinstance(answers, str | int) else None,
    )


def refuse_overlong(line: OverlongLine) -> Refused:
    """The refusal of an overlong line, with the ids that its head contains, so that a waiting peer gets a reply."""
    reason = f"the line is longer than {line.cap_bytes} bytes and was dropped"
    found = read_members(line.head)
    match found:
        case {"type": "control_request", "request_id": str() | int() as request_id} if not isinstance(request_id, bool):
            return Refused(reason=reason, kind="control_request", request_id=request_id)
        case {"type": "control_response"}:
            answers = read_members(line.head.partition(b'"response":')[2]).get("request_id")
            is_id = isinstance(answers, str | int) and not isinstance(answers, bool)
            return Refused(reason=reason, kind="control_response", answers=answers if is_id else None)
        case {"type": str() as kind}:
            return Refused(reason=reason, kind=kind)
    return Refused(reason=reason)


def read_members(head: bytes) -> Json:
    """The simple members of a truncated JSON object, before its first long or nested value.

    Clients write the type and id of a line before any long value, so they are enough to answer a dropped line.
    """
    found: Json = {}
    member = re.compile(MEMBER)
    match = re.match(OPENING, head)
    while match is not None and (match := member.match(head, match.end())) is not None:
        try:
            found[msgspec.json.decode(match[1], type=str)] = msgspec.json.decode(match[2])
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
    return found
