"""Where requests have cache markers."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prompt_cache import PromptCache

from parley.engine.context.history import History, Reader
from parley.engine.context.system_prompt import BOUNDARY, mark_messages, mark_prefix, system_blocks
from parley.models.backends.anthropic import build_body
from parley.models.base import ModelRequest
from parley.protocol.base import Json
from parley.stores.base import Entry

MARK: Json = {"cache_control": {"type": "ephemeral"}}
READER = Reader(owner="m", start=b"", convert=lambda blocks: blocks)
TOOL: Json = {"name": "Read", "description": "Reads a file. " * 400, "input_schema": {}}


def entry(kind: str, *content: Json, id: str = "") -> Entry:
    message: Json = {"type": kind, "message": {"role": kind, "content": list(content), **({"id": id} if id else {})}}
    return Entry(seq=0, kind=kind, at="", message=message)


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def call(number: int, at: int) -> Json:
    return {"type": "tool_use", "id": f"t{number}-{at}", "name": "Read", "input": {}}


def result(number: int, at: int, **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": f"t{number}-{at}", "content": [text(f"line {at}", **more)]}


def request(history: History, system: str, extra: Json) -> Json:
    tools, blocks = mark_prefix([TOOL, {**TOOL, "name": "Late", "defer_loading": True}], system_blocks(system))
    asked = ModelRequest(
        model="claude-sonnet-4-5", system=blocks, messages=mark_messages(history.render()), tools=tools, max_tokens=9
    )
    return build_body(asked, extra)


def markers(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(markers, value.values()))
    return sum(map(markers, value)) if isinstance(value, list) else 0


FROM_CLIENT = st.sampled_from([{}, MARK])
SYSTEMS = st.sampled_from(["", "Be brief.", f"Be brief.\n{BOUNDARY}\nHere.", f"{BOUNDARY}\nHere."])
EXTRA = st.fixed_dictionaries(
    {},
    optional={
        "cache_control": st.just({"type": "ephemeral"}),
        "system": st.lists(st.just(text("Own.", **MARK)), max_size=6),
        "tools": st.lists(st.just({**TOOL, **MARK}), max_size=6),
    },
)


@given(st.lists(st.tuples(st.integers(0, 60), FROM_CLIENT), max_size=6), SYSTEMS, EXTRA)
def test_no_request_has_more_than_four_markers(rounds: list[tuple[int, Json]], system: str, extra: Json) -> None:
    history = History()
    history.read_by(READER)
    history.apply(entry("user", text("Begin", **MARK), text("and go on.", **MARK)))
    for number, (calls, more) in enumerate(rounds):
        history.apply(entry("assistant", text("I look."), *(call(number, at) for at in range(calls)), id=f"m{number}"))
        results = [result(number, at, **more) | more for at in range(calls)]
        history.apply(entry("user", *results, text("What is next?", **more)))
        assert markers(request(history, system, extra)) <= 4


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), SYSTEMS)
def test_each_request_reads_all_that_the_one_before_has_written(rounds: list[int], system: str) -> None:
    cache, history = PromptCache(), History()
    history.read_by(READER)
    history.apply(entry("user", text("Begin.")))
    before = cache.charge(request(history, system, {}), 0)
    for number, calls in enumerate(rounds):
        history.apply(entry("assistant", text("I look."), *(call(number, at) for at in range(calls)), id=f"m{number}"))
        history.apply(entry("user", *(result(number, at) for at in range(calls)), text("What is next?")))
        bill = cache.charge(request(history, system, {}), number)
        assert bill.read == before.input
        assert bill.fresh == 0
        before = bill


def test_a_session_in_another_folder_reads_what_does_not_name_the_folder() -> None:
    cache, history = PromptCache(), History()
    history.apply(entry("user", text("Hello")))
    bills = [cache.charge(request(history, f"Be brief.\n{BOUNDARY}\n{folder}", {}), 0) for folder in ("/a", "/b")]

    assert bills[1].read > 0.9 * bills[0].input
