"""What every store promises. Each claim is a sentence and a function; a store's test calls them all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parley.errors import SessionBusy, SessionError, UnknownSession
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry, Store

FIRST = "11111111-1111-4111-8111-111111111111"
SECOND = "22222222-2222-4222-8222-222222222222"


class Place(Struct, frozen=True):
    """Where a store keeps its sessions."""

    open: Callable[[], Store]
    """A store over this place, as a new process in the folder `cwd` would open it."""
    let_time_pass: Callable[[], None] = lambda: None
    """Makes what was written so far older than what comes."""
    cwd: str = "/nowhere/project"


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def user(seq: int, text: str, session_id: str = FIRST, **context: object) -> Entry:
    at = f"2026-01-02T03:04:{seq:02}.000Z"
    message: Json = {
        "type": "user",
        "message": {"role": "user", "content": text},
        "uuid": uuid(seq),
        "session_id": session_id,
        "timestamp": at,
        "parent_tool_use_id": None,
    }
    return Entry(seq=seq, kind="user", at=at, message=message, context=context)


def assistant(seq: int, *content: Json, session_id: str = FIRST, **more: object) -> Entry:
    at = f"2026-01-02T03:04:{seq:02}.000Z"
    message: Json = {
        "type": "assistant",
        "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": list(content)},
        "uuid": uuid(seq),
        "session_id": session_id,
        "timestamp": at,
        "parent_tool_use_id": None,
        **more,
    }
    return Entry(seq=seq, kind="assistant", at=at, message=message)


def note(seq: int, kind: str, message: Json, **context: object) -> Entry:
    return Entry(seq=seq, kind=kind, at=f"2026-01-02T03:04:{seq:02}.000Z", message=message, context=context)


TEXT: Json = {"type": "text", "text": "Grüße \u2028 \U0001f600"}
CALL: Json = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"deep": [1, None, {"x": 1.5}]}}
CONVERSATION = [
    user(0, "Hello\nthere", permissionMode="plan", promptId=uuid(0)),
    note(1, "prompt", {"type": "prompt", "text": "Be brief."}),
    assistant(2, TEXT, request_id="req_1", error="rate_limit", is_api_error_message=True, user_message_uuids=[uuid(0)]),
    assistant(3, CALL, parent_tool_use_id="toolu_parent"),
    note(4, "permission", {"tool_use_id": "t1", "decision": "allow"}, source="rule"),
    note(9, "result", {"type": "result", "subtype": "success", "uuid": uuid(9), "session_id": FIRST}),
    note(10, "telepathy", {}),
]


def kept(store: Store, session_id: str = FIRST) -> list[Entry]:
    """What is in a session's log."""
    log = store.open(session_id)
    try:
        return list(log.entries())
    finally:
        log.close()


def write(store: Store, session_id: str, *entries: Entry) -> None:
    """Append to a session, which is created if it is not there."""
    log = store.open(session_id) if store.exists(session_id) else store.create(session_id)
    for entry in entries:
        log.append(entry)
    log.close()


def entries_come_back_as_they_were_appended(place: Place) -> None:
    write(place.open(), FIRST, *CONVERSATION)

    assert kept(place.open()) == CONVERSATION


def a_log_that_is_being_written_can_be_read(place: Place) -> None:
    log = place.open().create(FIRST)
    read = []
    for entry in CONVERSATION:
        log.append(entry)
        read.append(list(log.entries()))
    log.close()

    assert read == [CONVERSATION[:end] for end in range(1, len(CONVERSATION) + 1)]


def what_is_appended_later_goes_behind_what_is_there(place: Place) -> None:
    write(place.open(), FIRST, *CONVERSATION[:3])
    write(place.open(), FIRST, *CONVERSATION[3:])

    assert kept(place.open()) == CONVERSATION


def entries_that_belong_together_are_appended_at_once(place: Place) -> None:
    log = place.open().create(FIRST)
    log.append(*CONVERSATION[:3])
    log.append(*CONVERSATION[3:])
    log.sync()
    while_it_is_held = list(log.entries())
    log.close()

    assert while_it_is_held == kept(place.open()) == CONVERSATION


def a_search_for_some_of_the_words_has_the_best_first(place: Place) -> None:
    store = place.open()
    write(store, FIRST, user(0, "a boat in Turin"), user(1, "a boat in Bergen"), user(2, "nothing at all"))

    assert [hit.seq for hit in store.ranked("the boat in Bergen", 9, FIRST)] == [1, 0]
    assert [hit.seq for hit in store.ranked("boat Bergen", 1, FIRST)] == [1]
    assert store.ranked("?", 9, FIRST) == []


