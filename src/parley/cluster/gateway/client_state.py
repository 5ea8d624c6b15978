"""What a client has said and heard on its connection to a session, so that another owner can continue it.

    state.note_sent(data)        a message of the client; returns what is passed on
    state.note_taken(count)      the owner has committed what the first messages on this stream changed
    state.select(lines)          the lines of the owner that the client gets
    state.start_again(...)       the next owner: returns the messages that it gets first, and the lines for the client

A prompt is kept until its result has come, a control request until it is answered, everything else until it is
committed. All of it is sent again under the same ids, and has one effect.
"""

from __future__ import annotations

from collections import deque
from typing import Any
from uuid import uuid4

import msgspec

from parley.cluster.bridge.messages import ANSWER, LIVE
from parley.gateway.live_session import CALLBACKS, has_only_tool_results, make_own_uuid
from parley.gateway.subscriber import REPLY, Numbered
from parley.protocol.base import Json, Struct
from parley.protocol.peek import Head, peek

DECLARATIONS = ("initialize", "mcp_set_servers")
"""The requests by which a client says what it provides."""
ENDED_STATES = frozenset({"completed", "cancelled"})
NUMBERS = {LIVE: None, ANSWER: REPLY}
MOST_KEPT = 10_000
"""How many lines of a client are kept at most; the oldest make room."""


class SentLine(Struct):
    """A line of the client that the next owner may not know."""

    line: bytes
    prompt: str = ""
    """The id of a prompt."""
    request_id: Any = None
    """The id of a control request."""
    answers: str = ""
    """The id of the request of the engine that it answers."""


