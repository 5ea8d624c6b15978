"""What the log of a session consists of: records, in batches.

    encode_batch(batch, max_bytes)    the messages of a batch: one, or several parts
    BatchReader.feed(message)         the batch that a message completes, if any
    encode_snapshot, decode_snapshot  the state of a session as the records that it follows from

A version may add fields: older hosts ignore them. A new kind of record, or one that means something else, raises
`VERSION`. A host that meets a newer version or an unknown kind leaves the session to another one.

See also: `fold.py` for the state that follows from records, `writer.py` for who writes them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from parley.cluster.base import ClusterError, LogDamaged
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry

VERSION = 1
ENVELOPE_BYTES = 1024
"""More than a message needs besides its part of the records."""


class NewerVersion(ClusterError):
    """The session has records that this version does not know. A host with a newer one must run it."""


class Record(Struct, frozen=True, kw_only=True, tag_field="t"):
    """Something that happened in a session."""


class OwnerRecord(Record, frozen=True, kw_only=True, tag="owner"):
    """A host has loaded the session. From here on, writes of earlier owners fail."""

    host: str
    epoch: int


class RowRecord(Record, frozen=True, kw_only=True, tag="row"):
    """A row of the gateway's database was written."""

    table: str
    row: dict[str, Any]
    """All columns that are kept."""


class RowDeletedRecord(Record, frozen=True, kw_only=True, tag="row_deleted"):
    table: str
    key: str
    """The primary key without the session."""


class LineRecord(Record, frozen=True, kw_only=True, tag="line"):
    """A line that clients see was numbered."""

    number: int
    at: float
    data: bytes


class EntryRecord(Record, frozen=True, kw_only=True, tag="entry"):
    """An entry of a transcript of the engine."""

    session: str
    """The id of the session in the engine, which changes with `/clear`."""
    agent: str = ""
    """The subagent whose transcript it is; empty for the session's own."""
    entry: Entry


class AgentRecord(Record, frozen=True, kw_only=True, tag="agent"):
    """A subagent has started a transcript."""

    session: str
    agent: str
    meta: Json


class LabelRecord(Record, frozen=True, kw_only=True, tag="label"):
    """A transcript of the engine was given a title and a tag."""

    session: str
    title: str | None = None
    title_at: int = 0
    """How many entries there were when the title was given."""
    tag: str | None = None


class TranscriptDeletedRecord(Record, frozen=True, kw_only=True, tag="transcript_deleted"):
    session: str


class CommandRecord(Record, frozen=True, kw_only=True, tag="command"):
    """A request of a client was carried out. A repeated one gets the same reply."""

    id: str
    reply: bytes


class DeletedRecord(Record, frozen=True, kw_only=True, tag="deleted"):
    """The session was deleted."""


AnyRecord = (
    OwnerRecord
    | RowRecord
    | RowDeletedRecord
    | LineRecord
    | EntryRecord
    | AgentRecord
    | LabelRecord
    | TranscriptDeletedRecord
    | CommandRecord
    | DeletedRecord
)


class Batch(Struct, frozen=True, kw_only=True):
    """Records that were committed together."""

    epoch: int
    host: str
    records: Sequence[AnyRecord]


class Message(Struct, frozen=True, kw_only=True):
    """A message of the log: a batch, or a part of one."""

    v: int
    epoch: int
    host: str
    part: tuple[int, int] | None = None
    """The number of this part, from 0, and how many there are."""
    data: bytes
    """The records, or a part of their bytes."""


_encoder = msgspec.msgpack.Encoder()
_records = msgspec.msgpack.Decoder(list[AnyRecord])
_message = msgspec.msgpack.Decoder(Message)


def encode_batch(batch: Batch, max_bytes: int) -> list[bytes]:
    """The messages of a batch, each not longer than the log allows."""
    data = _encoder.encode(list(batch.records))
    most = max_bytes - ENVELOPE_BYTES
    count = -(-len(data) // most)
    if count == 1:
        return [_encoder.encode(Message(v=VERSION, epoch=batch.epoch, host=batch.host, data=data))]
    return [
        _encoder.encode(
            Message(
                v=VERSION,
                epoch=batch.epoch,
                host=batch.host,
                part=(number, count),
                data=data[number * most : (number + 1) * most],
            )
        )
        for number in range(count)
    ]


class BatchReader:
    """Joins messages of a log to batches. Parts of a batch that was never completed were never acknowledged."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, message: bytes) -> Batch | None:
        """Raises NewerVersion or LogDamaged."""
        try:
            read = _message.decode(message)
        except msgspec.MsgspecError as exc:
            raise LogDamaged(f"a message of the log cannot be read: {exc}") from None
        check_version(read.v)
        if read.part is None:
            self._parts = []
            return Batch(epoch=read.epoch, host=read.host, records=decode_records(read.data))
        number, count = read.part
        if number != len(self._parts):
            if number != 0:
                raise LogDamaged(f"part {len(self._parts)} of a batch is missing from the log")
            self._parts = []
        self._parts.append(read.data)
        if len(self._parts) < count:
            return None
        data, self._parts = b"".join(self._parts), []
        return Batch(epoch=read.epoch, host=read.host, records=decode_records(data))


def check_version(version: int) -> None:
    """Raises NewerVersion."""
    if version > VERSION:
        raise NewerVersion(f"the log has records of version {version}, this host reads up to version {VERSION}")


def decode_records(data: bytes) -> list[AnyRecord]:
    """Raises NewerVersion or LogDamaged."""
    try:
        return _records.decode(data)
    except msgspec.MsgspecError as exc:
        known = {one.__struct_config__.tag for one in AnyRecord.__args__}
        try:
            kinds = {str(record["t"]) for record in msgspec.msgpack.decode(data)} - known
        except (msgspec.MsgspecError, TypeError, KeyError):
            kinds = set()
        if kinds:
            found = ", ".join(sorted(kinds))
            raise NewerVersion(f"the log has records of unknown kinds ({found}); a newer version wrote them") from None
        raise LogDamaged(f"the records of a batch cannot be read: {exc}") from None


def encode_snapshot(records: Iterable[AnyRecord]) -> bytes:
    """May be called in a thread."""
    return _encoder.encode((VERSION, zlib.compress(_encoder.encode(list(records)), 1)))


def decode_snapshot(data: bytes) -> list[AnyRecord]:
    """Raises NewerVersion or LogDamaged."""
    try:
        version, packed = msgspec.msgpack.decode(data, type=tuple[int, bytes])
        check_version(version)
        return decode_records(zlib.decompress(packed))
    except (msgspec.MsgspecError, zlib.error) as exc:
        raise LogDamaged(f"a snapshot cannot be read: {exc}") from None
