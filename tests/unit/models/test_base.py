"""Parsing Messages API events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import ModelError
from parley.models.base import Delta, ModelEvent, attach_endings, join_texts, read_event


def test_an_event_keeps_its_bytes() -> None:
    data = b'{ "type":"content_block_delta", "index":2, "delta":{"type":"text_delta","text":"hi","new":1} }'

    assert read_event(data) == ModelEvent(
        type="content_block_delta", index=2, delta=Delta(type="text_delta", text="hi"), raw=data
    )


def test_half_a_character_costs_no_event() -> None:
    """A server that cuts JavaScript strings anywhere sends half a surrogate pair, the other half in the next event."""
    event = read_event(rb'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi \ud83d"}}')

    assert event.delta == Delta(type="text_delta", text="hi \N{REPLACEMENT CHARACTER}")
    assert msgspec.json.decode(event.raw)["delta"]["text"] == "hi \N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"weather"}',
        b'{"type":"weather","message":"rain"}',
        b'{"type":"weather","index":"first","delta":[1],"usage":7,"error":"none"}',
    ],
)
def test_an_event_of_an_unknown_type_passes_whatever_it_carries(data: bytes) -> None:
    assert read_event(data) == ModelEvent(type="weather", raw=data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[DONE]",
        b"{}",
        b'{"type":5}',
        b'{"type":"message_start","message":"rain"}',
        b'{"type":"content_block_delta","index":"first"}',
        b'{"type":"content_block_delta","delta":{"type":"text_delta","text":null}}',
    ],
)
def test_what_is_not_an_event_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_event(data)


def test_an_event_spread_over_several_lines_is_written_on_one() -> None:
    assert read_event(b'{"type":\n"ping"}').raw == b'{"type": "ping"}'


def test_an_event_that_is_nested_too_deep_cannot_be_read() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_event(b'{"type":"x","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


EVENTS = [
    read_event(data)
    for data in (
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b","new":1}}',
        b'{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"c"}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"d"}}',
        b'{"type":"content_block_stop","index":0}',
        b'{"type":"ping"}',
    )
]
Said = list[tuple[int, str]]


def collect_text(events: Iterable[ModelEvent]) -> Said:
    """The text of each block, in the order of the stream."""
    said: Said = []
    for event in events:
        text = event.delta.text if event.delta is not None else ""
        if said and text and said[-1][0] == event.index:
            text = said.pop()[1] + text
        said.append((event.index, text))
    return said


@given(st.lists(st.sampled_from(EVENTS)))
def test_text_deltas_that_arrive_together_are_one_event(events: list[ModelEvent]) -> None:
    joined = list(join_texts(events))

    assert [raw for event in joined for raw in event.joined or (event.raw,)] == [event.raw for event in events]
    assert collect_text(joined) == collect_text(events)
    assert all(len(event.joined) != 1 for event in joined)
    assert all(
        not (one.delta and other.delta and one.delta.text and other.delta.text and one.index == other.index)
        for one, other in pairwise(joined)
    )


def test_a_text_delta_that_arrives_alone_stays_as_it_is() -> None:
    assert list(join_texts(EVENTS[:1])) == EVENTS[:1]


STOP, ENDING, END = (
    read_event(b'{"type":"%b"}' % kind) for kind in (b"content_block_stop", b"message_delta", b"message_stop")
)


@given(st.lists(st.sampled_from([*EVENTS, STOP, ENDING, END]), min_size=1))
def test_the_end_of_the_last_block_knows_how_the_answer_ends(events: list[ModelEvent]) -> None:
    copies = [msgspec.structs.replace(event) for event in events]
    found = list(attach_endings(copies))

    assert all(one is other for one, other in zip(found, copies, strict=True))
    for at, event in enumerate(found):
        is_ended = [later.type for later in found[at : at + 3]] == [STOP.type, ENDING.type, END.type]
        assert event.ending is (found[at + 1] if is_ended else None)


def test_a_block_that_ends_before_an_invalid_event_is_not_lost() -> None:
    def events() -> Iterator[ModelEvent]:
        yield STOP
        yield ENDING
        raise ModelError("invalid")

    received: list[ModelEvent] = []
    with pytest.raises(ModelError):
        received.extend(attach_endings(events()))

    assert received == [STOP, ENDING]


def test_text_before_an_invalid_event_is_not_lost() -> None:
    def events() -> Iterator[ModelEvent]:
        yield from EVENTS[:2]
        raise ModelError("invalid")

    received: list[tuple[bytes, ...]] = []
    with pytest.raises(ModelError):
        received.extend(event.joined for event in join_texts(events()))

    assert received == [(EVENTS[0].raw, EVENTS[1].raw)]
