"""Parsing Messages API events."""

from __future__ import annotations

import msgspec
import pytest

from parley.models.base import Delta, ModelEvent, read_event


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
