"""Read the log of a session in a cluster: the snapshot, and the messages after it.

loaded = await read_log(log, key)
loaded.state                      what follows from its records
loaded.lines                      what clients have seen
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from parley.cluster.base import Log, LogDamaged, SessionKey, Snapshot
from parley.cluster.session_log.batches import BatchReader, decode_snapshot
from parley.gateway.session_log.records import AnyRecord, DamagedRecords, LineRecord
from parley.gateway.session_log.state import SessionState
from parley.protocol.base import Struct


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
            try:
                self.state.apply(record)
            except DamagedRecords as exc:
                raise LogDamaged(str(exc)) from None
            if isinstance(record, LineRecord):
                self.lines.append(record)


async def read_log(log: Log, key: SessionKey) -> LoadedLog:
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


async def read_after(log: Log, key: SessionKey, snapshot: Snapshot | None) -> LoadedLog:
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
