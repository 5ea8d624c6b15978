"""A complete message and its stream are equivalent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parley.models.accumulator import MessageAccumulator
from parley.models.event_synthesis import message_json, synthesize_events
from parley.protocol.base import Json
from parley.protocol.blocks import Text

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)
BLOCKS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, st.text()),
    st.builds(lambda text, cited: {"type": "text", "text": text, "citations": cited}, st.text(), st.lists(OBJECTS)),
    st.builds(lambda text, sig: {"type": "thinking", "thinking": text, "signature": sig}, st.text(), st.text()),
    st.builds(lambda name, more: {"type": "tool_use", "id": "t", "name": name, "input": more}, st.text(), OBJECTS),
    st.builds(lambda more: {**more, "type": "hologram"}, OBJECTS),
    st.builds(lambda data: {"type": "redacted_thinking", "data": data}, st.text()),
)
MESSAGES = st.builds(
    message_json,
    st.lists(BLOCKS, max_size=4),
    id=st.text(),
    model=st.text(),
    usage=st.fixed_dictionaries({"input_tokens": st.integers(0, 10**9), "output_tokens": st.integers(0, 10**9)}),
    stop_reason=st.none() | st.text(min_size=1),
)


def regrown(message: Json, chunk_chars: int) -> Json:
    """The message, streamed and accumulated again."""
    growing = MessageAccumulator()
    for event in synthesize_events(message, chunk_chars):
        growing.feed(event)
    assert growing.finished
    blocks = [block.json for block in growing.blocks]
    made = message_json(blocks, id=growing.id, model=growing.model, usage=growing.final_usage)
    return {**made, "stop_reason": growing.stop_reason, "stop_sequence": growing.stop_sequence}


@given(MESSAGES, st.integers(1, 50))
@example(message_json([{"": "0", "type": "hologram"}], id="i", model="m", usage={"output_tokens": 0}), 1)
def test_a_streamed_message_grows_back_to_itself(message: Json, chunk_chars: int) -> None:
    assert regrown(message, chunk_chars) == message


def objects(message: Json, chunk_chars: int) -> list[Json]:
    return [msgspec.json.decode(event.raw) for event in synthesize_events(message, chunk_chars)]


def test_a_message_streams_as_the_api_would_stream_it() -> None:
    blocks: list[Json] = [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "text", "text": "Look."},
        {"type": "tool_use", "id": "t1", "name": "Read", "input": {"a": 1}},
    ]
    message = message_json(blocks, id="msg_1", model="m", usage={"input_tokens": 3, "output_tokens": 9})

    assert objects(message, 4) == [
        {
            "type": "message_start",
            "message": {
                **message,
                "content": [],
                "stop_reason": None,
                "usage": {"input_tokens": 3, "output_tokens": 1},
            },
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Look"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "."}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {**blocks[2], "input": {}}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ":1}"}},
        {"type": "content_block_stop", "index": 2},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"input_tokens": 3, "output_tokens": 9},
        },
        {"type": "message_stop"},
    ]


def test_arguments_given_as_text_are_sent_as_they_are() -> None:
    block = {"type": "tool_use", "id": "t1", "name": "Read", "input": '{"half":'}
    events = objects(message_json([block], id="i", model="m", usage={}), 40)

    assert events[1:4] == [
        {"type": "content_block_start", "index": 0, "content_block": {**block, "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"half":'}},
        {"type": "content_block_stop", "index": 0},
    ]


def test_a_block_without_its_text_is_streamed_as_it_is() -> None:
    events = objects(message_json([{"type": "text"}], id="i", model="m", usage={}), 40)

    assert events[1:3] == [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
        {"type": "content_block_stop", "index": 0},
    ]


@pytest.mark.parametrize(
    ("blocks", "given", "reason"),
    [
        ([Text.of("Hi").json], None, "end_turn"),
        ([{"type": "tool_use", "id": "t", "name": "Read", "input": {}}, Text.of("Hi").json], None, "tool_use"),
        ([], None, "end_turn"),
        ([Text.of("Hi").json], "max_tokens", "max_tokens"),
    ],
)
def test_a_message_stops_for_its_calls_or_because_it_is_done(
    blocks: list[Json], given: str | None, reason: str
) -> None:
    assert message_json(blocks, id="i", model="m", usage={}, stop_reason=given) == {
        "id": "i",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": blocks,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {},
    }
