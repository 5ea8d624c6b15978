"""Conversion of chat completions streams to Messages API events, whatever servers omit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from parley.errors import ModelError
from parley.models.accumulator import MessageAccumulator
from parley.models.backends.converted_stream import DONE
from parley.models.backends.openai import ChatStream
from parley.protocol.base import Json
from tests.helpers.models import counting

USAGE = {"prompt_tokens": 30, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 10}}


def delta(finish: str | None = None, **fields: Any) -> Json:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(arguments: Any = None, *, finish: str | None = None, name: str | None = None, **fields: Any) -> Json:
    """A piece of one tool call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return delta(finish, tool_calls=[{**fields, "function": function}])


def events(*chunks: Json | bytes, done: bool = True, taken: tuple[str, ...] = ()) -> list[Json]:
    """The events for these chunks."""
    stream = ChatStream(model="gpt", new_id=counting(), taken=taken, input_chars=40)
    made = []
    for chunk in (*chunks, *([DONE] if done else [])):
        made += stream.feed(chunk if isinstance(chunk, bytes) else msgspec.json.encode(chunk))
    made += stream.end()
    return [msgspec.json.decode(event.raw) for event in made]


def grown(*chunks: Json | bytes, **options: Any) -> tuple[list[Json], str | None]:
    """The blocks and the stop reason that the engine gets. This checks indices and order too."""
    stream = ChatStream(model="gpt", new_id=counting(), taken=options.get("taken", ()), input_chars=40)
    growing = MessageAccumulator()
    for chunk in (*chunks, DONE):
        for event in stream.feed(chunk if isinstance(chunk, bytes) else msgspec.json.encode(chunk)):
            growing.feed(event)
    for event in stream.end():
        growing.feed(event)
    assert growing.finished
    return [block.json for block in growing.blocks], growing.stop_reason


def used(id: str, name: str, **input: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def test_a_text_comes_out_as_the_messages_api_would_stream_it() -> None:
    first = {"model": "gpt-1", **delta(role="assistant", content="")}

    assert events(first, delta(content="Hel"), delta(content="lo"), delta("stop"), {"choices": [], "usage": USAGE}) == [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "gpt-1",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {
                    "input_tokens": 10,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 0,
                    "output_tokens": 0,
                    "parley_estimated": True,
                },
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {
                "input_tokens": 20,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 10,
                "output_tokens": 7,
                "output_tokens_details": {"thinking_tokens": 0},
                "parley_estimated": False,
            },
        },
        {"type": "message_stop"},
    ]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_a_thought_of_its_own(field: str) -> None:
    assert grown(delta(**{field: "Hm"}), delta(**{field: "."}), delta(content="Yes."), delta("stop")) == (
        [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "Yes."}],
        "end_turn",
    )


def test_content_may_come_in_parts() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Yes."}]

    assert grown(delta(content=parts), delta("stop"))[0] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Yes."},
    ]


