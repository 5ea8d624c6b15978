"""What becomes of the text of an answer, whatever the pieces it arrives in."""

from __future__ import annotations

from itertools import count, pairwise

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parley.engine.repair.answer import AnswerRepair
from parley.models.accumulator import MessageAccumulator
from parley.models.base import ModelEvent, read_event
from parley.protocol.base import Json

PARTS = st.sampled_from(
    [
        *("<think>", "</think>", "<thinking>", "<tool_call>", "</tool_call>", "<function=Read>", "</function>", "<"),
        *("[TOOL_CALLS]", "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant", "```json\n", "```", "`"),
        *(
            '{"name": "Ada", ',
            '{"type": "function", ',
            '"function": {"name": "Read", ',
            '"id": 1, ',
            '"age": 3',
            "[{'tool': ",
        ),
        *('{"name": "Read", "arguments": {"path": "a"}}', '{"name": ', "{", "[", "}", "> ", "\n", " ", "I'll look:\n"),
        *("<minimax:tool_call>", "<TOOLCALL>", '<tool_use name="Read">', "<｜DSML｜invoke name=", "<|START_ACTION|>"),
        *("[THINK]", "[/THINK]", "◁think▷", "◁/think▷", "<thought>", "</thought>", "<|START_THINKING|>", "<Think>"),
        *(
            "<|im_end|>",
            "</s>",
            "<s>",
            "```tool_code\n",
            "Read(path='a')",
            "~~~\n",
            "<!-- ",
            " -->",
            "    ",
            ">>>Read\n",
        ),
        *("word", "<div>", "a < b", "to=functions.Read <|message|>", "[Read(path='a')]", "\u00e9\U0001f600"),
    ]
)
TEXTS = st.lists(PARTS, max_size=12).map("".join)


def stream(pieces: list[str]) -> list[ModelEvent]:
    events: list[Json] = [
        {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    ]
    return [read_event(msgspec.json.encode(event)) for event in events]


def read(pieces: list[str], *, has_tools: bool = True) -> tuple[list[Json], list[ModelEvent]]:
    """The blocks of an answer, and its events."""
    ids = count()
    repair = AnswerRepair("Read".__eq__ if has_tools else None, lambda call: False, lambda: str(next(ids)))
    accumulator = MessageAccumulator()
    events = [event for sent in stream(pieces) for event in repair.feed(sent)]
    for event in events:
        accumulator.feed(event)
    assert accumulator.finished
    return [block.json for block in accumulator.blocks], events


def cut(text: str, at: list[int]) -> list[str]:
    ends = sorted({end % (len(text) + 1) for end in at} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(ends)] or [""]


@given(TEXTS, st.lists(st.integers(min_value=0, max_value=200), max_size=8))
@example("<|im_end|> -->", [10])
@example('  {"name": "Ada", "age": 36', [12, 20])
def test_the_pieces_of_a_text_make_no_difference(text: str, at: list[int]) -> None:
    assert read(cut(text, at))[0] == read([text])[0]


@given(TEXTS, st.lists(st.integers(min_value=0, max_value=200), max_size=8))
def test_every_event_says_what_its_block_is(text: str, at: list[int]) -> None:
    _, events = read(cut(text, at))
    for event in events:
        sent = msgspec.json.decode(event.raw)
        assert (sent["type"], sent.get("index", 0)) == (event.type, event.index)
        if event.delta is not None and event.type == "content_block_delta":
            assert sent["delta"].get("text", "") == event.delta.text


@given(
    st.lists(st.sampled_from(["word", "<", "a < b", "{", "[1]", "`x`", "```", "\n", " ", "<div>", "\u00e9"])).map(
        "".join
    )
)
def test_a_text_without_a_mark_passes_byte_for_byte(text: str) -> None:
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)] or [""]
    _, events = read(pieces)

    assert [event.raw for event in events] == [event.raw for event in stream(pieces)]


def test_without_tools_a_call_is_text() -> None:
    text = '<tool_call>{"name": "Read", "arguments": {}}</tool_call>'
    assert read([text], has_tools=False)[0] == [{"type": "text", "text": text}]


@pytest.mark.parametrize(
    "start",
    [
        '{"name": "left-pad", "version": "1.0.0", ',
        '{"id": 7, ',
        '```json\n[{"type": "object", "of": {}, ',
        '{"tool_calls": [{"id": "1", "function": {"name": "write", ',
        f'{{"name": "{"word " * 100}", ',
        "{'action': 'wait', ",
    ],
)
def test_json_that_is_no_call_is_sent_as_it_arrives(start: str) -> None:
    rest = ['"key": "value", '] * 20
    _, events = read([*start, *rest])
    sent = [event.delta.text for event in events if event.type == "content_block_delta" and event.delta is not None]

    assert "".join(sent) == start + "".join(rest)
    assert sent[-19:] == rest[1:]
