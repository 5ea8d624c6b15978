"""The interface of a numbered log: messages of each session, in an order that all writers agree on.

    sequence = await log.append(key, data, expected=last, message_id="a")     refused if another writer was here
    async for sequence, data in log.read(key, after): ...
    await log.save_snapshot(key, Snapshot(sequence, state))                   earlier messages may go

`append` returns when the message is durable. The implementations are `sql/numbered_log.py` for SQLite and PostgreSQL,
and `cluster/nats/log.py` for JetStream. Transcripts in databases are such logs, too: one message is one entry
(`sql/store.py`). At the end is what every implementation checks, and the words in which it refuses.

The tests in `tests/session/cluster/test_log.py` describe what every implementation does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol
from zlib import crc32

from parley.errors import ClusterError, Fenced, LogDamaged
from parley.protocol.base import Struct


class LogKey(Struct, frozen=True, order=True):
    """What a session is found by. The tenant is part of it, so that tenants can be separated by subjects."""

    tenant: str
    session: str

    def shard(self, shards: int) -> int:
        return crc32(self.session.encode()) % shards


class Snapshot(Struct, frozen=True):
    """The state of a session, as its owner wrote it down."""

    sequence: int
    """The last message that it contains."""
    data: bytes


class NumberedLog(Protocol):
    """One log per session. Sequences rise, with gaps."""

    @property
    def max_message_bytes(self) -> int:
        """The longest message that `append` takes."""

    async def append(self, key: LogKey, data: bytes, *, expected: int, message_id: str) -> int:
        """Store a message; returns its sequence when it is durable. `expected`: the sequence of the last one, or 0.

        A repeated call with the same arguments stores it once and returns the same sequence, also if others were stored
        after it. Raises Fenced if the last one is another, LogDamaged if the log ends before `expected`, ClusterError
        if it is not known whether it was stored.
        """

    def read(self, key: LogKey, after: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the messages after a sequence, up to the last one at the time of the call.

        `after` is 0 or the sequence of a message, of a snapshot for example. Raises LogDamaged if messages are missing
        between it and the last one, ClusterError.
        """

    async def head(self, key: LogKey) -> int:
        """The sequence of the last message, also if a snapshot has replaced it; 0 if there is none."""

    async def save_snapshot(self, key: LogKey, snapshot: Snapshot) -> None:
        """Replace the snapshot; messages up to its sequence may be removed, but never the last one.

        An older snapshot than the stored one is ignored. Raises LogDamaged if the log ends before the snapshot, for
        example because the session was deleted, ClusterError.
        """

    async def load_snapshot(self, key: LogKey) -> Snapshot | None:
        """The snapshot, from which `read` continues. If it finds a gap, load again: a newer one may have been saved."""

    async def delete(self, key: LogKey) -> None:
        """Remove the messages and the snapshot of a session. Then its head is 0."""

    async def keys(self, shard: int) -> list[LogKey]:
        """The sessions of a shard that have messages."""


class SequenceGuard:
    """Notices a store that was restored from an older copy: it gives out sequences that were seen before."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.highest = 0
        """The highest sequence that was seen."""
        self._damage: LogDamaged | None = None

    def check(self) -> None:
        """Raises LogDamaged again if it was once: what is missing is not known, so nothing may be added to it."""
        if self._damage is not None:
            raise self._damage

    def see(self, sequence: int) -> None:
        self.highest = max(self.highest, sequence)

    def require_newer(self, sequence: int, highest: int) -> None:
        """`highest`: what was seen before the request that returned `sequence`. Raises LogDamaged."""
        if sequence <= highest:
            self._damage = LogDamaged(
                f"{self._where} has lost messages: it is at {sequence}, but {highest} was stored before. "
                "Was it restored from an older copy? Stop all hosts, check what is missing, and start them again"
            )
            raise self._damage
        self.see(sequence)


def make_refusal(where: str, key: LogKey, head: int, expected: int) -> ClusterError:
    """Why a message that should follow `expected` was not stored. `where` names the component."""
    if head < expected:
        return make_truncated(where, key, head, expected)
    if head == expected:
        return ClusterError(f"{where}: another write to session {key.session} has not finished")
    return Fenced(f"{where}: the log of session {key.session} has another writer: it ends at {head}, not at {expected}")


def make_reused_id(where: str, key: LogKey, message_id: str) -> Fenced:
    return Fenced(f"{where}: the log of session {key.session} has another message with the id {message_id}")


def make_truncated(where: str, key: LogKey, head: int, known: int) -> LogDamaged:
    return LogDamaged(
        f"{where} has lost messages of session {key.session}: the log ends at {head}, but {known} was stored before. "
        "Was it restored from an older copy?"
    )


def make_gap(where: str, key: LogKey, after: int, sequence: int) -> LogDamaged:
    return LogDamaged(
        f"{where} has lost messages of session {key.session}: some are missing between {after} and {sequence}. "
        "If there is a snapshot, read from it."
    )


def make_too_long(where: str, size_bytes: int, max_bytes: int) -> ClusterError:
    return ClusterError(f"{where} takes messages of up to {max_bytes} bytes; this one has {size_bytes}")