def a_session_exists_from_its_first_entry_on(place: Place) -> None:
    store = place.open()
    log = store.create(FIRST)
    before = (store.exists(FIRST), store.newest(), list(log.entries()), place.open().exists(FIRST))
    log.append(CONVERSATION[0])
    after = (store.exists(FIRST), store.newest(), list(log.entries()), place.open().exists(FIRST))
    log.close()

    assert before == (False, None, [], False)
    assert after == (True, FIRST, CONVERSATION[:1], True)


def a_session_that_is_not_there_is_unknown(place: Place) -> None:
    store = place.open()
    write(store, FIRST, CONVERSATION[0])

    assert not store.exists(SECOND)
    with pytest.raises(UnknownSession) as raised:
        store.open(SECOND)
    assert str(raised.value) == f"No conversation found with session ID: {SECOND}"


def sessions_do_not_mix(place: Place) -> None:
    store = place.open()
    one, other = store.create(FIRST), store.create(SECOND)
    for seq in range(3):
        one.append(user(seq, "one"))
        other.append(user(seq, "other", SECOND))
    one.close()
    other.close()

    assert kept(store, FIRST) == [user(seq, "one") for seq in range(3)]
    assert kept(store, SECOND) == [user(seq, "other", SECOND) for seq in range(3)]


def the_newest_session_is_the_one_written_last(place: Place) -> None:
    store = place.open()
    newest = [store.newest()]
    for seq, session_id in enumerate([FIRST, SECOND, FIRST]):
        write(store, session_id, user(seq, "x", session_id))
        newest.append(place.open().newest())
        place.let_time_pass()

    assert newest == [None, FIRST, SECOND, FIRST]


def a_copy_of_a_session_is_a_session_of_its_own(place: Place) -> None:
    store = place.open()
    write(store, FIRST, *CONVERSATION)
    copy = store.create(SECOND)
    for entry in store.read(FIRST):
        copy.append(entry)
    copy.append(user(11, "and now", SECOND))
    copy.close()

    assert kept(place.open(), FIRST) == CONVERSATION
    assert [entry.seq for entry in kept(place.open(), SECOND)] == [0, 1, 2, 3, 4, 9, 10, 11]


def a_session_has_one_holder_at_a_time(place: Place) -> None:
    log = place.open().create(FIRST)
    log.append(CONVERSATION[0])

    for take in (place.open().open, place.open().create):
        with pytest.raises(SessionBusy, match=f"Session {FIRST} is in use by (.*process|this host)"):
            take(FIRST)
    log.close()
    place.open().open(FIRST).close()


def whoever_was_robbed_of_a_session_cannot_write_to_it(place: Place) -> None:
    robbed = place.open().create(FIRST)
    robbed.append(CONVERSATION[0])
    thief = place.open().open(FIRST, steal=True)

    with pytest.raises(SessionBusy):
        robbed.append(CONVERSATION[1])
    robbed.close()
    thief.append(CONVERSATION[1])
    assert list(thief.entries()) == CONVERSATION[:2]
    with pytest.raises(SessionBusy):
        place.open().open(FIRST)
    thief.close()


def a_session_can_be_read_while_somebody_writes(place: Place) -> None:
    log = place.open().create(FIRST)
    for entry in CONVERSATION[:3]:
        log.append(entry)
    log.sync()
    reader = place.open()

    assert list(reader.read(FIRST)) == CONVERSATION[:3]
    assert list(reader.read(FIRST, after=0)) == list(log.entries(after=0)) == CONVERSATION[1:3]
    assert list(reader.read(FIRST, after=2)) == []
    log.close()
    with pytest.raises(UnknownSession):
        reader.read(SECOND)


def closing_a_log_twice_does_no_harm(place: Place) -> None:
    log = place.open().create(FIRST)
    log.append(CONVERSATION[0])
    log.close()
    log.close()

    assert kept(place.open()) == CONVERSATION[:1]


def a_list_tells_what_a_session_is_about(place: Place) -> None:
    store = place.open()
    write(store, FIRST, *CONVERSATION)
    found = place.open().info(FIRST)

    assert found is not None
    assert (found.id, found.cwd, found.first_prompt) == (FIRST, place.cwd, "Hello there")
    assert (found.title, found.tag) == (None, None)
    assert found.messages in (None, 3)
    assert found.size_bytes > 0
    assert (found.created[:20], found.modified > "2026-01-02") == ("2026-01-02T03:04:00.", True)
    assert place.open().list() == [found]
    assert place.open().info(SECOND) is None


