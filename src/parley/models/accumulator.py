"""Accumulates stream events into an assistant message.

    accumulator = MessageAccumulator()
    for event in events:
        block = accumulator.feed(event)     # a finished block at each content_block_stop, else None

The work per token is one append to a list. Text is joined when its block finishes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from parley.errors import ModelError
from parley.models.base import Delta, ModelEvent
from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json, Struct
from parley.protocol.blocks import Block, Text, ToolUse, read
from parley.protocol.messages.conversation import AssistantContent
from parley.protocol.messages.notices import RateLimitInfo

# The block field that each type of delta extends, and the delta's own name for it.
TEXT_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("input", "partial_json"),
    "signature_delta": ("signature", "signature"),
}
BILLED = ("text", "thinking", "input")
"""The fields of a block whose length is an estimate of its output tokens."""
UNREADABLE = "__unparsedToolInput"
"""The key that holds tool arguments which are not a JSON object, as Claude Code writes it."""


COUNTS = frozenset(("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"))
NESTED_COUNTS = frozenset(("server_tool_use", "cache_creation", "output_tokens_details"))
MOST_TOKENS = 2**53


ANSWER_BYTES = 32 << 20
"""The most that the content of an answer may have. The longest answers of real models have less than 1 MB."""
BLOCK_BYTES = 256
"""What an empty block counts, because many of them take memory too."""


DEEPEST = 500
"""How many levels of JSON an answer may have. Encoders end at twice as many, and lines add levels of their own."""


class _Part(Struct):
    """A block that is still open."""

    json: Json
    pieces: dict[str, list[str]]
    citations: list[Any]


class MessageAccumulator:
    """Collects the events of one message."""

    def __init__(self) -> None:
        self.started = False
        self.id = ""
        self.model = ""
        self.request_id: str | None = None
        self.quota: RateLimitInfo | None = None
        self.usage: Json = {}
        """As reported by message_start; `final_usage` is the total."""
        self._reported_usage: Json = {}
        self.stop_reason: str | None = None
        self.stop_sequence: str | None = None
        self.stop_details: Json = {}
        """Why the model refused, if it says so."""
        self.finished = False
        self.blocks: list[Block] = []
        self._open: dict[int, _Part] = {}
        self._ending: ModelEvent | None = None
        """The last message_delta. It may come again (`ModelEvent.ending`)."""
        self.content_bytes = 0
        """The size of the content so far, as it will be written."""
        self._start_bytes = 0
        """The size of message_start. The message of each block repeats parts of it."""
        self._started_message = 0
        """One more than the index of the last block that started."""

    @property
    def is_complete(self) -> bool:
        """Whether the answer is complete; the final message_stop may be missing."""
        return self.finished or (self.stop_reason is not None and not self._open)

    @property
    def final_usage(self) -> Json:
        """The total. Of an answer that was cut off, the output is estimated from what has arrived, which is billed."""
        if self._ending is not None or not self.started:
            return self._reported_usage
        finished = sum(count_chars(block.json) for block in self.blocks)
        unfinished = sum(
            len(piece) for part in self._open.values() for name in BILLED for piece in part.pieces.get(name, ())
        )
        estimated = -(-(finished + unfinished) // CHARS_PER_TOKEN)
        if estimated <= (self._reported_usage.get("output_tokens") or 0):
            return self._reported_usage
        return {**self._reported_usage, "output_tokens": estimated}

    def calls(self) -> list[ToolUse]:
        """The tool calls among the finished blocks."""
        return [block for block in self.blocks if isinstance(block, ToolUse)]

    def texts(self) -> list[str]:
        return [block.text for block in self.blocks if isinstance(block, Text) and block.text.strip()]

    def message(self, block: Block) -> AssistantContent:
        """A message with one block, to be sent while later blocks may still stream."""
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

    def ending(self) -> Json:
        """How the answer ended: its id, final usage and stop reason."""
        return {
            "id": self.id,
            "usage": self.final_usage,
            "stop_reason": self.stop_reason,
            "stop_sequence": self.stop_sequence,
        }

    def open_indexes(self) -> list[int]:
        """The indexes of the blocks that started and did not finish."""
        return sorted(self._open)

    def first_lost(self) -> int:
        """The index of the first block that did not finish, or of the one that would come next."""
        return min(self._open, default=self._started_message)

    def feed(self, event: ModelEvent) -> Block | None:
        """Add an event and return the block that it finishes. Raises ModelError if the event is out of order."""
        if len(event.raw) > 2 * DEEPEST and is_too_deep(
            [
                event.message,
                event.content_block,
                event.usage,
                event.delta and [event.delta.citation, event.delta.stop_details],
            ]
        ):
            raise ModelError("the model sent an event that is nested too deeply", kind="bad_stream", retryable=True)
        match event.type:
            case "content_block_delta" if event.delta is not None:
                self._grow(event.index, event.delta, len(event.raw))
            case "content_block_start" if event.content_block is not None:
                if event.index in self._open:
                    raise order_error("a content block started twice")
                self._count(BLOCK_BYTES + self._start_bytes + len(event.raw))
                self._open[event.index] = _Part(json=event.content_block, pieces={}, citations=[])
                self._started_message = max(self._started_message, event.index + 1)
            case "content_block_stop":
                return self._close(event.index, event.becomes)
            case "message_start" if event.message is not None:
                if self.started:
                    raise order_error("the message started twice")
                self._start(event.message, event.request_id)
                self._start_bytes = len(event.raw)
                self.quota = event.quota
            case "message_delta":
                self._end(event)
            case "message_stop":
                if self._open:
                    raise order_error("the message ended while a content block was still open")
                self.finished = True
        return None

    def drop_open(self) -> None:
        """Discard unfinished blocks after a broken stream."""
        self._open.clear()

    def partial(self) -> list[Block]:
        """The text of unfinished blocks, for an interrupted turn.

        Unfinished tool calls must not run and unfinished thinking has no signature, so both are dropped.
        """
        texts = [part for part in self._open.values() if part.json.get("type") == "text"]
        left: list[Block] = []
        for part in texts:
            with suppress(ModelError):
                left.append(finish_block(part))
        return [block for block in left if isinstance(block, Text) and block.text]

    def _start(self, message: Json, request_id: str | None) -> None:
        self.started = True
        self.id = message.get("id") or ""
        self.model = message.get("model") or ""
        self.request_id = request_id
        self.usage = self._reported_usage = sanitize_usage(message.get("usage"))

    def _end(self, event: ModelEvent) -> None:
        if event is self._ending:
            return
        self._ending = event
        if event.delta is not None:
            self.stop_reason = event.delta.stop_reason
            self.stop_sequence = event.delta.stop_sequence
            if isinstance(event.delta.stop_details, dict):
                self.stop_details = event.delta.stop_details
        if event.usage:
            reported = {key: value for key, value in sanitize_usage(event.usage).items() if value is not None}
            self._reported_usage = {**self._reported_usage, **reported}

    def _grow(self, index: int, delta: Delta, raw_bytes: int) -> None:
        part = self._open.get(index)
        if part is None:
            # Ignoring it would lose its content silently.
            raise order_error("a delta arrived for a block that is not open")
        if delta.type == "citations_delta":
            part.citations.append(delta.citation)
            self._count(raw_bytes)
            return
        field, key = TEXT_DELTAS.get(delta.type, ("", ""))
        if not field:
            return
        pieces = part.pieces.get(field)
        if pieces is None:
            pieces = part.pieces[field] = []
        piece = getattr(delta, key)
        self._count(len(piece))
        pieces.append(piece)

    def _count(self, more_bytes: int) -> None:
        """Raises ModelError, not retryable: a server that sends this much sends it again."""
        self.content_bytes += more_bytes
        if self.content_bytes > ANSWER_BYTES:
            raise ModelError(f"the model's answer is larger than {ANSWER_BYTES >> 20} MB", kind="answer_too_large")

    def _close(self, index: int, becomes: Json | None = None) -> Block | None:
        """`becomes`: see ModelEvent."""
        part = self._open.pop(index, None)
        if part is None:
            return None
        if becomes is not None:
            part = _Part(json=becomes, pieces={becomes["type"]: part.pieces.get("text", [])}, citations=[])
        block = finish_block(part)
        self.blocks.append(block)
        return block


def count_chars(block: Json) -> int:
    """The length of what the model wrote in a block."""
    texts = (block.get(name) or "" for name in BILLED)
    return sum(len(text) if isinstance(text, str) else len(msgspec.json.encode(text)) for text in texts)


def finish_block(part: _Part) -> Block:
    """Raises ModelError if the block is invalid."""
    try:
        return read(assemble(part))
    except (msgspec.ValidationError, TypeError) as exc:
        raise ModelError(f"the model sent an invalid content block: {exc}", retryable=True) from None


def assemble(part: _Part) -> Json:
    """The complete block: its start event plus all deltas."""
    json = dict(part.json)
    for field, pieces in part.pieces.items():
        text = "".join(pieces)
        json[field] = parse_input(text) if field == "input" else (json.get(field) or "") + text
    if part.citations:
        json["citations"] = [*(json.get("citations") or []), *part.citations]
    if json.get("type") == "thinking":
        json.setdefault("signature", "")
    return json


def sanitize_usage(usage: Any) -> Json:
    """The usage without invalid counts. Costs are computed from it."""
    if not isinstance(usage, dict):
        return {}
    counted = {key: value for key, value in usage.items() if key not in COUNTS or is_count(value)}
    for key in NESTED_COUNTS.intersection(counted):
        if counted[key] is not None:
            inner = counted[key] if isinstance(counted[key], dict) else {}
            counted[key] = {name: value for name, value in inner.items() if is_count(value)}
    return counted


def is_count(value: Any) -> bool:
    if type(value) is int:
        return 0 <= value <= MOST_TOKENS
    return value is None or (isinstance(value, float) and 0 <= value <= MOST_TOKENS)


def order_error(what: str) -> ModelError:
    return ModelError(f"the model sent stream events out of order: {what}", kind="bad_stream", retryable=True)


def parse_input(text: str) -> Json:
    """The arguments of a tool call. Invalid arguments are kept under `UNREADABLE`, so that the model can be told."""
    try:
        value = msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return mark_unreadable(text)
    is_valid = isinstance(value, dict) and not (len(text) > 2 * DEEPEST and is_too_deep(value))
    return value if is_valid else mark_unreadable(text)


def is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def mark_unreadable(text: str) -> Json:
    return {UNREADABLE: {"raw": text, "len": len(text)}}


def is_unreadable(call: ToolUse) -> bool:
    return UNREADABLE in call.input
