"""An assistant message while it grows.

    growing = Growing()
    for event in events:
        block = growing.feed(event)     # a finished Block at each content_block_stop, else None

Work per token is one append to a list; texts are joined when their block is done.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from parley.errors import ModelError
from parley.models.base import Delta, Event
from parley.protocol.base import Json, Struct
from parley.protocol.blocks import Block, Text, ToolUse, read
from parley.protocol.messages.conversation import AssistantContent
from parley.protocol.messages.notices import RateLimitInfo

# Which field of a block each type of delta adds to, and the delta's own name for it.
TEXT_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("input", "partial_json"),
    "signature_delta": ("signature", "signature"),
}
UNREADABLE = "__unparsedToolInput"
"""The key under which a tool call keeps arguments that are no JSON object, as recorded from the original."""


COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
NESTED_COUNTS = ("server_tool_use", "cache_creation", "output_tokens_details")
MOST_TOKENS = 2**53


class _Part(Struct):
    """A block that is still open."""

    json: Json
    pieces: dict[str, list[str]]
    citations: list[Any]


class Growing:
    """Collects the events of one message."""

    def __init__(self) -> None:
        self.started = False
        self.id = ""
        self.model = ""
        self.request_id: str | None = None
        self.quota: RateLimitInfo | None = None
        self.usage: Json = {}
        """As message_start told it; the final one is `final_usage`."""
        self.final_usage: Json = {}
        self.stop_reason: str | None = None
        self.stop_sequence: str | None = None
        self.finished = False
        self.blocks: list[Block] = []
        self._open: dict[int, _Part] = {}
        self._begun = 0
        """The number behind the last block that began."""

    @property
    def complete(self) -> bool:
        """Whether nothing is missing but, at most, the event that says so."""
        return self.finished or (self.stop_reason is not None and not self._open)

    def calls(self) -> list[ToolUse]:
        """The calls among the blocks that finished."""
        return [block for block in self.blocks if isinstance(block, ToolUse)]

    def texts(self) -> list[str]:
        return [block.text for block in self.blocks if isinstance(block, Text) and block.text.strip()]

    def message(self, block: Block) -> AssistantContent:
        """One block of it as it is told, while the rest may be still to come."""
        return AssistantContent(
            id=self.id,
            type="message",
            model=self.model,
            content=[block],
            stop_reason=None,
            stop_sequence=None,
            usage=self.usage,
            context_management=None,
        )

    def open_indexes(self) -> list[int]:
        """The blocks that began and did not finish."""
        return sorted(self._open)

    def first_lost(self) -> int:
        """The number of the first block that did not finish, or of the one that would have come next."""
        return min(self._open, default=self._begun)

    def feed(self, event: Event) -> Block | None:
        """Take an event. A block that it finishes is returned. Raises ModelError where events make no sense."""
        match event.type:
            case "content_block_delta" if event.delta is not None:
                self._grow(event.index, event.delta)
            case "content_block_start" if event.content_block is not None:
                if event.index in self._open:
                    raise out_of_order("a block began twice")
                self._open[event.index] = _Part(json=event.content_block, pieces={}, citations=[])
                self._begun = max(self._begun, event.index + 1)
            case "content_block_stop":
                return self._close(event.index)
            case "message_start" if event.message is not None:
                if self.started:
                    raise out_of_order("a message began twice")
                self._start(event.message, event.request_id)
                self.quota = event.quota
            case "message_delta":
                self._end(event)
            case "message_stop":
                if self._open:
                    raise out_of_order("the message ended before a block of it did")
                self.finished = True
        return None

    def drop_open(self) -> None:
        """Give up what did not finish: the stream broke."""
        self._open.clear()

    def partial(self) -> list[Block]:
        """The text of blocks that never finished, for an interrupted turn.

        Half a tool call must not run and half a thought has no signature: both are dropped.
        """
        texts = [part for part in self._open.values() if part.json.get("type") == "text"]
        left: list[Block] = []
        for part in texts:
            with suppress(ModelError):
                left.append(finished(part))
        return [block for block in left if isinstance(block, Text) and block.text]

    def _start(self, message: Json, request_id: str | None) -> None:
        self.started = True
        self.id = message.get("id") or ""
        self.model = message.get("model") or ""
        self.request_id = request_id
        self.usage = self.final_usage = countable(message.get("usage"))

    def _end(self, event: Event) -> None:
        if event.delta is not None:
            self.stop_reason = event.delta.stop_reason
            self.stop_sequence = event.delta.stop_sequence
        if event.usage:
            told = {key: value for key, value in countable(event.usage).items() if value is not None}
            self.final_usage = {**self.final_usage, **told}

    def _grow(self, index: int, delta: Delta) -> None:
        part = self._open.get(index)
        if part is None:
            # What it carries would be lost without a word.
            raise out_of_order("a block that is not open grew")
        if delta.type == "citations_delta":
            part.citations.append(delta.citation)
            return
        field, key = TEXT_DELTAS.get(delta.type, ("", ""))
        if not field:
            return
        pieces = part.pieces.get(field)
        if pieces is None:
            pieces = part.pieces[field] = []
        pieces.append(getattr(delta, key))

    def _close(self, index: int) -> Block | None:
        part = self._open.pop(index, None)
        if part is None:
            return None
        block = finished(part)
        self.blocks.append(block)
        return block


def finished(part: _Part) -> Block:
    """Raises ModelError if what grew is no block."""
    try:
        return read(assemble(part))
    except (msgspec.ValidationError, TypeError) as flaw:
        raise ModelError(f"the model sent a block that cannot be read: {flaw}", retryable=True) from None


def assemble(part: _Part) -> Json:
    """The whole block: what it started as, with all that grew."""
    json = dict(part.json)
    for field, pieces in part.pieces.items():
        text = "".join(pieces)
        json[field] = parse_input(text) if field == "input" else (json.get(field) or "") + text
    if part.citations:
        json["citations"] = [*(json.get("citations") or []), *part.citations]
    if json.get("type") == "thinking":
        json.setdefault("signature", "")
    return json


def countable(usage: Any) -> Json:
    """A usage without what is said to be a count and is none: a bill is made of it."""
    if not isinstance(usage, dict):
        return {}
    counted = {key: value for key, value in usage.items() if key not in COUNTS or is_count(value)}
    for key in NESTED_COUNTS:
        if counted.get(key) is not None:
            inner = counted[key] if isinstance(counted[key], dict) else {}
            counted[key] = {name: value for name, value in inner.items() if is_count(value)}
    return counted


def is_count(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (is_number and 0 <= value <= MOST_TOKENS)


def out_of_order(what: str) -> ModelError:
    return ModelError(f"the model's events came in the wrong order: {what}", kind="bad_stream", retryable=True)


def parse_input(text: str) -> Json:
    """The arguments of a tool call. What cannot be read is kept, so that the model can be told."""
    try:
        value = msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return unreadable(text)
    return value if isinstance(value, dict) else unreadable(text)


def unreadable(text: str) -> Json:
    return {UNREADABLE: {"raw": text, "len": len(text)}}


def is_unreadable(call: ToolUse) -> bool:
    return UNREADABLE in call.input
