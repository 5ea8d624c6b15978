"""Streams of the Responses API, in the shapes that its documentation and its servers have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from parley.errors import ModelError
from parley.models.accumulator import MessageAccumulator
from parley.models.backends.reasoning_items import PHASE, unpack
from parley.models.backends.responses import ResponsesStream
from parley.models.base import ModelEvent
from parley.protocol.base import Json
from tests.helpers.models import counting, text

USAGE: Json = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 130,
}
CREATED: Json = {"type": "response.created", "response": {"id": "r", "model": "gpt-5-0807", "status": "in_progress"}}


def ended(status: str = "completed", **fields: Any) -> Json:
    response = {"id": "r", "object": "response", "status": status, "output": [], "usage": USAGE, **fields}
    return {"type": f"response.{status}", "response": response}


def added(at: int, kind: str, **fields: Any) -> Json:
    item = {"id": f"i{at}", "type": kind, **fields}
    return {"type": "response.output_item.added", "output_index": at, "item": item}


def done(at: int, kind: str, **fields: Any) -> Json:
    return {**added(at, kind, **fields), "type": "response.output_item.done"}


def delta(at: int, kind: str, words: str, **fields: Any) -> Json:
    return {"type": f"response.{kind}.delta", "output_index": at, "item_id": f"i{at}", "delta": words, **fields}


def message(words: str) -> Json:
    return {"type": "message", "content": [{"type": "output_text", "text": words}]}


def said(at: int, words: str) -> Json:
    """The end of a message."""
    return {"type": "response.output_item.done", "output_index": at, "item": {"id": f"i{at}", **message(words)}}


class Taken(MessageAccumulator):
    """What the engine makes of a stream."""

    def __init__(self, chunks: Iterable[Json], taken: Iterable[str] = ()) -> None:
        super().__init__()
        self.events: list[ModelEvent] = []
        stream = ResponsesStream(model="gpt-5", new_id=counting(), taken=set(taken), input_chars=40)
        for chunk in chunks:
            self.events += stream.feed(msgspec.json.encode(chunk))
        self.events += stream.end()
        for event in self.events:
            self.feed(event)

    @property
    def content(self) -> list[Json]:
        return [block.json for block in self.blocks]


def failure(*chunks: Json) -> ModelError:
    with pytest.raises(ModelError) as raised:
        Taken(chunks)
    return raised.value


THOUGHTS: Json = {"summary": [{"type": "summary_text", "text": "One."}], "encrypted_content": "gAAA"}


def test_a_text_streams() -> None:
    taken = Taken(
        [
            CREATED,
            {"type": "response.in_progress", "response": CREATED["response"]},
            added(0, "message", role="assistant", content=[]),
            delta(0, "output_text", "He"),
            delta(0, "output_text", "llo"),
            said(0, "Hello"),
            ended(),
        ]
    )

    assert [event.type for event in taken.events] == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 2,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert taken.content == [text("Hello")]
    assert (taken.id, taken.model, taken.stop_reason) == ("msg_1", "gpt-5-0807", "end_turn")
    assert taken.final_usage == {
        "input_tokens": 30,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 60,
        "output_tokens": 30,
        "output_tokens_details": {"thinking_tokens": 20},
        "parley_estimated": False,
    }


def test_reasoning_is_thinking_that_keeps_its_item() -> None:
    taken = Taken(
        [
            CREATED,
            added(0, "reasoning", summary=[], encrypted_content="half"),
            delta(0, "reasoning_summary_text", "One.", summary_index=0),
            delta(0, "reasoning_summary_text", "Two.", summary_index=1),
            done(0, "reasoning", **THOUGHTS),
            added(1, "message"),
            delta(1, "output_text", "Yes."),
            said(1, "Yes."),
            ended(),
        ]
    )
    thought, answer = taken.content

    assert thought["thinking"] == "One.\n\nTwo."
    assert unpack(thought, "gpt-5") == {"type": "reasoning", "id": "i0", **THOUGHTS}
    assert answer == text("Yes.")


def test_reasoning_without_a_summary_is_redacted_thinking() -> None:
    taken = Taken([CREATED, added(0, "reasoning"), done(0, "reasoning", summary=[], encrypted_content="g"), ended()])
    [thought] = taken.content

    assert thought["type"] == "redacted_thinking"
    assert unpack(thought, "gpt-5") == {"type": "reasoning", "id": "i0", "summary": [], "encrypted_content": "g"}


def test_reasoning_in_plain_text_is_thinking() -> None:
    content = [{"type": "reasoning_text", "text": "Hm."}]
    events = [delta(0, "reasoning_text", "Hm.", content_index=0), done(0, "reasoning", summary=[], content=content)]
    [thought] = Taken([CREATED, added(0, "reasoning"), *events, ended()]).content

    assert thought["thinking"] == "Hm."
    assert unpack(thought, "gpt-5") == {"type": "reasoning", "id": "i0", "summary": [], "content": content}


def test_a_summary_that_nothing_can_be_made_of_again_has_no_signature() -> None:
    summary = [{"type": "summary_text", "text": "Hm."}]
    [thought] = Taken([CREATED, done(0, "reasoning", summary=summary, encrypted_content=None), ended()]).content

    assert thought == {"type": "thinking", "thinking": "Hm.", "signature": ""}


def call(at: int, id: str, **fields: Any) -> Json:
    return added(at, "function_call", call_id=id, name="Read", arguments="", **fields)


def test_parallel_calls_may_stream_side_by_side() -> None:
    taken = Taken(
        [
            CREATED,
            call(0, "c0"),
            call(1, "c1"),
            delta(0, "function_call_arguments", '{"a"'),
            delta(1, "function_call_arguments", '{"b":2}'),
            delta(0, "function_call_arguments", ":1}"),
            done(0, "function_call", call_id="c0", name="Read", arguments='{"a":1}'),
            done(1, "function_call", call_id="c1", name="Read", arguments='{"b":2}'),
            ended(),
        ]
    )

    assert taken.content == [
        {"type": "tool_use", "id": "c0", "name": "Read", "input": {"a": 1}},
        {"type": "tool_use", "id": "c1", "name": "Read", "input": {"b": 2}},
    ]
    assert taken.stop_reason == "tool_use"


def test_arguments_without_deltas_come_from_the_end_of_the_call() -> None:
    arguments = {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": '{"a":1}'}
    whole = done(1, "function_call", call_id="c1", name="Read", arguments='{"b":2}')

    taken = Taken([CREATED, call(0, "c0"), arguments, whole, ended()])

    assert [block["input"] for block in taken.content] == [{"a": 1}, {"b": 2}]


def test_a_call_id_of_an_earlier_turn_is_not_used_again() -> None:
    [block] = Taken([CREATED, call(0, "c0"), ended()], taken=["c0"]).content

    assert block["id"] == "call_2"


def test_the_phase_of_a_message_is_kept() -> None:
    taken = Taken([CREATED, added(0, "message", phase="commentary"), delta(0, "output_text", "I look."), ended()])

    assert taken.content == [{**text("I look."), PHASE: "commentary"}]


def test_a_refusal_is_a_text_that_ends_the_turn_as_such() -> None:
    whole = done(0, "message", content=[{"type": "refusal", "refusal": "No."}])
    streamed = [added(0, "message"), delta(0, "refusal", "No."), whole]

    for events in ([whole], streamed):
        taken = Taken([CREATED, *events, ended()])
        assert (taken.content, taken.stop_reason) == ([text("No.")], "refusal")


@pytest.mark.parametrize(
    ("reason", "stop"), [("max_output_tokens", "max_tokens"), ("content_filter", "refusal"), ("new", "end_turn")]
)
def test_an_incomplete_response_ends_with_its_reason(reason: str, stop: str) -> None:
    taken = Taken(
        [CREATED, delta(0, "output_text", "Cut o"), ended("incomplete", incomplete_details={"reason": reason})]
    )

    assert (taken.content, taken.stop_reason, taken.finished) == ([text("Cut o")], stop, True)  # fmt: skip


def test_a_response_in_one_piece_is_read_as_its_stream() -> None:
    output: list[Json] = [
        {"type": "reasoning", "id": "rs", **THOUGHTS},
        {"id": "m", "role": "assistant", **message("Hello")},
        {"type": "function_call", "id": "f", "call_id": "c0", "name": "Read", "arguments": '{"a":1}'},
    ]
    taken = Taken([{"id": "r", "object": "response", "status": "completed", "output": output, "usage": USAGE}])

    assert [block["type"] for block in taken.content] == ["thinking", "text", "tool_use"]
    assert unpack(taken.content[0], "gpt-5") == output[0]
    assert (taken.stop_reason, taken.final_usage["output_tokens"]) == ("tool_use", 30)


def test_a_stream_of_nothing_but_its_end_is_read_from_there() -> None:
    assert Taken([CREATED, ended(output=[message("Hello")])]).content == [text("Hello")]


def test_items_that_streamed_are_not_read_again_from_the_end() -> None:
    streamed = [delta(0, "output_text", "Hello"), said(0, "Hello")]

    assert Taken([CREATED, *streamed, ended(output=[message("Hello")])]).content == [text("Hello")]


def test_one_index_for_all_items_and_ids_that_change_are_understood() -> None:
    events = [
        added(0, "message", content=[]),
        {**delta(0, "output_text", "Hi"), "item_id": "other"},
        {**said(0, "Hi"), "item": {"id": "third", **message("Hi")}},
        {**call(0, "c0"), "item": {"id": "f", "type": "function_call", "call_id": "c0", "name": "Read"}},
        {**delta(0, "function_call_arguments", "{}"), "item_id": "g"},
        done(0, "function_call", call_id="c0", name="Read", arguments="{}"),
    ]

    assert [block["type"] for block in Taken([CREATED, *events, ended()]).content] == ["text", "tool_use"]


def test_items_of_tools_on_the_server_and_unknown_events_are_skipped() -> None:
    others: list[Json] = [
        added(0, "web_search_call"),
        {"type": "response.web_search_call.completed", "output_index": 0},
        done(0, "web_search_call"),
        {"type": "keepalive"},
        {"type": "response.output_text.annotation.added", "annotation": {}},
    ]

    assert Taken([CREATED, *others, delta(1, "output_text", "Found."), ended()]).content == [text("Found.")]


def test_usage_that_is_missing_is_estimated() -> None:
    taken = Taken([CREATED, delta(0, "output_text", "x" * 80), ended(usage=None)])

    assert (taken.final_usage["output_tokens"], taken.final_usage["parley_estimated"]) == (20, True)


@pytest.mark.parametrize(
    ("error", "status", "kind", "retryable"),
    [
        ({"code": "server_error"}, 500, "api_error", True),
        ({"code": "rate_limit_exceeded"}, 429, "rate_limit_error", True),
        ({"code": "insufficient_quota"}, 429, "billing_error", False),
        ({"code": "context_length_exceeded"}, 400, "prompt_too_long", False),
        ({"code": "invalid_image_format"}, 400, "invalid_request_error", False),
        ({"code": "image_too_large"}, 400, "invalid_request_error", False),
        ({"code": "bio_policy"}, 400, "invalid_request_error", False),
        ({"code": None}, None, "api_error", True),
    ],
)
def test_a_failed_response_is_an_error(error: Json, status: int | None, kind: str, retryable: bool) -> None:
    named = {**error, "message": "broken"}
    failed = failure(CREATED, ended("failed", error=named))
    event = failure(CREATED, {"type": "error", **named, "param": None, "sequence_number": 3})
    nested = failure(CREATED, {"type": "error", "error": named})

    for found in (failed, event, nested):
        assert (found.message, found.status, found.kind, found.retryable) == ("broken", status, kind, retryable)


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([], "the model's stream broke off before it began"),
        ([CREATED], "the model's stream broke off between two items"),
        ([CREATED, added(0, "reasoning")], "the model's stream broke off inside a reasoning item"),
        ([CREATED, delta(0, "output_text", "Hi")], "the model's stream broke off inside a message"),
        ([CREATED, call(0, "c0")], "the model's stream broke off inside a function call"),
    ],
)
def test_a_stream_without_its_end_is_an_error_that_says_where(chunks: list[Json], words: str) -> None:
    error = failure(*chunks)

    assert (error.message, error.kind, error.retryable) == (words, "connection_failed", True)


@pytest.mark.parametrize(
    ("chunk", "words"),
    [
        (delta(5, "function_call_arguments", "{}"), "arguments arrived for a function call that is not open"),
        (call(0, "c0"), "a function call started twice"),
        ({"type": "response.output_item.added", "output_index": 1}, "invalid event: 'item'"),
        ({"type": "response.output_text.delta", "delta": 7}, "invalid event"),
        ({"type": "response.output_item.added", "item": "x"}, "invalid event"),
        ([], "not a JSON object"),
        (ended("cancelled"), "stream broke off"),
        ({"object": "response", "status": "queued", "output": []}, "the status 'queued'"),
    ],
)
def test_an_event_that_makes_no_sense_is_an_error(chunk: Any, words: str) -> None:
    error = failure(CREATED, call(0, "c0"), chunk)

    assert words in error.message
    assert error.retryable


def test_what_is_no_json_is_an_error() -> None:
    stream = ResponsesStream(model="m", new_id=counting(), taken=(), input_chars=0)

    with pytest.raises(ModelError, match="the model sent an invalid event"):
        stream.feed(b'{"type":')


def test_a_done_marker_of_other_apis_is_ignored() -> None:
    stream = ResponsesStream(model="m", new_id=counting(), taken=(), input_chars=0)

    assert stream.feed(b"[DONE]") == []
