"""The server side of OpenAI's Responses API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from parley.errors import ModelError
from parley.models.base import ModelEvent
from parley.models.event_synthesis import message_json, synthesize_events
from parley.models.http.response import EventReader
from parley.testing.openai_apis import ResponsesApi

USAGE = {"input_tokens": 7, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1, "output_tokens": 3}
ANSWER = message_json(
    [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "redacted_thinking", "data": "r"},
        {"type": "text", "text": "Both."},
        {"type": "tool_use", "id": "a", "name": "Read", "input": {"n": 1}},
    ],
    id="msg_1",
    model="m",
    usage=USAGE,
)
OUTPUT = [
    {
        "type": "reasoning",
        "id": "item_0_msg_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "s",
    },
    {"type": "reasoning", "id": "item_1_msg_1", "summary": [], "encrypted_content": "r"},
    {
        "type": "message",
        "id": "item_2_msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Both.", "annotations": [], "logprobs": []}],
    },
    {
        "type": "function_call",
        "id": "item_3_msg_1",
        "call_id": "a",
        "name": "Read",
        "arguments": '{"n":1}',
        "status": "completed",
    },
]


def read(input: Any, **fields: Any) -> Any:
    return ResponsesApi().read(json.dumps({"model": "m", "input": input, **fields}).encode())


async def streamed() -> list[Any]:
    async def events() -> AsyncIterator[ModelEvent]:
        for event in synthesize_events(ANSWER, 3):
            yield event

    data = b"".join([chunk async for chunk in ResponsesApi().encode_events(events(), read("Hi", stream=True))])
    return [json.loads(event) for event in EventReader().feed(data)]


def said(text: str) -> Any:
    return {"type": "text", "text": text}


def test_a_conversation_is_read_into_messages() -> None:
    call = {"type": "function_call", "name": "Read", "arguments": '{"a": 1}'}
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    request = read(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "Look"}, picture]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "s"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {**call, "call_id": "t1"},
            {**call, "call_id": "t2"},
            {"type": "function_call_output", "call_id": "t1", "output": "one"},
            {"type": "function_call_output", "call_id": "t2", "output": [picture]},
            {"role": "user", "content": "and?"},
        ],
        instructions="Be kind.",
        max_output_tokens=5,
        tools=[{"type": "function", "name": "Read", "parameters": {}}, {"type": "web_search"}],
    ).request  # fmt: skip
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    used = {"type": "tool_use", "name": "Read", "input": {"a": 1}}

    assert request.system == [said("Be kind."), said("Be brief.")]
    assert (request.max_tokens, [tool["name"] for tool in request.tools]) == (5, ["Read"])
    assert request.messages == [
        {"role": "user", "content": [said("Look"), image]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                said("I look."),
                {**used, "id": "t1"},
                {**used, "id": "t2"},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [said("one")]},
                {"type": "tool_result", "tool_use_id": "t2", "content": [image]},
                said("and?"),
            ],
        },
    ]


def test_an_input_may_be_a_text() -> None:
    assert read("Hi").request.messages == [{"role": "user", "content": [said("Hi")]}]


async def test_a_stream_has_the_events_that_are_documented_in_their_order() -> None:
    events = await streamed()
    kinds = [event["type"].removeprefix("response.") for event in events]

    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == OUTPUT
    assert events[-1]["response"]["output"] == OUTPUT


async def test_an_item_starts_empty() -> None:
    added = [event["item"] for event in await streamed() if event["type"] == "response.output_item.added"]

    assert [item["status"] for item in added] == ["in_progress"] * 4
    assert (added[0]["summary"], added[0]["encrypted_content"]) == ([], None)
    assert (added[2]["content"], added[3]["arguments"]) == ([], "")


async def test_the_usage_is_at_the_end() -> None:
    assert (await streamed())[-1]["response"]["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 13,
    }


def test_an_answer_in_one_piece() -> None:
    whole = ResponsesApi().encode_message(ANSWER)

    assert (whole["object"], whole["status"], whole["output"]) == ("response", "completed", OUTPUT)


@pytest.mark.parametrize(
    ("stop_reason", "status", "reason"),
    [
        ("end_turn", "completed", None),
        ("max_tokens", "incomplete", "max_output_tokens"),
        ("refusal", "incomplete", "content_filter"),
    ],
)
def test_reasons_to_stop_have_other_names(stop_reason: str, status: str, reason: str | None) -> None:
    whole = ResponsesApi().encode_message({**ANSWER, "stop_reason": stop_reason})

    assert (whole["status"], (whole["incomplete_details"] or {}).get("reason")) == (status, reason)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'"\xff"',
        b'{"model": "m"}',
        b'{"model": "m", "input": 5}',
        b'{"model": "m", "input": [{"type": "function_call_output", "output": "x"}]}',
        b'{"model": "m", "input": [{"role": "user", "content": [1]}]}',
        b'{"model": "m", "input": [{"type": "item_reference", "id": "x"}]}',
        b'{"model": "m", "input": [{"role": "user", "content": [{"type": "input_audio"}]}]}',
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(ModelError) as raised:
        ResponsesApi().read(body)

    assert raised.value.status == 400
    assert msgspec.json.encode(ResponsesApi().error(raised.value)).startswith(b'{"error":{"message":"')
