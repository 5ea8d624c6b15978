"""Lines that other programs write: branches, as the original makes them, and entries that are not valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.protocol.base import Json
from parley.stores.base import Entry
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.foreign_lines import find_abandoned, find_problem, is_straight
from parley.stores.files.store import ClaudeStore
from parley.stores.session_open import WantedSession, open_session
from tests.helpers.store_conformance import CONVERSATION

SESSION = "11111111-1111-4111-8111-111111111111"
TEXT: list[Json] = [{"type": "text", "text": "x"}]


def line(uuid: str, parent: str | None, kind: str = "user", **more: object) -> Json:
    message = {"role": kind, "content": TEXT}
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "isSidechain": False, "message": message, **more}


def call(uuid: str, parent: str, message_id: str) -> Json:
    content = [{"type": "tool_use", "id": f"call {uuid}", "name": "Bash", "input": {}}]
    return line(uuid, parent, "assistant", message={"role": "assistant", "id": message_id, "content": content})


def result(uuid: str, of: str) -> Json:
    content = [{"type": "tool_result", "tool_use_id": f"call {of}", "content": "done"}]
    return line(uuid, of, message={"role": "user", "content": content})


def dropped(*lines: Json) -> set[str]:
    raw = [msgspec.json.encode(each) + b"\n" for each in lines]
    found = find_abandoned(raw)
    assert is_straight(raw) <= (not found)
    return set(found)


def test_a_conversation_without_branches_is_straight() -> None:
    conversation = [line("a", None), line("b", "a", "assistant"), line("s", "b", "system"), line("c", "s")]

    assert is_straight(map(msgspec.json.encode, conversation))
    assert dropped(*conversation) == set()


def test_the_branch_of_the_last_line_counts() -> None:
    conversation = [line("a", None), line("b", "a", "assistant"), line("c", "b"), line("d", "c", "assistant")]

    assert dropped(*conversation, line("e", "b")) == {"c", "d"}
    assert dropped(*conversation, line("e", "b"), line("f", "d")) == {"e"}


def test_a_conversation_may_begin_again_from_nothing() -> None:
    assert dropped(line("a", None), line("b", "a"), line("c", None)) == {"a", "b"}


def test_subagents_are_not_branches() -> None:
    side = [line("x", None, isSidechain=True), line("y", "x", isSidechain=True)]

    assert dropped(line("a", None), *side, line("b", "a")) == set()


def test_a_title_is_not_a_branch() -> None:
    title: Json = {"type": "custom-title", "customTitle": "A talk", "uuid": "t"}

    assert dropped(line("a", None), line("b", "a"), title) == set()
    assert dropped(line("a", None), title, line("b", "a")) == set()


def test_calls_side_by_side_are_not_branches() -> None:
    calls = [line("a", None), call("b", "a", "m"), call("c", "b", "m")]

    assert dropped(*calls, result("rb", "b"), result("rc", "c"), line("d", "rc", "assistant")) == set()
    assert dropped(*calls, result("rc", "c"), result("rb", "b"), line("d", "rb", "assistant")) == set()


def test_going_back_before_a_call_removes_its_parallel_calls_too() -> None:
    calls = [line("a", None), call("b", "a", "m"), call("c", "b", "m"), result("rb", "b"), result("rc", "c")]

    assert dropped(*calls, line("d", "a")) == {"b", "c", "rb", "rc"}


def test_the_lines_before_a_boundary_are_before_it() -> None:
    conversation = [line("a", None), line("b", "a"), line("x", "a", "system", parentUuid=None, logicalParentUuid="b")]

    assert dropped(*conversation, line("c", "x", isCompactSummary=True)) == set()


def test_a_parent_that_is_not_there_costs_nothing() -> None:
    assert dropped(line("a", None), line("b", "gone"), line("c", "b")) == set()


@pytest.mark.parametrize("odd", [b"{", b"null", b'{"uuid":5}', b"\xff", b"", b'{"type":"user","uuid":"x","message":5}'])
def test_odd_lines_cost_nothing(odd: bytes) -> None:
    raw = [odd, *map(msgspec.json.encode, [line("a", None), line("b", "a")]), odd]

    assert not find_abandoned(raw) & {"a", "b"}


def test_lines_that_name_themselves_do_not_hold_us_up() -> None:
    assert dropped(line("a", None), line("b", "b"), line("b", "b")) == {"a"}


# In a store.


def store(config: Path) -> ClaudeStore:
    return ClaudeStore(config, EntryContext(cwd="/nowhere", version="2.1.0"))


def put(config: Path, *lines: Json) -> Path:
    path = config / "projects" / "-nowhere" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in lines))
    return path


def test_a_session_of_the_original_continues_on_its_last_branch(tmp_path: Path) -> None:
    path = put(tmp_path, line("a", None), line("b", "a", "assistant"), line("c", "a", "assistant"))

    log = store(tmp_path).open(SESSION)
    assert [entry.message["uuid"] for entry in log.entries()] == ["a", "c"]
    last = list(log.entries())[-1]
    log.append(msgspec.structs.replace(last, seq=last.seq + 1, message={**last.message, "uuid": "d"}))
    log.close()

    assert msgspec.json.decode(path.read_bytes().splitlines()[-1])["parentUuid"] == "c"
    assert [entry.message["uuid"] for entry in store(tmp_path).read(SESSION)] == ["a", "c", "d"]


def test_where_we_cut_the_next_line_follows_the_point_for_other_readers(tmp_path: Path) -> None:
    path = put(tmp_path, line("a", None), line("b", "a", "assistant"), line("c", "b"))
    log = open_session(WantedSession(resume=SESSION, at="b"), store(tmp_path), lambda: "new").log
    *_, cut = log.entries()
    message = {**line("d", None), "session_id": SESSION, "timestamp": "", "parent_tool_use_id": None}
    log.append(msgspec.structs.replace(cut, seq=cut.seq + 1, kind="user", message=message))
    log.close()

    assert msgspec.json.decode(path.read_bytes().splitlines()[-1])["parentUuid"] == "b"
    # Nothing is hidden from who follows the log: the cut itself says what counts.
    assert [entry.message.get("uuid") for entry in store(tmp_path).read(SESSION)] == ["a", "b", "c", None, "d"]


def test_a_damaged_line_is_not_a_branch(tmp_path: Path) -> None:
    path = put(tmp_path, line("a", None))
    log = store(tmp_path).open(SESSION)
    first = next(iter(log.entries()))
    for seq, uuid in enumerate("bcd", 1):
        log.append(msgspec.structs.replace(first, seq=seq, message={**first.message, "uuid": uuid}))
    log.close()
    path.write_bytes(path.read_bytes().replace(b'"parentUuid":"c"', b'"qarentUuid":"c"'))

    assert [entry.message["uuid"] for entry in store(tmp_path).read(SESSION)] == ["a", "b", "c"]


def entry(kind: str, message: Json, **more: Any) -> Entry:
    return Entry(**{"seq": 0, "kind": kind, "at": "", "message": message, **more})


def said(content: Any, **inner: Any) -> Json:
    return {"type": "user", "uuid": "u", "message": {"role": "user", "content": content, **inner}}


SOUND = [
    *CONVERSATION,
    entry("user", said("text")),
    entry("assistant", said([{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}], id="m")),
    entry("user", said([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x"}]}])),
    entry("user", said([{"type": "a_kind_of_tomorrow", "text": None}])),
    entry("system", {"uuid": "u", "compact_metadata": {"preserved_segment": None}}),
    entry("conversation_reset", {"uuid": "u"}),
    entry("title", {"title": "T"}),
    entry("a kind of tomorrow", {}),
]
ODD = [
    entry("user", {}),
    entry("user", {"message": {"content": "text"}}),
    entry("user", {"uuid": "u", "message": "text"}),
    entry("user", said(None)),
    entry("user", said([1])),
    entry("user", said([{}])),
    entry("user", said([{"type": "text", "text": None}])),
    entry("user", said([{"type": "tool_result", "tool_use_id": ["t"]}])),
    entry("user", said([{"type": "tool_result", "tool_use_id": "t", "content": [1]}])),
    entry("assistant", said([{"type": "tool_use"}])),
    entry("assistant", said("text", id=5)),
    entry("system", {"compact_metadata": {}}),
    entry("system", {"uuid": "u", "compact_metadata": [1]}),
    entry("system", {"uuid": "u", "compact_metadata": {"preserved_segment": "x"}}),
    entry("system", {"uuid": "u", "compact_metadata": {"preserved_messages": {"uuids": [[]]}}}),
    entry("conversation_reset", {}),
    entry("title", {"title": [1]}),
    entry("user", said("text"), seq=-1),
    entry("user", said("text"), context={"message": 5}),
]


@pytest.mark.parametrize("sound", SOUND)
def test_what_can_be_folded_and_sent_is_not_odd(sound: Entry) -> None:
    assert find_problem(sound) is None


@pytest.mark.parametrize("odd", ODD)
def test_what_no_one_could_fold_or_send_is_odd(odd: Entry) -> None:
    assert find_problem(odd) is not None
