"""Which session is opened, and what of it counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.errors import SessionBusy, SessionError, UnknownSession, UsageError
from parley.protocol.base import Json
from parley.stores.base import Entry, Store
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.store import ClaudeStore
from parley.stores.memory import MemoryStore
from parley.stores.session_open import OpenedSession, WantedSession, open_session

OLD = "11111111-1111-4111-8111-111111111111"
NEW = "22222222-2222-4222-8222-222222222222"
UNKNOWN = "99999999-9999-4999-8999-999999999999"


def said(seq: int, kind: str, uuid: str, **more: object) -> Entry:
    content: list[Json] = [{"type": "text", "text": uuid}]
    message: Json = {"type": kind, "message": {"role": kind, "content": content}, "uuid": uuid, **more}
    told = {"session_id": OLD, "timestamp": "2026-01-01T00:00:00Z", "parent_tool_use_id": None}
    return Entry(seq=seq, kind=kind, at="2026-01-01T00:00:00Z", message={**message, **told})


TALK = [
    said(0, "user", "first"),
    said(1, "assistant", "first answer"),
    Entry(seq=2, kind="result", at="2026-01-01T00:00:00Z", message={"type": "result"}),
    said(3, "user", "second"),
    said(4, "assistant", "second answer"),
]


@pytest.fixture(params=["claude", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made: Store = MemoryStore() if request.param == "memory" else claude(tmp_path)
    log = made.create(OLD)
    for entry in TALK:
        log.append(entry)
    log.close()
    return made


def claude(config: Path) -> ClaudeStore:
    return ClaudeStore(config, EntryContext(cwd="/nowhere", version="2.1.0"))


def open_it(store: Store, **wanted: object) -> OpenedSession:
    return open_session(WantedSession(**wanted), store, lambda: NEW)  # type: ignore[arg-type]


def uuids(entries: Iterator[Entry]) -> list[str]:
    return [entry.message["uuid"] for entry in entries if entry.kind in ("user", "assistant")]


def test_a_new_session_has_its_id_before_anything_is_said(store: Store) -> None:
    opened = open_it(store)

    assert (opened.session_id, list(opened.log.entries())) == (NEW, [])
    assert not store.exists(NEW)


@pytest.mark.parametrize("wanted", [{"resume": OLD}, {"newest": True}])
def test_a_resumed_session_keeps_its_id_and_its_log(store: Store, wanted: Json) -> None:
    opened = open_it(store, **wanted)

    assert (opened.session_id, list(opened.log.entries())) == (OLD, TALK)


@pytest.mark.parametrize("wanted", [{}, {"fork": True}, {"keep": False}, {"steal": True}])
def test_an_unknown_id_is_an_error_never_a_new_session(store: Store, wanted: Json) -> None:
    with pytest.raises(UnknownSession):
        open_it(store, resume=UNKNOWN, **wanted)

    assert not store.exists(UNKNOWN)
    assert not store.exists(NEW)


def test_there_must_be_a_session_to_continue(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="No conversation found to continue"):
        open_it(claude(tmp_path), newest=True)


def test_a_session_that_is_held_can_be_forked_and_read_but_not_resumed(store: Store) -> None:
    holder = store.open(OLD)

    with pytest.raises(SessionBusy):
        open_it(store, resume=OLD)
    assert uuids(open_it(store, resume=OLD, fork=True).log.entries()) == uuids(iter(TALK))
    assert uuids(open_it(store, resume=OLD, keep=False).log.entries()) == uuids(iter(TALK))
    holder.append(said(5, "user", "third"))


def test_a_fork_has_an_id_of_its_own_and_leaves_the_old_session_as_it_was(store: Store) -> None:
    opened = open_it(store, resume=OLD, fork=True)
    opened.log.append(said(5, "user", "elsewhere"))

    assert (opened.session_id, opened.copied) == (NEW, OLD)
    assert list(store.read(OLD)) == TALK
    assert uuids(store.read(NEW)) == ["first", "first answer", "second", "second answer", "elsewhere"]


def test_what_is_not_kept_is_read_and_nothing_is_written(store: Store) -> None:
    opened = open_it(store, resume=OLD, keep=False)
    opened.log.append(said(5, "user", "unheard"))

    assert (opened.session_id, uuids(opened.log.entries())[-1]) == (OLD, "unheard")
    assert list(store.read(OLD)) == TALK


def test_an_id_may_be_opened_unless_it_is_in_use(store: Store) -> None:
    assert open_it(store, session_id=NEW).session_id == NEW
    with pytest.raises(UsageError, match=f"Session ID {OLD} is already in use"):
        open_it(store, session_id=OLD)
    assert open_it(store, session_id=OLD, keep=False).session_id == OLD


@pytest.mark.parametrize(
    ("wanted", "warning"),
    [
        ({"session_id": "x"}, "Invalid session ID"),
        ({"resume": ""}, "--resume needs a session id or title"),
        ({"resume": " ", "fork": True}, "--resume needs a session id or title"),
        ({"session_id": NEW, "resume": OLD}, "only if --fork-session is given"),
        ({"session_id": NEW, "newest": True}, "only if --fork-session is given"),
        ({"at": "first"}, "--resume-session-at requires"),
        ({"resume": OLD, "drops": "second"}, "--resume-drops-turn requires"),
    ],
)
def test_contradictory_options_are_refused(store: Store, wanted: Json, warning: str) -> None:
    with pytest.raises(UsageError, match=warning):
        open_it(store, **wanted)


# Going on at an earlier point.


def test_a_fork_at_a_line_has_what_is_before_it(store: Store) -> None:
    opened = open_it(store, resume=OLD, fork=True, at="first answer")

    assert uuids(opened.log.entries()) == ["first", "first answer"]
    assert list(store.read(OLD)) == TALK


def test_a_fork_between_a_call_and_its_result_knows_that_the_call_was_allowed(store: Store) -> None:
    call: Json = {"type": "tool_use", "id": "t1", "name": "Write", "input": {}}
    other: Json = {**call, "id": "t2"}
    asked = said(5, "assistant", "call", message={"role": "assistant", "content": [call]})
    allowed = [
        Entry(seq=6, kind="permission", at="2026-01-01T00:00:00Z", message={"tool_use_id": "t1", "decision": "allow"}),
        said(7, "user", "result"),
        said(8, "assistant", "more", message={"role": "assistant", "content": [other]}),
        Entry(seq=9, kind="permission", at="2026-01-01T00:00:00Z", message={"tool_use_id": "t2", "decision": "allow"}),
    ]
    log = store.open(OLD)
    for entry in [asked, *allowed]:
        log.append(entry)
    log.close()
    opened = open_it(store, resume=OLD, fork=True, at="call")

    *before, last = opened.log.entries()
    assert uuids(iter(before))[-1] == "call"
    assert (last.seq, last.message) == (6, allowed[0].message)


def test_the_session_itself_continues_at_a_line_and_nothing_is_deleted(store: Store) -> None:
    opened = open_it(store, resume=OLD, at="first answer")
    *before, cut = opened.log.entries()

    assert before == TALK
    assert (cut.kind, cut.seq, cut.message) == ("cut", 5, {"after": "first answer"})


def test_the_last_line_is_nothing_to_cut_at(store: Store) -> None:
    assert list(open_it(store, resume=OLD, at="second answer").log.entries()) == TALK


def test_what_was_cut_off_is_not_a_point_to_continue_at(store: Store) -> None:
    open_it(store, resume=OLD, at="first answer").log.close()

    with pytest.raises(SessionError, match="second answer"):
        open_it(store, resume=OLD, at="second answer")
    assert open_it(store, resume=OLD, at="first").session_id == OLD  # and no one holds it after the refusal


@pytest.mark.parametrize("wanted", [{}, {"fork": True}, {"keep": False}])
def test_an_unknown_point_is_an_error_and_changes_nothing(store: Store, wanted: Json) -> None:
    with pytest.raises(SessionError, match=f"No message found with message.uuid of: {UNKNOWN}"):
        open_it(store, resume=OLD, at=UNKNOWN, **wanted)

    assert list(store.read(OLD)) == TALK
    assert not store.exists(NEW)


def test_one_turn_may_be_dropped_if_it_is_the_one_that_was_named(store: Store) -> None:
    opened = open_it(store, resume=OLD, fork=True, at="first answer", drops="second")

    assert uuids(opened.log.entries()) == ["first", "first answer"]


@pytest.mark.parametrize(("at", "drops"), [("first", "second"), ("first answer", "third"), ("first answer", "")])
def test_what_belongs_to_no_named_turn_is_not_dropped(store: Store, at: str, drops: str) -> None:
    with pytest.raises(SessionError, match=r"^Resume rejected by --resume-drops-turn: "):
        open_it(store, resume=OLD, at=at, drops=drops)
    assert list(store.read(OLD)) == TALK


@pytest.mark.parametrize(
    "more",
    [
        [said(5, "user", "queued")],
        [said(5, "assistant", "x"), said(6, "user", "third"), said(7, "assistant", "y")],
    ],
)
def test_a_prompt_that_came_within_the_turn_is_not_lost(store: Store, more: list[Entry]) -> None:
    log = store.open(OLD)
    for entry in more:
        log.append(entry)
    log.close()

    with pytest.raises(SessionError, match=r"^Resume rejected by --resume-drops-turn: "):
        open_it(store, resume=OLD, at="first answer", drops="second")


def test_a_prompt_that_was_merged_into_the_turn_is_not_lost(store: Store) -> None:
    log = store.open(OLD)
    log.append(said(5, "user", "third", user_message_uuids=["third", "fourth"]))
    log.close()

    with pytest.raises(SessionError, match="fourth"):
        open_it(store, resume=OLD, at="second answer", drops="third")


def test_results_and_notes_of_the_engine_belong_to_the_turn(store: Store) -> None:
    result = said(6, "user", "result")
    result.message["message"]["content"] = [{"type": "tool_result", "tool_use_id": "t", "content": ""}]
    log = store.open(OLD)
    for entry in [said(5, "user", "note", isSynthetic=True), result, said(7, "assistant", "end")]:
        log.append(entry)
    log.close()

    opened = open_it(store, resume=OLD, fork=True, at="first answer", drops="second")
    assert uuids(opened.log.entries()) == ["first", "first answer"]
