"""Events are accumulated into the blocks of a message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from parley.errors import ModelError
from parley.models.accumulator import MessageAccumulator, is_unreadable
from parley.models.base import ModelEvent, read_event
from parley.protocol.base import Json
from parley.protocol.blocks import Block, Text, Thinking, ToolUse, UnknownBlock

CALL: Json = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
START: Json = {"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "usage": {"input_tokens": 3}}}
STOP: Json = {"type": "message_stop"}


def event(**fields: Any) -> ModelEvent:
    return read_event(msgspec.json.encode(fields))


def starts(block: Json, index: int = 0) -> ModelEvent:
    return event(type="content_block_start", index=index, content_block=block)


def grows(delta: Json, index: int = 0) -> ModelEvent:
    return event(type="content_block_delta", index=index, delta=delta)


def stops(index: int = 0) -> ModelEvent:
    return event(type="content_block_stop", index=index)


def fed(*events: ModelEvent) -> tuple[MessageAccumulator, list[Block | None]]:
    """The accumulator, and what each event returned."""
    growing = MessageAccumulator()
    return growing, [growing.feed(event) for event in events]


def block_of(start: Json, *deltas: Json) -> Block | None:
    """The block with this start and these deltas."""
    return fed(starts(start), *map(grows, deltas), stops())[1][-1]


def pieces(*parts: str) -> list[Json]:
    return [{"type": "input_json_delta", "partial_json": part} for part in parts]


def test_a_text_grows_and_comes_out_when_it_stops() -> None:
    growing, given = fed(
        starts({"type": "text", "text": ""}),
        grows({"type": "text_delta", "text": "Hel"}),
        grows({"type": "text_delta", "text": "lo"}),
        stops(),
    )

    assert given == [None, None, None, Text.of("Hello")]
    assert growing.blocks == [Text.of("Hello")]


def test_a_thought_keeps_its_signature() -> None:
    assert block_of(
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Let me "},
        {"type": "thinking_delta", "thinking": "see."},
        {"type": "signature_delta", "signature": "c2ln"},
    ) == Thinking({"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"})


def test_a_thought_without_a_signature_gets_an_empty_one() -> None:
    assert block_of({"type": "thinking", "thinking": "Hm."}) == Thinking(
        {"type": "thinking", "thinking": "Hm.", "signature": ""}
    )


def test_what_a_block_starts_with_comes_before_what_grows() -> None:
    assert block_of({"type": "text", "text": "Well, "}, {"type": "text_delta", "text": "yes."}) == Text.of("Well, yes.")


@pytest.mark.parametrize("start", [{"type": "text"}, {"type": "text", "text": None}])
def test_a_text_may_start_without_a_text(start: Json) -> None:
    assert block_of(start, {"type": "text_delta", "text": "Hi"}) == Text.of("Hi")


def test_the_input_of_a_call_is_put_together_from_its_pieces() -> None:
    assert block_of(CALL, *pieces("", '{"file_pa', 'th":"a\\', 'u00e9.txt"', ',"limit":5}')) == ToolUse(
        {**CALL, "input": {"file_path": "aé.txt", "limit": 5}}
    )


@pytest.mark.parametrize("deltas", [[], [""], ["{}"]])
def test_a_call_without_arguments_has_an_empty_input(deltas: list[str]) -> None:
    assert block_of(CALL, *pieces(*deltas)) == ToolUse(CALL)


def test_a_call_that_starts_with_its_whole_input_keeps_it() -> None:
    assert block_of({**CALL, "input": {"file_path": "a"}}) == ToolUse({**CALL, "input": {"file_path": "a"}})


@pytest.mark.parametrize("text", ['{"a":', "[1]", '"x"', "null", '{"a":1}}', "no", "[" * 100_000])
def test_an_input_that_is_not_an_object_is_kept_as_it_came(text: str) -> None:
    block = block_of(CALL, *pieces(text[:1], text[1:]))

    assert block == ToolUse({**CALL, "input": {"__unparsedToolInput": {"raw": text, "len": len(text)}}})
    assert isinstance(block, ToolUse)
    assert is_unreadable(block)


def test_an_input_that_is_an_object_is_readable() -> None:
    assert not is_unreadable(ToolUse(CALL))


def test_citations_are_gathered_after_those_there() -> None:
    cited = [{"type": "char_location", "cited_text": word} for word in ("a", "b", "c")]

    assert block_of(
        {"type": "text", "text": "", "citations": cited[:1]},
        {"type": "citations_delta", "citation": cited[1]},
        {"type": "text_delta", "text": "So it is."},
        {"type": "citations_delta", "citation": cited[2]},
    ) == Text({"type": "text", "text": "So it is.", "citations": cited})


def test_a_block_of_an_unknown_type_is_passed_on_as_it_started() -> None:
    start = {"type": "hologram", "data": [1, {"deep": None}], "text": "kept"}

    assert block_of(start) == UnknownBlock(start)


def test_a_delta_of_an_unknown_type_changes_nothing() -> None:
    assert block_of({"type": "text", "text": ""}, {"type": "smell_delta", "text": "roses"}) == Text.of("")


def test_the_end_of_a_block_that_is_not_open_changes_nothing() -> None:
    growing, given = fed(stops(3), event(type="weather"))

    assert (given, growing.blocks) == ([None, None], [])


@pytest.mark.parametrize(
    "events",
    [
        [grows({"type": "text_delta", "text": "lost"}, index=3)],
        [starts({"type": "text", "text": ""}), stops(), grows({"type": "text_delta", "text": "late"})],
        [starts({"type": "text", "text": ""}), starts(CALL)],
        [event(**START), event(**START)],
        [starts({"type": "text", "text": ""}), event(**STOP)],
    ],
)
def test_events_in_an_order_that_makes_no_sense_are_the_models_fault(events: list[ModelEvent]) -> None:
    with pytest.raises(ModelError, match="out of order") as caught:
        fed(*events)

    assert caught.value.retryable


def test_a_message_whose_end_was_reported_is_complete_also_without_its_last_event() -> None:
    end = event(type="message_delta", delta={"stop_reason": "end_turn"})
    text = [starts({"type": "text", "text": ""}), stops()]

    assert [fed(*events)[0].is_complete for events in ([*text, end], [end, text[0]], text)] == [True, False, False]


def test_the_first_lost_block_is_the_one_that_did_not_finish_or_the_next() -> None:
    one, two = starts({"type": "text", "text": ""}, 0), starts(CALL, 1)

    assert [fed(*events)[0].first_lost() for events in ([], [one], [one, stops(0)], [one, stops(0), two])] == [
        0,
        0,
        1,
        1,
    ]


def test_blocks_that_are_open_at_once_do_not_mix() -> None:
    growing, _ = fed(
        starts({"type": "text", "text": ""}, 0),
        starts(CALL, 1),
        grows({"type": "input_json_delta", "partial_json": '{"n":1}'}, 1),
        grows({"type": "text_delta", "text": "Hi"}, 0),
        stops(1),
        stops(0),
    )

    assert growing.blocks == [ToolUse({**CALL, "input": {"n": 1}}), Text.of("Hi")]


def test_a_known_block_with_a_missing_field_is_the_models_fault() -> None:
    with pytest.raises(ModelError, match="a `tool_use` block needs `id`") as raised:
        block_of({"type": "tool_use", "name": "Read", "input": {}})

    assert raised.value.retryable


def test_after_an_interrupt_only_text_is_left_of_open_blocks() -> None:
    growing, _ = fed(
        starts({"type": "thinking", "thinking": ""}, 0),
        grows({"type": "thinking_delta", "thinking": "Half a tho"}, 0),
        starts({"type": "text", "text": ""}, 1),
        grows({"type": "text_delta", "text": "Half a sen"}, 1),
        starts(CALL, 2),
        grows({"type": "input_json_delta", "partial_json": '{"file'}, 2),
        starts({"type": "text", "text": ""}, 3),
        starts({"type": "text"}, 4),
    )

    assert growing.partial() == [Text.of("Half a sen")]
    assert growing.blocks == []


def test_a_finished_block_is_not_partial() -> None:
    growing, _ = fed(starts({"type": "text", "text": "Done."}), stops())

    assert growing.partial() == []


def facts(growing: MessageAccumulator) -> Json:
    names = ("id", "model", "request_id", "usage", "final_usage", "stop_reason", "stop_sequence", "finished")
    return {name: getattr(growing, name) for name in names}


NOTHING: Json = {
    "id": "", "model": "", "request_id": None, "usage": {}, "final_usage": {},
    "stop_reason": None, "stop_sequence": None, "finished": False,
}  # fmt: skip


def test_before_the_first_event_nothing_is_known() -> None:
    assert facts(MessageAccumulator()) == NOTHING


def test_the_start_reports_the_names_and_the_first_usage() -> None:
    start = event(**START)
    start.request_id = "req_1"
    growing, _ = fed(start)

    usage = {"input_tokens": 3}
    assert facts(growing) == {
        **NOTHING,
        "id": "msg_1",
        "model": "m-1",
        "request_id": "req_1",
        "usage": usage,
        "final_usage": usage,
    }


def test_the_end_reports_the_reason_and_adds_to_the_usage() -> None:
    delta = {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    more = {"output_tokens": 9, "input_tokens": None, "server_tool_use": {"web_search_requests": 1}}
    growing, _ = fed(event(**START), event(type="message_delta", delta=delta, usage=more), event(**STOP))

    assert facts(growing) == {
        "id": "msg_1",
        "model": "m-1",
        "request_id": None,
        "usage": {"input_tokens": 3},
        "final_usage": {"input_tokens": 3, "output_tokens": 9, "server_tool_use": {"web_search_requests": 1}},
        "stop_reason": "stop_sequence",
        "stop_sequence": "END",
        "finished": True,
    }


def test_a_later_usage_replaces_what_it_names() -> None:
    growing, _ = fed(
        event(**START),
        event(type="message_delta", usage={"input_tokens": 30, "output_tokens": 1}),
        event(type="message_delta", usage={"output_tokens": 2}),
    )

    assert growing.final_usage == {"input_tokens": 30, "output_tokens": 2}


@pytest.mark.parametrize(
    ("told", "counted"),
    [
        ({"input_tokens": "5", "output_tokens": -1, "service_tier": "x"}, {"service_tier": "x"}),
        ({"input_tokens": True, "output_tokens": 10**30}, {}),
        ({"input_tokens": [1], "cache_creation": 5}, {"cache_creation": {}}),
        ({"server_tool_use": {"web_search_requests": "x", "a": 1}}, {"server_tool_use": {"a": 1}}),
        ({"cache_creation": None, "input_tokens": None}, {"cache_creation": None, "input_tokens": None}),
        ([7], {}),
    ],
)
def test_what_is_not_a_count_is_not_a_part_of_the_bill(told: Any, counted: Json) -> None:
    growing, _ = fed(event(type="message_start", message={"id": "m", "usage": told}))

    assert growing.final_usage == counted


@pytest.mark.parametrize(
    ("start", "delta"),
    [
        ({"type": "text", "text": 5}, {"type": "text_delta", "text": "x"}),
        ({"type": "text", "text": "", "citations": 5}, {"type": "citations_delta", "citation": None}),
    ],
)
def test_what_cannot_grow_is_the_models_fault_and_no_part_of_an_interrupted_turn(start: Json, delta: Json) -> None:
    growing, _ = fed(starts(start), grows(delta))

    assert growing.partial() == []
    with pytest.raises(ModelError, match="invalid content block"):
        growing.feed(stops())