TWO = [used("a", "Read", path="x"), used("b", "Grep", word="y")]
X, Y = '{"path":"x"}', '{"word":"y"}'


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(
            [
                call("", index=0, id="a", name="Read"),
                call(X[:4], index=0),
                call(X[4:], index=0),
                call("", index=1, id="b", name="Grep"),
                call(Y, index=1),
            ],
            id="as documented",
        ),
        pytest.param([call(X, index=0, id="a", name="Read"), call(Y, index=1, id="b", name="Grep")], id="in one piece"),
        pytest.param([call(X, index=0, id="a", name="Read"), call(Y, index=0, id="b", name="Grep")], id="one index"),
        pytest.param([call(X, id="a", name="Read"), call(Y, id="b", name="Grep")], id="no index"),
        pytest.param(
            [call(X[:4], id="a", name="Read"), call(X[4:]), call(Y, id="b", name="Grep")], id="no index, in pieces"
        ),
        pytest.param(
            [
                call(X[:4], index=0, id="a", name="Read"),
                call(X[4:], index=0, id="a", name="Read"),
                call(Y, index=1, id="b", name="Grep"),
                call("", index=1, id="b", name="Grep"),
            ],
            id="everything repeated",
        ),
        pytest.param(
            [
                call("", index=0, id="a", name="Read"),
                call("", index=1, id="b", name="Grep"),
                call(X[:4], index=0),
                call(Y[:4], index=1),
                call(X[4:], index=0),
                call(Y[4:], index=1),
            ],
            id="interleaved",
        ),
        pytest.param(
            [
                call({"path": "x"}, index=0, id="a", name="Read"),
                call({"word": "y"}, index=1, id="b", name="Grep"),
            ],
            id="arguments as objects",
        ),
        pytest.param(
            [
                delta(
                    tool_calls=[
                        {"index": 0, "id": "a", "function": {"name": "Read", "arguments": X}},
                        {"index": 1, "id": "b", "function": {"name": "Grep", "arguments": Y}},
                    ]
                )
            ],
            id="both in one chunk",
        ),
        pytest.param(
            [
                call(None, index=0, id="a", name="Re"),
                call(X, index=0, name="ad"),
                call(Y, index=1, id="b", name="Grep"),
            ],
            id="a name in pieces",
        ),
    ],
)
@pytest.mark.parametrize("finish", ["tool_calls", "stop", None])
def test_two_calls_are_two_calls_however_they_come(chunks: list[Json], finish: str | None) -> None:
    assert grown(*chunks, delta(finish)) == (TWO, "tool_use")


def test_calls_without_index_and_id_get_ids_of_their_own() -> None:
    assert grown(call(X, name="Read"), call(Y, name="Grep"))[0] == [
        used("call_2", "Read", path="x"),
        used("call_3", "Grep", word="y"),
    ]


def test_calls_without_arguments_stay_apart() -> None:
    assert grown(call("", name="Now"), call("", name="Here"), delta("stop"))[0] == [
        used("call_2", "Now"),
        used("call_3", "Here"),
    ]


def test_an_id_that_was_used_before_is_replaced() -> None:
    assert grown(call(X, index=0, id="a", name="Read"), taken=("a",))[0] == [used("call_2", "Read", path="x")]


def test_one_id_for_all_calls_is_made_two() -> None:
    chunks = [call(X, index=0, id="a", name="Read"), call(Y, index=1, id="a", name="Grep")]

    assert grown(*chunks)[0] == [used("a", "Read", path="x"), used("call_2", "Grep", word="y")]


def test_the_old_way_to_call_a_function_is_understood() -> None:
    chunks = [delta(function_call={"name": "Read", "arguments": X[:3]}), delta(function_call={"arguments": X[3:]})]

    assert grown(*chunks, delta("function_call")) == ([used("call_2", "Read", path="x")], "tool_use")


def test_calls_of_one_message_come_one_after_the_other() -> None:
    kinds = [
        (event["type"], event.get("index"))
        for event in events(
            delta(content="Look."),
            call(X, index=0, id="a", name="Read"),
            call(Y, index=1, id="b", name="Grep"),
            delta("tool_calls"),
        )
    ]

    assert kinds[1:-2] == [
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_delta", 2),
        ("content_block_stop", 2),
    ]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("eos", "end_turn"),
        (None, "end_turn"),
    ],
)
def test_a_finish_reason_has_its_stop_reason(finish: str | None, reason: str) -> None:
    assert grown(delta(content="Hi"), delta(finish))[1] == reason


@pytest.mark.parametrize("finish", ["stop", None])
def test_a_refusal_is_reported_as_one(finish: str | None) -> None:
    assert grown(delta(refusal="I will not."), delta(finish)) == ([{"type": "text", "text": "I will not."}], "refusal")


