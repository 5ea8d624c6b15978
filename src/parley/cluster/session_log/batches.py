"""The messages of a log in a cluster: batches of records. How they are made, and how a log is read.

    encode_batch(batch, max_bytes)    the messages of a batch: one, or several parts
    BatchReader.feed(message)         the batch that a message completes, if any
    encode_snapshot, decode_snapshot  the state of a session and its lines, as records
    await read_log(log, key)          the state of a session and its lines: the snapshot, and the messages after it

A version may add fields to records: older hosts ignore them. A new kind of record, or one that means something else,
raises `VERSION`. A host that meets a newer version or an unknown kind leaves the session to another one.

See also: `parley.gateway.session_log.records` for what can happen, `writer.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import msgspec

from parley.cluster.base import LogDamaged, LogKey, Snapshot
from parley.gateway.session_log.records import (
    AnyRecord,
    LineRecord,
    NewerVersion,
    SessionState,
    decode_records,
    encode_records,
)
from parley.protocol.base import Struct
from parley.stores.numbered_log import NumberedLog

VERSION = 2
OLDEST_VERSION = 2
"""Older logs have rows of a database instead of records. No release wrote them."""
ENVELOPE_BYTES = 1024
"""More than a message needs besides its part of the records."""


class RecordBatch(Struct, frozen=True, kw_only=True):
    """Records that were committed together."""

    epoch: int
    host: str
    records: Sequence[AnyRecord]


class BatchMessage(Struct, frozen=True, kw_only=True):
    """A message of the log: a batch, or a part of one."""

    v: int
    epoch: int
    host: str
    part: tuple[int, int] | None = None
    """The number of this part, from 0, and how many there are."""
    data: bytes
    """The records, or a part of their bytes."""


_encoder = msgspec.msgpack.Encoder()
_message = msgspec.msgpack.Decoder(BatchMessage)


def encode_batch(batch: RecordBatch, max_bytes: int) -> list[bytes]:
    """The messages of a batch, each not longer than the log allows."""
    data = encode_records(batch.records)
    most = max_bytes - ENVELOPE_BYTES
    count = -(-len(data) // most)
    if count == 1:
        return [_encoder.encode(BatchMessage(v=VERSION, epoch=batch.epoch, host=batch.host, data=data))]
    return [
        _encoder.encode(
            BatchMessage(
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

    def feed(self, message: bytes) -> RecordBatch | None:
        """Raises NewerVersion or LogDamaged."""
        try:
            read = _message.decode(message)
        except msgspec.MsgspecError as exc:
            raise LogDamaged(f"a message of the log cannot be read: {exc}") from None
        check_version(read.v)
        if read.part is None:
            self._parts = []
            return RecordBatch(epoch=read.epoch, host=read.host, records=decode_records(read.data))
        number, count = read.part
        if number != len(self._parts):
            if number != 0:
                raise LogDamaged(f"part {len(self._parts)} of a batch is missing from the log")
            self._parts = []
        self._parts.append(read.data)
        if len(self._parts) < count:
            return None
        data, self._parts = b"".join(self._parts), []
        return RecordBatch(epoch=read.epoch, host=read.host, records=decode_records(data))


def check_version(version: int) -> None:
    """Raises NewerVersion or LogDamaged."""
    if version > VERSION:
        raise NewerVersion(f"the log has records of version {version}, this host reads up to version {VERSION}")
    if version < OLDEST_VERSION:
        raise LogDamaged(f"the log has records of version {version}, which this Parley does not read any more")


def encode_snapshot(records: bytes) -> bytes:
    """`records`: encoded. May be called in a thread."""
    return _encoder.encode((VERSION, zlib.compress(records, 1)))


def decode_snapshot(data: bytes) -> list[AnyRecord]:
    """Raises NewerVersion or LogDamaged."""
    try:
        version, packed = msgspec.msgpack.decode(data, type=tuple[int, bytes])
        check_version(version)
        return decode_records(zlib.decompress(packed))
    except (msgspec.MsgspecError, zlib.error) as exc:
        raise LogDamaged(f"a snapshot cannot be read: {exc}") from None


class LoadedLog(Struct):
    state: SessionState = msgspec.field(default_factory=SessionState)
    lines: list[LineRecord] = msgspec.field(default_factory=list)
    sequence: int = 0
    """The last message that was read."""
    tail: int = 0
    """How many messages were read after the snapshot."""

    def apply_all(self, records: Iterable[AnyRecord]) -> None:
        """Raises LogDamaged."""
        for record in records:
            self.state.apply(record)
            if isinstance(record, LineRecord):
                self.lines.append(record)


async def read_log(log: NumberedLog, key: LogKey) -> LoadedLog:
    """Raises NewerVersion, LogDamaged or ClusterError."""
    snapshot = await log.load_snapshot(key)
    while True:
        try:
            return await read_after(log, key, snapshot)
        except LogDamaged:
            newer = await log.load_snapshot(key)
            if newer is None or (snapshot is not None and newer.sequence <= snapshot.sequence):
                raise
            snapshot = newer  # it replaced messages while they were being read


async def read_after(log: NumberedLog, key: LogKey, snapshot: Snapshot | None) -> LoadedLog:
    """What follows from a snapshot and the messages after it."""
    loaded, reader = LoadedLog(), BatchReader()
    if snapshot is not None:
        loaded.apply_all(decode_snapshot(snapshot.data))
        loaded.sequence = snapshot.sequence
    async for sequence, message in log.read(key, after=loaded.sequence):
        batch = reader.feed(message)
        if batch is not None:
            loaded.apply_all(batch.records)
        loaded.sequence = sequence
        loaded.tail += 1
    return loaded
