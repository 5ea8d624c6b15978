"""The logs of sessions in an SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator

from parley.cluster.base import SessionKey, Snapshot
from parley.cluster.local.database import LocalDatabase
from parley.cluster.log_checks import make_gap, make_refusal, make_reused_id, make_too_long, make_truncated

MAX_MESSAGE_BYTES = 1_000_000
"""About what a NATS server takes by default, so that tests meet the limit here, too."""
PAGE = 500
LAST = "SELECT coalesce(max(sequence), 0) FROM messages WHERE tenant = ? AND session = ?"
OF_SESSION = "WHERE tenant = ? AND session = ?"


class LocalLog:
    """Every message is on the disk before `append` returns."""

    max_message_bytes = MAX_MESSAGE_BYTES

    def __init__(self, database: LocalDatabase, shards: int) -> None:
        self._database = database
        self._shards = shards

    async def append(self, key: SessionKey, data: bytes, *, expected: int, message_id: str) -> int:
        if len(data) > self.max_message_bytes:
            raise make_too_long(self._database.name, len(data), self.max_message_bytes)
        with self._database.transaction():
            stored = self._database.row(
                f"SELECT sequence, data, previous FROM messages {OF_SESSION} AND message_id = ?", *of(key), message_id
            )
            if stored is not None and stored[1:] == (data, expected):
                return int(stored[0])
            head = self._head(key)
            if head != expected:
                raise make_refusal(self._database.name, key, head, expected)
            if stored is not None:
                raise make_reused_id(self._database.name, key, message_id)
            cursor = self._database.run(
                "INSERT INTO messages (tenant, session, previous, message_id, data) VALUES (?, ?, ?, ?, ?)",
                *(*of(key), expected, message_id, data),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    async def read(self, key: SessionKey, after: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        head = self._head(key)
        while after < head:
            page = self._database.rows(
                f"SELECT sequence, previous, data FROM messages {OF_SESSION} AND sequence > ? AND sequence <= ? "
                "ORDER BY sequence LIMIT ?",
                *(*of(key), after, head, PAGE),
            )
            for sequence, previous, data in page:
                if previous != after:
                    raise make_gap(self._database.name, key, after, sequence)
                yield sequence, data
                after = sequence
        if after > head:
            raise make_truncated(self._database.name, key, head, after)

    async def head(self, key: SessionKey) -> int:
        return self._head(key)

    def _head(self, key: SessionKey) -> int:
        ((head,),) = self._database.rows(LAST, *of(key))
        return int(head)

    async def save_snapshot(self, key: SessionKey, snapshot: Snapshot) -> None:
        with self._database.transaction():
            if (head := self._head(key)) < snapshot.sequence:
                raise make_truncated(self._database.name, key, head, snapshot.sequence)
            stored = self._database.row(f"SELECT sequence FROM snapshots {OF_SESSION}", *of(key))
            if stored is not None and stored[0] > snapshot.sequence:
                return
            self._database.run(
                "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", *of(key), snapshot.sequence, snapshot.data
            )
            self._database.run(f"DELETE FROM messages {OF_SESSION} AND sequence < ?", *of(key), snapshot.sequence)

    async def load_snapshot(self, key: SessionKey) -> Snapshot | None:
        found = self._database.row(f"SELECT sequence, data FROM snapshots {OF_SESSION}", *of(key))
        return None if found is None else Snapshot(*found)

    async def delete(self, key: SessionKey) -> None:
        with self._database.transaction():
            self._database.run(f"DELETE FROM messages {OF_SESSION}", *of(key))
            self._database.run(f"DELETE FROM snapshots {OF_SESSION}", *of(key))

    async def keys(self, shard: int) -> list[SessionKey]:
        found = [SessionKey(*row) for row in self._database.rows("SELECT DISTINCT tenant, session FROM messages")]
        return sorted(key for key in found if key.shard(self._shards) == shard)


def of(key: SessionKey) -> tuple[str, str]:
    return key.tenant, key.session