def test_a_call_that_was_cut_by_the_length_says_so() -> None:
    blocks, reason = grown(call(X[:5], index=0, id="a", name="Read"), delta("length"))

    assert reason == "max_tokens"
    assert blocks == [used("a", "Read", __unparsedToolInput={"raw": X[:5], "len": 5})]


def test_a_usage_that_no_one_reports_is_estimated_and_marked() -> None:
    assert events(delta(content="x" * 80), delta("stop"))[-2]["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 20,
        "parley_estimated": True,
    }


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [], "usage": USAGE},
        {"choices": None, "usage": USAGE},
        {"x_groq": {"usage": USAGE}},
        {**delta("stop"), "usage": USAGE},
    ],
)
def test_a_usage_is_found_wherever_it_is(chunk: Json) -> None:
    assert events(delta(content="Hi"), chunk)[-2]["usage"]["output_tokens"] == 7


def test_thinking_tokens_are_counted() -> None:
    usage = {**USAGE, "completion_tokens_details": {"reasoning_tokens": 5}}

    assert events(delta("stop"), {"usage": usage})[-2]["usage"]["output_tokens_details"] == {"thinking_tokens": 5}


def test_an_answer_that_is_not_streamed_at_all_is_understood() -> None:
    whole = {"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}

    assert grown(whole) == ([{"type": "text", "text": "Hi"}], "end_turn")


@pytest.mark.parametrize(("finish", "done"), [("stop", False), (None, True)])
def test_one_sign_of_the_end_is_enough(finish: str | None, done: bool) -> None:
    assert events(delta(content="Hi"), delta(finish), done=done)[-1] == {"type": "message_stop"}


def test_a_stream_without_any_sign_of_the_end_was_cut_off() -> None:
    assert [event["type"] for event in events(delta(content="Hi"), done=False)] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
    ]


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        ({"error": {"message": "Overloaded", "type": "server_error"}}, "Overloaded"),
        ({"error": "boom"}, "boom"),
        (b"<html>", "the model sent an invalid event"),
        (b"[1]", "the model sent an event that is not a JSON object"),
        ({"choices": [3]}, "the model sent an invalid event"),
        ({"choices": [{"delta": {"tool_calls": [7]}}]}, "the model sent an invalid event"),
        ({"choices": [{"delta": {"content": [7]}}]}, "the model sent an invalid event"),
    ],
)
def test_what_is_not_a_chunk_is_an_error_that_may_be_tried_again(chunk: Json | bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        events(chunk)

    assert raised.value.retryable


def test_half_a_character_costs_no_answer() -> None:
    half = rb'{"choices": [{"delta": {"content": "hi \ud83d"}}]}'

    assert grown(half, delta("stop")) == ([{"type": "text", "text": "hi \N{REPLACEMENT CHARACTER}"}], "end_turn")


def test_of_several_answers_the_first_is_taken() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "No"}, "finish_reason": "length"}]}

    assert grown(delta(content="Y"), other, delta("stop", content="es")) == (
        [{"type": "text", "text": "Yes"}],
        "end_turn",
    )


def test_a_server_may_number_its_only_answer_as_it_likes() -> None:
    chunk = {"choices": [{"index": 1, "delta": {"content": "Yes"}, "finish_reason": "stop"}]}

    assert grown(chunk) == ([{"type": "text", "text": "Yes"}], "end_turn")


def test_a_finish_reason_that_is_not_a_word_is_ignored() -> None:
    chunk = {"choices": [{"delta": {"content": "Yes"}, "finish_reason": {"a": 1}}]}

    assert grown(chunk) == ([{"type": "text", "text": "Yes"}], "end_turn")


def test_an_answer_that_ended_with_an_error_failed() -> None:
    with pytest.raises(ModelError, match="failed during its answer"):
        events(delta("error", content="Ye"))


def test_a_chunk_that_is_nested_too_deep_is_the_models_fault() -> None:
    with pytest.raises(ModelError, match="too deep"):
        events(b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