class ClientState:
    def __init__(self, cursor: int | None, *, numbered: bool) -> None:
        """`cursor`: the number after which the client wants lines; None for new lines only."""
        self.cursor = cursor
        """The number of the last stored line that the client has."""
        self._numbered = numbered
        self._kept: dict[int, SentLine] = {}
        """The lines that may have to be sent again, in the order in which they came."""
        self._count = 0
        self._untaken: deque[tuple[list[int], int]] = deque()
        """The messages on the current stream that were not taken: the lines of each, and its size."""
        self._taken = 0
        self.untaken_bytes = 0
        self._declared: dict[str, bytes] = {}
        """The last request of each kind that an engine has answered and the next one has to know."""
        self._repeated_ids: set[Any] = set()
        """The ids under which they were sent again; the client has got the replies."""
        self._asked: set[str] = set()
        """The requests of the engine that the client has."""
        self._callbacks: set[str] = set()
        """Those of them that only the engine that sent them knows."""
        self._stale: set[str] = set()
        """Those whose engine is gone."""
        self._is_repeated = False
        """Whether the connection was continued by another owner."""

    # From the client.

    def note_sent(self, data: bytes) -> bytes:
        """Take a message of the client; returns it as it is passed on. Empty if nothing is."""
        passed, numbers = list[bytes](), list[int]()
        for line in data.split(b"\n"):
            if not (line := line.strip()):
                continue
            sent = self._read(line)
            if sent is None:
                continue
            passed.append(sent.line)
            self._count += 1
            self._kept[self._count] = sent
            numbers.append(self._count)
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        message = b"\n".join(passed)
        if message:
            self._expect_taken(numbers, len(message))
        return message

    def _read(self, line: bytes) -> SentLine | None:
        """What has to be remembered of a line; None if it answers an engine that is gone."""
        try:
            head = peek(line)
            given: Json = msgspec.json.decode(line) if head.type in ("control_request", "user") else {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return SentLine(line)  # the session says what is wrong with it
        if head.type == "control_request" and head.request_id is not None:
            return SentLine(line, request_id=head.request_id)
        if head.type == "control_response":
            answered = head.response.request_id
            if answered in self._stale:
                self._stale.discard(str(answered))
                return None
            return SentLine(line, answers=str(answered))
        return self._read_prompt(line, given) if head.type == "user" else SentLine(line)

    def _read_prompt(self, line: bytes, given: Json) -> SentLine:
        message, uuid = given.get("message"), given.get("uuid")
        if not isinstance(message, dict) or has_only_tool_results(message):
            return SentLine(line)
        if not isinstance(uuid, str) or not uuid:
            uuid = make_own_uuid()
            line = msgspec.json.encode({**given, "uuid": uuid})
        if any(sent.prompt == uuid for sent in self._kept.values()):
            return SentLine(line)  # it has one result with the first one, or is refused
        return SentLine(line, prompt=uuid)

    def _expect_taken(self, numbers: list[int], size: int) -> None:
        self._untaken.append((numbers, size))
        self.untaken_bytes += size

    def note_taken(self, count: int) -> None:
        """The owner has handled so many messages of the current stream."""
        while self._taken < count and self._untaken:
            self._taken += 1
            numbers, size = self._untaken.popleft()
            self.untaken_bytes -= size
            for number in numbers:
                sent = self._kept.get(number)
                if sent is not None and not sent.prompt and sent.request_id is None:
                    del self._kept[number]

    @property
    def oldest_unhandled(self) -> int:
        """The number of the oldest line that no owner has committed or answered; 0 if there is none.

        Prompts that are committed do not count: the owner has them.
        """
        untaken = {number for numbers, _ in self._untaken for number in numbers}
        found = (number for number, sent in self._kept.items() if number in untaken or sent.request_id is not None)
        return next(found, 0)

    # From the owner.

    def select(self, lines: list[tuple[int, bytes]]) -> list[Numbered]:
        """The lines that the client gets: each stored one once."""
        return [(NUMBERS.get(number, number), line) for number, line in lines if self._is_wanted(number, line)]

    def _is_wanted(self, number: int, line: bytes) -> bool:
        if number > LIVE:
            if self.cursor is not None and number <= self.cursor:
                return False
            self.cursor = number
        head = peek(line)
        match head.type:
            case "control_response":
                return self._note_response(head)
            case "control_request":
                return self._note_request(head)
            case "control_cancel_request":
                self._asked.discard(str(head.request_id))
                self._callbacks.discard(str(head.request_id))
            case "result":
                self._drop_prompts(head.user_message_uuids or [])
            case "command_lifecycle" if head.state in ENDED_STATES:
                self._drop_prompts([head.command_uuid])
            case "user" if self._is_repeated:
                return all(sent.prompt != head.uuid for sent in self._kept.values() if sent.prompt)
        return True

    def _note_response(self, head: Head) -> bool:
        request_id = head.response.request_id
        if request_id in self._repeated_ids:
            self._repeated_ids.discard(request_id)
            return False
        for number, sent in list(self._kept.items()):
            if sent.request_id is not None and sent.request_id == request_id:
                del self._kept[number]
                if (kind := subtype_of(sent.line)) in DECLARATIONS:
                    self._declared[kind] = sent.line
                break
        return True

    def _note_request(self, head: Head) -> bool:
        """An engine that continues asks again under the same id. The client is already working on the answer."""
        request_id = str(head.request_id)
        is_known = request_id in self._asked
        self._asked.add(request_id)
        self._stale.discard(request_id)  # the next engine asks again, and waits for this answer
        if head.request.subtype in CALLBACKS:
            self._callbacks.add(request_id)
        return self._numbered or not (is_known and self._is_repeated)

    def _drop_prompts(self, uuids: list[Any]) -> None:
        for number, sent in list(self._kept.items()):
            if sent.prompt and sent.prompt in uuids:
                del self._kept[number]

    # The next owner.

    def _repeat(self, line: bytes) -> bytes:
        """A request under an id of ours, because the client has its reply."""
        request_id = f"again-{uuid4()}"
        self._repeated_ids.add(request_id)
        return msgspec.json.encode({**msgspec.json.decode(line), "request_id": request_id})

    def start_again(self, *, is_first: bool) -> tuple[list[bytes], list[Numbered]]:
        """What the next owner is sent first, and what the client gets before its lines.

        The callbacks that the client works on are withdrawn, and its answers to them are forgotten: the next engine
        asks again, PreToolUse hooks under the same ids.
        """
        self._is_repeated = not is_first
        self._kept = {number: sent for number, sent in self._kept.items() if sent.answers not in self._callbacks}
        self._untaken.clear()
        self._taken = self.untaken_bytes = 0
        messages = [sent.line for sent in self._kept.values()]
        waiting = {subtype_of(sent.line) for sent in self._kept.values() if sent.request_id is not None}
        declared = [line for kind, line in self._declared.items() if kind not in waiting]
        messages[:0] = [self._repeat(line) for line in declared]
        for _ in declared:
            self._expect_taken([], 0)
        for number, sent in self._kept.items():
            self._expect_taken([number], len(sent.line))
        withdrawn = list[Numbered]()
        for request_id in sorted(self._callbacks):
            line = {"type": "control_cancel_request", "request_id": request_id}
            withdrawn.append((None, msgspec.json.encode(line)))
        self._stale |= self._callbacks
        self._asked -= self._callbacks
        self._callbacks.clear()
        return messages, withdrawn


def subtype_of(line: bytes) -> str:
    return peek(line).request.subtype or ""
