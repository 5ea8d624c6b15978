"""Convert a complete message into the events that would stream it, for models whose answer is known in advance."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from parley.models.base import ModelEvent, read_event
from parley.protocol.base import Json

# For each block type: the streamed field, the delta type, and the delta's name for the field.
STREAMED_FIELDS = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
}


def message_json(blocks: list[Json], *, id: str, model: str, usage: Json, stop_reason: str | None = None) -> Json:
    """A complete Messages API message."""
    calls_tool = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": stop_reason or ("tool_use" if calls_tool else "end_turn"),
        "stop_sequence": None,
        "usage": usage,
    }


def synthesize_events(message: Json, chunk_chars: int = 40) -> Iterator[ModelEvent]:
    """The events that stream this message, with text cut into pieces of `chunk_chars`."""
    for event in event_objects(message, chunk_chars):
        yield read_event(msgspec.json.encode(event))


def event_objects(message: Json, chunk_chars: int) -> Iterator[Json]:
    start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(message["content"]):
        yield from block_objects(index, block, chunk_chars)
    end = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield {"type": "message_delta", "delta": end, "usage": message["usage"]}
    yield {"type": "message_stop"}


def block_objects(index: int, block: Json, chunk_chars: int) -> Iterator[Json]:
    # Block types outside the table have no streamed field. An unknown block may have any key, including "".
    field, delta, key = STREAMED_FIELDS.get(block["type"], (None, "", ""))
    value = None if field is None else block.get(field)
    empty, text = block, ""
    if block["type"] == "tool_use":
        # A script may give invalid JSON as arguments on purpose.
        empty, text = {**block, "input": {}}, value if isinstance(value, str) else msgspec.json.encode(value).decode()
    elif field is not None and isinstance(value, str):
        empty, text = {**block, field: ""}, value
    if block["type"] == "thinking":
        empty = {**empty, "signature": ""}
    yield {"type": "content_block_start", "index": index, "content_block": empty}
    for at in range(0, len(text), chunk_chars):
        yield _delta(index, {"type": delta, key: text[at : at + chunk_chars]})
    if block["type"] == "thinking":
        yield _delta(index, {"type": "signature_delta", "signature": block.get("signature", "")})
    yield {"type": "content_block_stop", "index": index}


def _delta(index: int, delta: Json) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": delta}
