"""A block has typed attributes and keeps its object unchanged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from parley.protocol.base import encode_json
from parley.protocol.blocks import (
    KINDS,
    Block,
    Image,
    RedactedThinking,
    ServerToolResult,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UnknownBlock,
    as_json,
    read,
    text_of,
)


def test_a_block_is_read_by_its_type() -> None:
    assert read({"type": "text", "text": "hi"}) == Text({"type": "text", "text": "hi"})


def test_a_field_we_do_not_know_stays_in_the_object() -> None:
    block = read({"type": "text", "text": "hi", "citations": [{"url": "u"}]})

    assert isinstance(block, Text)
    assert block.text == "hi"
    assert encode_json(block) == b'{"type":"text","text":"hi","citations":[{"url":"u"}]}'


def test_a_type_we_do_not_know_is_an_unknown_block() -> None:
    block = read({"type": "hologram", "depth": 3})

    assert block == UnknownBlock({"type": "hologram", "depth": 3})
    assert block.type == "hologram"


def test_an_absent_field_reads_as_its_default() -> None:
    block = read({"type": "thinking", "thinking": "hm"})

    assert isinstance(block, Thinking)
    assert block.signature == ""
    assert block.json == {"type": "thinking", "thinking": "hm"}


def test_a_tool_result_may_be_empty() -> None:
    block = read({"type": "tool_result", "tool_use_id": "t1"})

    assert isinstance(block, ToolResult)
    assert (block.content, block.is_error) == (None, False)


def test_every_tool_of_the_backend_answers_in_one_shape() -> None:
    for kind in ("web_search_tool_result", "advisor_tool_result", "tool_search_tool_result"):
        block = read({"type": kind, "tool_use_id": "t1", "content": {"any": "thing"}})

        assert block == ServerToolResult({"type": kind, "tool_use_id": "t1", "content": {"any": "thing"}})
        assert block.type == kind


@pytest.mark.parametrize("json", [None, 5, "text", [], [{"type": "text"}]])
def test_a_block_must_be_an_object(json: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match="a content block must be an object"):
        read(json)


@pytest.mark.parametrize("json", [{}, {"type": None}, {"type": 5}, {"text": "hi"}])
def test_a_block_must_have_a_type(json: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match="a content block needs a `type`"):
        read(json)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_known_block_without_its_required_fields_is_refused(kind: str) -> None:
    if any(key.required for key in KINDS[kind].keys):
        with pytest.raises(msgspec.ValidationError, match=f"a `{kind}` block needs `"):
            read({"type": kind})
    else:
        assert read({"type": kind}) == RedactedThinking({"type": kind})


@pytest.mark.parametrize(
    ("json", "problem"),
    [
        ({"type": "text", "text": None}, "`text` of a `text` block must be string"),
        ({"type": "tool_use", "id": "t1", "name": "Read", "input": []}, "`input` of a `tool_use` block must be object"),
        (
            {"type": "tool_result", "tool_use_id": "t1", "content": {}},
            "`content` of a `tool_result` block must be string or array or null",
        ),
        (
            {"type": "tool_result", "tool_use_id": "t1", "is_error": "yes"},
            "`is_error` of a `tool_result` block must be boolean or null",
        ),
        ({"type": "image", "source": "a.png"}, "`source` of a `image` block must be object"),
    ],
)
def test_a_known_block_with_a_wrong_field_is_refused(json: Any, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        read(json)

    assert str(raised.value) == problem


def test_blocks_are_equal_by_kind_and_object() -> None:
    text = {"type": "text", "text": "hi"}

    assert Text.of("hi") == Text(text)
    assert Text(text) != UnknownBlock(text)
    assert hash(Text({"a": 1, "b": 2})) == hash(Text({"b": 2, "a": 1}))
    assert repr(Text(text)) == "Text({'type': 'text', 'text': 'hi'})"


def test_a_tool_result_says_whether_it_failed_only_if_known() -> None:
    assert ToolResult.of("t1", "hi").json == {"tool_use_id": "t1", "type": "tool_result", "content": "hi"}
    assert ToolResult.of("t1", "hi", False).json == {
        "tool_use_id": "t1",
        "type": "tool_result",
        "content": "hi",
        "is_error": False,
    }


def test_the_text_of_a_content_is_its_text_blocks() -> None:
    content: list[Block] = [
        Text.of("one"),
        ToolUse({"type": "tool_use", "id": "t1", "name": "Read", "input": {}}),
        Image({"type": "image", "source": {}}),
        Text.of("two"),
    ]

    assert text_of("hi") == "hi"
    assert text_of(content) == "one\ntwo"
    assert text_of([]) == ""


def test_a_content_goes_to_the_api_as_a_list_of_objects() -> None:
    assert as_json("hi") == [{"type": "text", "text": "hi"}]
    assert as_json([Text.of("hi")]) == [{"type": "text", "text": "hi"}]
