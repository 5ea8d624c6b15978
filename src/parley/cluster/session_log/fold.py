"""The state of a session: what follows from its records.

state = await read_state(log, key)     the snapshot and the messages after it
state.apply(record)                    one record more
state.records()                        the fewest records that lead to the same state
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from parley.cluster.base import Log, LogDamaged, SessionKey, Snapshot
from parley.cluster.session_log.records import (
    AgentRecord,
    AnyRecord,
    BatchReader,
    CommandRecord,
    DeletedRecord,
    EntryRecord,
    LabelRecord,
    LineRecord,
    OwnerRecord,
    RowDeletedRecord,
    RowRecord,
    TranscriptDeletedRecord,
    decode_snapshot,
)
from parley.protocol.base import Json, Struct
from parley.stores.base import Entry

TABLES = {"sessions": "id", "prompts": "uuid", "questions": "request_id"}
"""The tables of the gateway that belong to sessions, and what a row is known by within its session."""
MOST_COMMANDS = 256
"""How many replies to commands a session remembers."""


class Transcript(Struct):
    """A transcript of the engine, with those of its subagents."""

    entries: list[Entry] = msgspec.field(default_factory=list)
    agents: dict[str, Json] = msgspec.field(default_factory=dict)
    """What is known of each subagent."""
    agent_entries: dict[str, list[Entry]] = msgspec.field(default_factory=dict)
    label: LabelRecord | None = None

    def log(self, agent: str) -> list[Entry]:
        """The entries of a subagent, or of the session itself if it is empty."""
        return self.agent_entries.setdefault(agent, []) if agent else self.entries


class SessionState(Struct):
    rows: dict[str, dict[str, dict[str, Any]]] = msgspec.field(default_factory=lambda: {table: {} for table in TABLES})
    """By table and key, in the order in which they were inserted."""
    lines: list[LineRecord] = msgspec.field(default_factory=list)
    transcripts: dict[str, Transcript] = msgspec.field(default_factory=dict)
    """By the id of the session in the engine."""
    commands: dict[str, bytes] = msgspec.field(default_factory=dict)
    is_deleted: bool = False
    sequence: int = 0
    """The last message that was read."""
    tail: int = 0
    """How many messages were read after the snapshot."""

    def apply_all(self, records: Iterable[AnyRecord]) -> None:
        """Raises LogDamaged."""
        for record in records:
            self.apply(record)

    def apply(self, record: AnyRecord) -> None:
        """Raises LogDamaged."""
        match record:
            case LineRecord():
                if record.number != len(self.lines) + 1:
                    raise LogDamaged(f"line {len(self.lines) + 1} is missing; the next one has number {record.number}")
                self.lines.append(record)
            case EntryRecord():
                self.transcript(record.session).log(record.agent).append(record.entry)
            case RowRecord():
                rows, key = self.rows.setdefault(record.table, {}), str(record.row[TABLES[record.table]])
                rows[key] = {**rows.get(key, {}), **record.row}  # only a snapshot has all columns
            case RowDeletedRecord():
                self.rows[record.table].pop(record.key, None)
            case AgentRecord():
                self.transcript(record.session).agents[record.agent] = record.meta
            case LabelRecord():
                self.transcript(record.session).label = record
            case TranscriptDeletedRecord():
                self.transcripts.pop(record.session, None)
            case CommandRecord():
                remember_command(self.commands, record)
            case DeletedRecord():
                self.is_deleted = True
            case OwnerRecord():
                pass

    def transcript(self, session: str) -> Transcript:
        return self.transcripts.setdefault(session, Transcript())

    def records(self) -> Iterator[AnyRecord]:
        for table, rows in self.rows.items():
            for row in rows.values():
                yield RowRecord(table=table, row=row)
        yield from self.lines
        yield from transcript_records(self.transcripts)
        for command_id, reply in self.commands.items():
            yield CommandRecord(id=command_id, reply=reply)
        if self.is_deleted:
            yield DeletedRecord()


def transcript_records(transcripts: dict[str, Transcript]) -> Iterator[AnyRecord]:
    for session, transcript in transcripts.items():
        for entry in transcript.entries:
            yield EntryRecord(session=session, entry=entry)
        for agent, meta in transcript.agents.items():
            yield AgentRecord(session=session, agent=agent, meta=meta)
        for agent, entries in transcript.agent_entries.items():
            for entry in entries:
                yield EntryRecord(session=session, agent=agent, entry=entry)
        if transcript.label is not None:
            yield transcript.label


def remember_command(commands: dict[str, bytes], record: CommandRecord) -> None:
    """Keep the last commands."""
    commands.pop(record.id, None)
    commands[record.id] = record.reply
    while len(commands) > MOST_COMMANDS:
        del commands[next(iter(commands))]


async def read_state(log: Log, key: SessionKey) -> SessionState:
    """The state of a session as its log says. Raises NewerVersion, LogDamaged or ClusterError."""
    snapshot = await log.load_snapshot(key)
    while True:
        try:
            return await read_after(log, key, snapshot)
        except LogDamaged:
            newer = await log.load_snapshot(key)
            if newer is None or (snapshot is not None and newer.sequence <= snapshot.sequence):
                raise
            snapshot = newer  # it replaced messages while they were being read


async def read_after(log: Log, key: SessionKey, snapshot: Snapshot | None) -> SessionState:
    """The state that follows from a snapshot and the messages after it."""
    state, reader = SessionState(), BatchReader()
    if snapshot is not None:
        state.apply_all(decode_snapshot(snapshot.data))
        state.sequence = snapshot.sequence
    async for sequence, message in log.read(key, after=state.sequence):
        batch = reader.feed(message)
        if batch is not None:
            state.apply_all(batch.records)
        state.sequence = sequence
        state.tail += 1
    return state
