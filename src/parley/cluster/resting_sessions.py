"""The words and costs of the sessions of a host that are not loaded, for searches and for `/costs`.

The index of a loaded session is in the database of the hub. When the session is unloaded, its rows move here. Sessions
that another host has unloaded are read from their logs, a few in a second, after the host has taken their shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.cluster.base import SessionKey
from parley.cluster.cluster_hub import write_lines
from parley.cluster.session_log.changes import DERIVED
from parley.cluster.session_log.fold import SessionState
from parley.gateway.database import Database
from parley.gateway.index.indexer import Indexer
from parley.gateway.line_log import LineLog, remove_log

TABLES = {"sessions": "id", "messages": "session", "turns": "session", "usage": "session"}
"""What is kept, and the column with the session."""


class RestingSessions:
    def __init__(self, folder: Path, shards: int) -> None:
        """Raises SessionError."""
        self._shards = shards
        self._lines = folder / "resting-lines"
        self._database = Database(folder / "resting.db")
        self._database.change("PRAGMA synchronous=OFF")  # as that of the hub
        self._lock = asyncio.Lock()
        self._indexer = Indexer(self._database, self._open_log, lambda session_id: None)
        self.search = self._indexer.search
        self.turns = self._indexer.turns

    def has(self, session_id: str) -> bool:
        return self._database.row("SELECT 1 FROM sessions WHERE id=?", session_id) is not None

    def take_from(self, hub: Database, session_id: str) -> None:
        """Copy what the hub has indexed of a session. Raises SessionError."""
        self.forget([session_id])
        with self._database.transaction():
            for table, column in TABLES.items():
                for row in hub.rows(f"SELECT * FROM {table} WHERE {column}=?", session_id):
                    self._insert(table, {name: row[name] for name in row.keys() if (table, name) != ("messages", "id")})  # noqa: SIM118

    async def read(self, key: SessionKey, state: SessionState) -> None:
        """Index a session from its log. Raises SessionError."""
        row = state.rows["sessions"][key.session]
        known = {str(column["name"]) for column in self._database.rows("PRAGMA table_info(sessions)")} - DERIVED
        async with self._lock:
            self.forget([key.session])
            write_lines(self._lines, state.lines)
            try:
                self._insert("sessions", {name: value for name, value in row.items() if name in known})
                await self._indexer.catch_up(key.session)
            finally:
                remove_log(self._lines)

    @contextmanager
    def _open_log(self, session_id: str) -> Iterator[LineLog]:
        stored = LineLog(self._lines)
        try:
            yield stored
        finally:
            stored.close()

    def _insert(self, table: str, row: dict[str, object]) -> None:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self._database.change(f"INSERT INTO {table} ({names}) VALUES ({marks})", *row.values())

    def forget(self, sessions: Iterable[str]) -> None:
        """They are loaded, deleted, or another host's. Raises SessionError."""
        for session_id in sessions:
            self._database.change("DELETE FROM sessions WHERE id=?", session_id)
            self._database.change("DELETE FROM turns WHERE session=?", session_id)

    def forget_shard(self, shard: int) -> None:
        """Raises SessionError."""
        found = [str(row["id"]) for row in self._database.rows("SELECT id FROM sessions")]
        self.forget(one for one in found if SessionKey("", one).shard(self._shards) == shard)

    def close(self) -> None:
        self._indexer.close()
        self._database.close()
