"""A whole message as the events that would have streamed it; for models that know their answer beforehand."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from parley.models.base import ModelEvent, read_event
from parley.protocol.base import Json

# How each type of block grows: the field that fills up, and the delta that carries it.
GROWTH = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
}


def message_json(blocks: list[Json], *, id: str, model: str, usage: Json, stop_reason: str | None = None) -> Json:
    """A finished message of the Messages API."""
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
    """The events that stream this message."""
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
    # A type that is not in the table has no field that grows; an unknown block may have any key, also "".
    field, delta, key = GROWTH.get(block["type"], (None, "", ""))
    value = None if field is None else block.get(field)
    empty, text = block, ""
    if block["type"] == "tool_use":
        # A script may give the arguments as broken text on purpose.
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
