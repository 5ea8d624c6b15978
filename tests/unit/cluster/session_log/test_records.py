"""The messages of a log, and the state that follows from them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.cluster.base import LogDamaged
from parley.cluster.session_log.fold import MOST_COMMANDS, SessionState
from parley.cluster.session_log.records import (
    ENVELOPE_BYTES,
    AgentRecord,
    AnyRecord,
    Batch,
    BatchReader,
    CommandRecord,
    EntryRecord,
    LabelRecord,
    LineRecord,
    Message,
    NewerVersion,
    OwnerRecord,
    RowDeletedRecord,
    RowRecord,
    decode_snapshot,
    encode_batch,
    encode_snapshot,
)
from parley.stores.base import Entry

OWNER = OwnerRecord(host="one", epoch=3)
RECORDS: list[AnyRecord] = [
    OWNER,
    RowRecord(table="sessions", row={"id": "s", "options": b"[]", "created_at": 1.5, "initialize": None}),
    RowRecord(table="prompts", row={"session": "s", "uuid": "p1", "line": b"{}"}),
    RowRecord(table="prompts", row={"session": "s", "uuid": "p2", "line": b"{}"}),
    LineRecord(number=1, at=2.0, data=b'{"type":"user"}'),
    EntryRecord(session="s", entry=Entry(seq=0, kind="user", at="", message={"uuid": "p1"}, context={"a": 1})),
    AgentRecord(session="s", agent="a1", meta={"agentType": "x"}),
    EntryRecord(session="s", agent="a1", entry=Entry(seq=0, kind="user", at="", message={})),
    LabelRecord(session="s", title="T", title_at=1),
    CommandRecord(id="c1", reply=b"done"),
    RowRecord(table="prompts", row={"session": "s", "uuid": "p1", "line": None}),
]


def batch(*records: AnyRecord) -> Batch:
    return Batch(epoch=3, host="one", records=records)


def read(messages: list[bytes]) -> list[AnyRecord]:
    reader = BatchReader()
    found = [reader.feed(message) for message in messages]
    return [record for one in found if one is not None for record in one.records]


def test_a_batch_is_read_as_it_was_written() -> None:
    (message,) = encode_batch(batch(*RECORDS), 1_000_000)
    assert read([message]) == RECORDS


@given(st.lists(st.binary(max_size=3000), max_size=5), st.integers(ENVELOPE_BYTES + 1, ENVELOPE_BYTES + 4000))
def test_a_batch_of_any_size_fits_the_messages_of_the_log(lines: list[bytes], max_bytes: int) -> None:
    records = [LineRecord(number=number, at=0.0, data=data) for number, data in enumerate(lines, 1)]
    messages = encode_batch(batch(OWNER, *records), max_bytes)
    assert max(map(len, messages)) <= max_bytes
    assert read(messages) == [OWNER, *records]


def test_parts_that_were_never_completed_are_ignored_after_a_new_owner() -> None:
    long = LineRecord(number=1, at=0.0, data=b"x" * 5000)
    parts = encode_batch(batch(long), ENVELOPE_BYTES + 1000)
    (owner,) = encode_batch(batch(OWNER), 10_000)
    assert read([*parts[:2], owner, *encode_batch(batch(RECORDS[4]), 10_000)]) == [OWNER, RECORDS[4]]


def test_a_missing_part_is_damage() -> None:
    parts = encode_batch(batch(LineRecord(number=1, at=0.0, data=b"x" * 5000)), ENVELOPE_BYTES + 1000)
    with pytest.raises(LogDamaged, match="part 1 of a batch is missing"):
        read([parts[0], *parts[2:]])


def test_records_of_a_newer_version_are_not_read() -> None:
    message = msgspec.msgpack.encode(Message(v=2, epoch=1, host="new", data=b""))
    with pytest.raises(NewerVersion, match="version 2, this host reads up to version 1"):
        BatchReader().feed(message)


def test_an_unknown_kind_of_record_is_a_newer_version() -> None:
    data = msgspec.msgpack.encode([{"t": "line", "number": 1, "at": 0.0, "data": b""}, {"t": "budget", "usd": 1}])
    message = msgspec.msgpack.encode(Message(v=1, epoch=1, host="new", data=data))
    with pytest.raises(NewerVersion, match=r"unknown kinds \(budget\)"):
        BatchReader().feed(message)


def test_an_unknown_field_is_ignored() -> None:
    data = msgspec.msgpack.encode([{"t": "command", "id": "c", "reply": b"r", "why": "new"}])
    message = msgspec.msgpack.encode(Message(v=1, epoch=1, host="new", data=data))
    assert read([message]) == [CommandRecord(id="c", reply=b"r")]


def test_a_message_that_is_none_is_damage() -> None:
    with pytest.raises(LogDamaged):
        BatchReader().feed(b"\xc1")


def test_a_snapshot_has_the_same_state_as_the_records() -> None:
    state, copy = SessionState(), SessionState()
    state.apply_all(RECORDS)
    copy.apply_all(decode_snapshot(encode_snapshot(state.records())))
    assert copy == state
    assert list(state.rows["prompts"]) == ["p1", "p2"]
    assert state.rows["prompts"]["p1"]["line"] is None


def test_a_deleted_row_is_gone_and_comes_last_when_it_is_inserted_again() -> None:
    state = SessionState()
    state.apply_all([*RECORDS, RowDeletedRecord(table="prompts", key="p1")])
    assert list(state.rows["prompts"]) == ["p2"]
    state.apply(RECORDS[2])
    assert list(state.rows["prompts"]) == ["p2", "p1"]


def test_a_missing_line_is_damage() -> None:
    with pytest.raises(LogDamaged, match="line 1 is missing; the next one has number 2"):
        SessionState().apply(LineRecord(number=2, at=0.0, data=b""))


def test_only_the_last_commands_are_remembered() -> None:
    state = SessionState()
    state.apply_all(CommandRecord(id=str(number), reply=b"") for number in range(MOST_COMMANDS + 2))
    assert len(state.commands) == MOST_COMMANDS
    assert next(iter(state.commands)) == "2"