def a_list_has_the_session_written_last_first_and_can_be_had_in_parts(place: Place) -> None:
    store = place.open()
    for seq, session_id in enumerate([FIRST, SECOND, FIRST]):
        write(store, session_id, user(seq, "x", session_id))
        place.let_time_pass()

    assert [info.id for info in store.list()] == [FIRST, SECOND]
    assert [info.id for info in store.list(place.cwd)] == [FIRST, SECOND]
    assert [info.id for info in store.list(limit=1)] == [FIRST]
    assert [info.id for info in store.list(limit=1, offset=1)] == [SECOND]
    assert store.list(offset=2) == []
    assert store.list("/somewhere/else") == []


def a_session_can_be_renamed_and_tagged_while_somebody_writes(place: Place) -> None:
    log = place.open().create(FIRST)
    log.append(CONVERSATION[0])
    other = place.open()
    other.rename(FIRST, "Grüße")
    other.tag(FIRST, "kept")
    log.append(CONVERSATION[1])
    seen = [place.open().info(FIRST)]
    other.rename(FIRST, "Farewell")
    other.tag(FIRST, None)
    seen.append(place.open().info(FIRST))
    log.append(note(2, "title", {"title": "From inside"}))
    seen.append(place.open().info(FIRST))
    log.close()

    assert [(info.title, info.tag) for info in seen if info] == [
        ("Grüße", "kept"),
        ("Farewell", None),
        ("From inside", None),
    ]
    assert [entry.seq for entry in kept(place.open())] == [0, 1, 2]
    with pytest.raises(UnknownSession):
        other.rename(SECOND, "x")
    with pytest.raises(UnknownSession):
        other.tag(SECOND, "x")


def a_label_leaves_the_order_of_the_sessions(place: Place) -> None:
    store = place.open()
    for session_id in (FIRST, SECOND):
        write(store, session_id, user(0, "x", session_id))
        place.let_time_pass()
    before = [(info.id, info.modified) for info in store.list()]
    store.rename(FIRST, "Title")
    store.tag(FIRST, "kept")

    assert (place.open().newest(), before[0][0]) == (SECOND, SECOND)
    assert [(info.id, info.modified) for info in place.open().list()] == before


def a_deleted_session_is_gone_and_its_id_is_free(place: Place) -> None:
    store = place.open()
    write(store, FIRST, *CONVERSATION)
    write(store, SECOND, user(0, "stays", SECOND))
    store.rename(FIRST, "Title")
    store.delete(FIRST)

    assert not place.open().exists(FIRST)
    assert [info.id for info in place.open().list()] == [SECOND]
    assert store.search("Hello") == []
    with pytest.raises(UnknownSession):
        store.delete(FIRST)
    write(place.open(), FIRST, CONVERSATION[0])
    again = place.open().info(FIRST)
    assert again is not None
    assert again.title is None


def a_session_that_is_held_cannot_be_deleted(place: Place) -> None:
    log = place.open().create(FIRST)
    log.append(CONVERSATION[0])

    with pytest.raises(SessionBusy):
        place.open().delete(FIRST)
    log.append(CONVERSATION[1])
    log.close()
    assert kept(place.open()) == CONVERSATION[:2]


def a_search_finds_what_has_all_the_words(place: Place) -> None:
    store = place.open()
    write(store, FIRST, user(0, "The quick_brown Fox\0 jumps; 'over' 100% of it"), assistant(1, TEXT))
    place.let_time_pass()
    write(store, SECOND, user(0, "a fox, too: " + "ä" * 5000, SECOND), note(1, "permission", {"tool": "fox"}))

    def found(text: str, limit: int = 20) -> list[tuple[str, int]]:
        return [(hit.id, hit.seq) for hit in place.open().search(text, limit)]

    assert found("FOX") == [(SECOND, 0), (FIRST, 0)]
    assert found("fox", limit=1) == [(SECOND, 0)]
    assert found("over the brown fox") == [(FIRST, 0)]
    assert found("grüße") == [(FIRST, 1)]
    assert found("ä" * 5000) == [(SECOND, 0)]
    assert found("fo") == found("fox AND cat") == found('"') == found("") == found("grusse") == []
    assert "quick_brown Fox" in store.search("jumps")[0].excerpt


def an_id_cannot_lead_out_of_the_store(place: Place) -> None:
    store = place.open()
    for name in ("../up", "a/b", "", "*", ".", "x" * 200):
        assert not store.exists(name)
        with pytest.raises(SessionError):
            store.create(name)
        with pytest.raises(UnknownSession):
            store.open(name)


