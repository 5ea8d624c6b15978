"""Read the log of a session back, message by message: no gap, no fork, no duplicate, no write of an earlier owner."""

from __future__ import annotations

from collections import Counter

from parley.cluster.base import ClusterError
from parley.cluster.session_log import BatchReader, RecordBatch
from parley.gateway.session_log.records import CommandRecord, EntryRecord, LineRecord, OwnerRecord
from tests.helpers.cluster_processes import RunningCluster, eventually
from tests.stress.cluster.history import DOUBLED, LOST


async def audit_log(cluster: RunningCluster, session_id: str) -> list[str]:
    """What is wrong with the log of a session."""
    try:
        found = check_batches(await eventually(lambda: read_batches(cluster, session_id)))
        state = await cluster.read_state(session_id)
    except ClusterError as exc:
        return [f"{session_id}: the log cannot be read: {exc} {LOST}"]
    numbers = [line.number for line in state.lines]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append(f"the lines of the log are not numbered from 1 without a gap {LOST}")
    return [f"{session_id}: {problem}" for problem in found]


async def read_batches(cluster: RunningCluster, session_id: str) -> list[RecordBatch]:
    """What the log has after the snapshot. Raises ClusterError."""
    key, log, reader = cluster.key(session_id), cluster.connection.log, BatchReader()
    snapshot = await log.load_snapshot(key)
    found = [reader.feed(data) async for _, data in log.read(key, after=snapshot.sequence if snapshot else 0)]
    return [batch for batch in found if batch is not None]


def check_batches(batches: list[RecordBatch]) -> list[str]:
    """Epochs never fall, every owner announces itself first, and nothing is there twice."""
    found: list[str] = []
    epoch = 0
    for batch in batches:
        announced = [record.epoch for record in batch.records if isinstance(record, OwnerRecord)]
        if batch.epoch < epoch:
            found.append(f"a batch of epoch {batch.epoch} ({batch.host}) comes after epoch {epoch}")
        if batch.epoch > epoch and epoch and batch.epoch not in announced:
            found.append(f"epoch {batch.epoch} ({batch.host}) begins without an owner record")
        epoch = max(epoch, batch.epoch)
    records = [record for batch in batches for record in batch.records]
    lines = Counter(record.number for record in records if isinstance(record, LineRecord))
    found += [f"line {number} is there {count} times {DOUBLED}" for number, count in lines.items() if count > 1]
    uuids = Counter(
        (record.session, record.agent, str(record.entry.message["uuid"]))
        for record in records
        if isinstance(record, EntryRecord)
        and record.entry.message.get("uuid")
        and record.entry.kind in ("user", "assistant")
    )
    found += [f"entry {uuid[2]} is there {count} times {DOUBLED}" for uuid, count in uuids.items() if count > 1]
    commands = Counter(record.id for record in records if isinstance(record, CommandRecord))
    found += [f"command {name} is there {count} times {DOUBLED}" for name, count in commands.items() if count > 1]
    return found
