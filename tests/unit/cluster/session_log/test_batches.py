"""The messages of a log, and the state that follows from them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.cluster.base import LogDamaged
from parley.cluster.session_log import (
    ENVELOPE_BYTES,
    OLDEST_VERSION,
    VERSION,
    BatchMessage,
    BatchReader,
    LoadedLog,
    RecordBatch,
    decode_snapshot,
    encode_batch,
    encode_snapshot,
)
from parley.gateway.session_log.records import (
    AgentRecord,
    AnyRecord,
    CommandRecord,
    CreatedRecord,
    EntryRecord,
    LabelRecord,
    LineRecord,
    NewerVersion,
    OwnerRecord,
    PromptFinishedRecord,
    PromptTakenRecord,
    SessionState,
    StateRecord,
    encode_records,
)
from parley.stores.base import Entry

OWNER = OwnerRecord(host="one", epoch=3)
RECORDS: list[AnyRecord] = [
    OWNER,
    CreatedRecord(tenant="", creator="admin", cwd="/", options=b"[]", at=1.5),
    PromptTakenRecord(uuid="p1", line=1, digest=b"1"),
    PromptTakenRecord(uuid="p2", line=2, digest=b"2"),
    LineRecord(number=1, at=2.0, data=b'{"type":"user"}'),
    EntryRecord(session="s", entry=Entry(seq=0, kind="user", at="", message={"uuid": "p1"}, context={"a": 1})),
    AgentRecord(session="s", agent="a1", meta={"agentType": "x"}),
    EntryRecord(session="s", agent="a1", entry=Entry(seq=0, kind="user", at="", message={})),
    LabelRecord(session="s", title="T", title_at=1),
    CommandRecord(id="c1", reply=b"done"),
    PromptFinishedRecord(uuid="p1", result=3),
]


def batch(*records: AnyRecord) -> RecordBatch:
    return RecordBatch(epoch=3, host="one", records=records)


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
    message = msgspec.msgpack.encode(BatchMessage(v=VERSION + 1, epoch=1, host="new", data=b""))
    with pytest.raises(NewerVersion, match=f"version {VERSION + 1}, this host reads up to version {VERSION}"):
        BatchReader().feed(message)


def test_an_unknown_kind_of_record_is_a_newer_version() -> None:
    data = msgspec.msgpack.encode([{"t": "line", "number": 1, "at": 0.0, "data": b""}, {"t": "budget", "usd": 1}])
    message = msgspec.msgpack.encode(BatchMessage(v=VERSION, epoch=1, host="new", data=data))
    with pytest.raises(NewerVersion, match=r"unknown kinds \(budget\)"):
        BatchReader().feed(message)


def test_an_unknown_field_is_ignored() -> None:
    data = msgspec.msgpack.encode([{"t": "command", "id": "c", "reply": b"r", "why": "new"}])
    message = msgspec.msgpack.encode(BatchMessage(v=VERSION, epoch=1, host="new", data=data))
    assert read([message]) == [CommandRecord(id="c", reply=b"r")]


def test_a_message_that_is_none_is_damage() -> None:
    with pytest.raises(LogDamaged):
        BatchReader().feed(b"\xc1")


def test_records_of_an_older_version_are_not_read() -> None:
    message = msgspec.msgpack.encode(BatchMessage(v=OLDEST_VERSION - 1, epoch=1, host="old", data=b""))
    with pytest.raises(LogDamaged, match=f"an older version, {OLDEST_VERSION - 1}, which this Parley does not read"):
        BatchReader().feed(message)


def test_a_snapshot_has_the_same_state_as_the_records() -> None:
    state, copy = SessionState(), SessionState()
    state.apply_all(RECORDS)
    lines = [record for record in RECORDS if isinstance(record, LineRecord)]
    first = StateRecord(state=msgspec.structs.replace(state, last_line=0, line_bytes=0))
    copy.apply_all(decode_snapshot(encode_snapshot(encode_records([first, *lines]))))
    assert copy == state
    assert list(state.prompts) == ["p1", "p2"]
    assert list(state.open_prompts) == ["p2"]


def test_a_missing_line_is_damage() -> None:
    with pytest.raises(LogDamaged, match="line 1 is missing from the log; the next one has number 2"):
        LoadedLog().apply_all([LineRecord(number=2, at=0.0, data=b"")])
