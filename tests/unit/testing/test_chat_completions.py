"""The server side of OpenAI's chat completions API."""

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
from parley.testing.openai_apis import ChatCompletionsApi

USAGE = {"input_tokens": 7, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1, "output_tokens": 3}
ANSWER = message_json(
    [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "Both."},
        {"type": "tool_use", "id": "a", "name": "Read", "input": {"n": 1}},
        {"type": "tool_use", "id": "b", "name": "Read", "input": {"n": 2}},
    ],
    id="msg_1",
    model="m",
    usage=USAGE,
)


def read(*messages: Any, **fields: Any) -> Any:
    return ChatCompletionsApi().read(json.dumps({"model": "m", "messages": messages, **fields}).encode())


async def streamed(**fields: Any) -> list[Any]:
    async def events() -> AsyncIterator[ModelEvent]:
        for event in synthesize_events(ANSWER, 3):
            yield event

    async def spelled() -> bytes:
        asked = read(stream=True, **fields)
        return b"".join([chunk async for chunk in ChatCompletionsApi().encode_events(events(), asked)])

    *chunks, done = EventReader().feed(await spelled())
    assert done == b"[DONE]"
    return [json.loads(chunk) for chunk in chunks]


def deltas(chunks: list[Any], key: str) -> list[Any]:
    return [choice["delta"][key] for chunk in chunks for choice in chunk["choices"] if key in choice["delta"]]


def test_a_conversation_is_read_into_messages() -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "Read", "arguments": '{"a": 1}'}}
    request = read(
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, picture("data:image/png;base64,AAAA")]},
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "t2"}]},
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": "two"},
        {"role": "user", "content": "and?"},
        max_completion_tokens=5,
    ).request

    assert request.system == [said("Be kind.")]
    assert request.max_tokens == 5
    assert request.messages == [
        {
            "role": "user",
            "content": [said("Look"), image({"type": "base64", "media_type": "image/png", "data": "AAAA"})],
        },
        {"role": "assistant", "content": [used("t1"), used("t2")]},
        {"role": "user", "content": [result("t1", "one"), result("t2", "two"), said("and?")]},
    ]


def test_a_picture_may_be_an_address() -> None:
    request = read({"role": "user", "content": [picture("https://example.org/a.png")]}).request

    assert request.messages[0]["content"] == [image({"type": "url", "url": "https://example.org/a.png"})]


def said(text: str) -> Any:
    return {"type": "text", "text": text}


def picture(url: str) -> Any:
    return {"type": "image_url", "image_url": {"url": url}}


def image(source: Any) -> Any:
    return {"type": "image", "source": source}


def used(id: str) -> Any:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {"a": 1}}


def result(id: str, text: str) -> Any:
    return {"type": "tool_result", "tool_use_id": id, "content": [said(text)]}


async def test_a_stream_has_texts_thoughts_and_calls_piece_by_piece() -> None:
    chunks = await streamed()
    calls = [call for delta in deltas(chunks, "tool_calls") for call in delta]

    assert "".join(deltas(chunks, "content")) == "Both."
    assert "".join(deltas(chunks, "reasoning_content")) == "Hm."
    assert [(call["index"], call["id"], call["function"]["name"]) for call in calls if "id" in call] == [
        (0, "a", "Read"), (1, "b", "Read"),
    ]  # fmt: skip
    for index, expected in ((0, '{"n":1}'), (1, '{"n":2}')):
        assert "".join(call["function"]["arguments"] for call in calls if call["index"] == index) == expected
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "tool_calls"


async def test_what_was_used_is_reported_only_to_who_asks() -> None:
    assert all("usage" not in chunk for chunk in await streamed())
    assert (await streamed(stream_options={"include_usage": True}))[-1]["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def test_an_answer_in_one_piece() -> None:
    whole = ChatCompletionsApi().encode_message(ANSWER)

    assert whole["choices"][0]["message"] == {
        "role": "assistant",
        "content": "Both.",
        "refusal": None,
        "reasoning_content": "Hm.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "Read", "arguments": '{"n":1}'}},
            {"id": "b", "type": "function", "function": {"name": "Read", "arguments": '{"n":2}'}},
        ],
    }


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("stop_sequence", "stop"), ("refusal", "content_filter")],
)
def test_reasons_to_stop_have_other_names(stop_reason: str, finish_reason: str) -> None:
    assert (
        ChatCompletionsApi().encode_message({**ANSWER, "stop_reason": stop_reason})["choices"][0]["finish_reason"]
        == finish_reason
    )


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'"\xff"',
        b'{"model": "m"}',
        b'{"model": "m", "messages": [{"role": "tool", "content": "x"}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": [1]}]}',
        b'{"model": "m", "messages": [{"content": "x"}]}',
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(ModelError) as raised:
        ChatCompletionsApi().read(body)

    assert raised.value.status == 400
    assert msgspec.json.encode(ChatCompletionsApi().error(raised.value)).startswith(b'{"error":{"message":"')
