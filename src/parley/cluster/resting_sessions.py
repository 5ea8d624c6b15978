"""The words and costs of the sessions of a host that are not loaded, for searches and for `/costs`.

The index of a loaded session is in the database of the hub. When the session is unloaded, its rows move here. Sessions
that another host has unloaded are read from their logs, a few in a second, after the host has taken their shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from parley.cluster.base import SessionKey
from parley.cluster.cluster_hub import write_log
from parley.cluster.session_log.batches import LoadedLog
from parley.gateway.database import Database, open_projections
from parley.gateway.index.indexer import Indexer
from parley.gateway.session_log.rows import SessionRows
from parley.gateway.session_log.session_log import SessionLog

TABLES = {"sessions": "id", "messages": "session", "turns": "session", "usage": "session"}
"""What is kept, and the column with the session."""


class RestingSessions:
    def __init__(self, folder: Path, shards: int) -> None:
        """Raises SessionError."""
        self._shards = shards
        self._folder = folder
        self._database = open_projections(folder / "resting.db")
        self._database.change("PRAGMA synchronous=OFF")  # as that of the hub
        self._rows = SessionRows(self._database)
        self._lock = asyncio.Lock()
        self._read: SessionLog
        """The log that is being indexed."""
        self._indexer = Indexer(
            self._database, self._rows, lambda session_id: nullcontext(self._read), lambda session_id: None
        )
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
                    columns = dict(row)
                    if table == "messages":
                        del columns["id"]  # it is another one here
                    self._database.insert(table, columns)

    async def read(self, key: SessionKey, loaded: LoadedLog) -> None:
        """Index a session from its log. Raises SessionError."""
        async with self._lock:
            self._read = write_log(self._folder / f"{key.session}.log", loaded)
            try:
                self._read.state.summary = None  # its words are not in the index
                self._rows.restore(self._read, is_spent_here=False)
                await self._indexer.catch_up(key.session)
            finally:
                self._read.remove()

    def forget(self, sessions: Iterable[str]) -> None:
        """They are loaded, deleted, or another host's. Raises SessionError."""
        for session_id in sessions:
            self._rows.forget(session_id)

    def forget_shard(self, shard: int) -> None:
        """Raises SessionError."""
        found = [str(row["id"]) for row in self._database.rows("SELECT id FROM sessions")]
        self.forget(one for one in found if SessionKey("", one).shard(self._shards) == shard)

    def close(self) -> None:
        self._indexer.close()
        self._database.close()