def large_and_odd_texts_come_back_as_they_were(place: Place) -> None:
    entries = [user(0, "x" * 2_000_000), user(1, "\0 \x7f \u2028 \r\n \ufeff \uffff"), user(2, "")]
    write(place.open(), FIRST, *entries)

    assert kept(place.open()) == entries


def anybody_can_see_whether_a_session_is_held(place: Place) -> None:
    write(place.open(), FIRST, user(0, "a"))
    assert not place.open().is_held(FIRST)

    log = place.open().open(FIRST)
    assert place.open().is_held(FIRST)

    log.close()
    assert not place.open().is_held(FIRST)


def it_can_be_seen_whether_somebody_holds_a_session(place: Place) -> None:
    log = place.open().create(FIRST)
    log.append(CONVERSATION[0])
    held = place.open().is_held(FIRST)
    log.close()

    assert (held, place.open().is_held(FIRST), place.open().is_held(SECOND)) == (True, False, False)


def a_session_that_is_whole_is_left_alone_by_a_repair(place: Place) -> None:
    write(place.open(), FIRST, *CONVERSATION)

    assert place.open().repair(FIRST) is None
    assert kept(place.open()) == CONVERSATION
    with pytest.raises(UnknownSession):
        place.open().repair(SECOND)


def what_a_subagent_says_is_kept_with_its_session(place: Place) -> None:
    meta: Json = {"agentType": "scout", "toolUseId": "t1"}
    store = place.open()
    log = store.create(FIRST)
    log.append(user(0, "begin"))
    agent = store.agent_log(FIRST, "a1", meta)
    agent.append(user(0, "look for plums"))
    agent.append(assistant(1, TEXT, parent_tool_use_id="t1"))
    while_it_runs = list(agent.entries())
    agent.close()
    log.append(user(1, "go on"))
    log.close()

    again = place.open()
    assert [(found.id, found.meta) for found in again.agents(FIRST)] == [("a1", meta)]
    said = [user(0, "look for plums"), assistant(1, TEXT, parent_tool_use_id="t1")]
    assert (while_it_runs, list(again.read_agent(FIRST, "a1"))) == (said, said)
    assert kept(again) == [user(0, "begin"), user(1, "go on")]
    assert ([info.id for info in again.list()], again.search("plums")) == ([FIRST], [])


def subagents_go_with_their_session(place: Place) -> None:
    store = place.open()
    for session_id in (FIRST, SECOND):
        log = store.create(session_id)
        log.append(user(0, "begin", session_id))
        agent = store.agent_log(session_id, "a1", {})
        agent.append(user(0, "look", session_id))
        agent.close()
        log.close()
    store.delete(FIRST)

    assert (store.agents(FIRST), list(store.read_agent(FIRST, "a1"))) == ([], [])
    assert [found.id for found in store.agents(SECOND)] == ["a1"]
    assert list(store.read_agent(SECOND, "a1")) == [user(0, "look", SECOND)]


CLAIMS = [
    entries_come_back_as_they_were_appended,
    a_log_that_is_being_written_can_be_read,
    what_is_appended_later_goes_behind_what_is_there,
    entries_that_belong_together_are_appended_at_once,
    a_search_for_some_of_the_words_has_the_best_first,
    a_session_exists_from_its_first_entry_on,
    a_session_that_is_not_there_is_unknown,
    sessions_do_not_mix,
    the_newest_session_is_the_one_written_last,
    a_copy_of_a_session_is_a_session_of_its_own,
    a_session_has_one_holder_at_a_time,
    anybody_can_see_whether_a_session_is_held,
    whoever_was_robbed_of_a_session_cannot_write_to_it,
    a_session_can_be_read_while_somebody_writes,
    closing_a_log_twice_does_no_harm,
    a_list_tells_what_a_session_is_about,
    a_list_has_the_session_written_last_first_and_can_be_had_in_parts,
    a_session_can_be_renamed_and_tagged_while_somebody_writes,
    a_label_leaves_the_order_of_the_sessions,
    a_deleted_session_is_gone_and_its_id_is_free,
    a_session_that_is_held_cannot_be_deleted,
    a_search_finds_what_has_all_the_words,
    an_id_cannot_lead_out_of_the_store,
    large_and_odd_texts_come_back_as_they_were,
    it_can_be_seen_whether_somebody_holds_a_session,
    a_session_that_is_whole_is_left_alone_by_a_repair,
    what_a_subagent_says_is_kept_with_its_session,
    subagents_go_with_their_session,
]
every_claim = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
