"""The store in one SQLite file (`--db FILE`), with a full-text index of all messages.

The file is in WAL mode, so readers and the writers of other sessions wait for each other for at most one entry.
`FILE.leases/<session>` names the process that holds a session. Entries have checksums, because SQLite does not verify
its pages.
"""

from __future__ import annotations

import builtins
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from parley.errors import SessionBusy, SessionError
from parley.protocol.base import Json
from parley.stores.base import TAKEN_OVER, SearchHit, StoreSetup, check_id
from parley.stores.files.entry_codec import EntryContext
from parley.stores.lease import BorrowedLease, Lease, acquire, is_leased
from parley.stores.search_text import build_queries, find_passage, significant_words, split_words
from parley.stores.sql.store import ON_CONFLICT, Database, SqlLog, SqlStore, make_hits, row_text
from parley.workspace import private_database, private_files

SCHEMA = private_database.Schema(
    "sessions",
    3,
    """
CREATE TABLE parley_sessions (
    id TEXT PRIMARY KEY, cwd TEXT NOT NULL, git_branch TEXT, title TEXT, tag TEXT, first_prompt TEXT,
    created TEXT NOT NULL, modified TEXT NOT NULL, turn INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL, messages INTEGER NOT NULL
);
CREATE INDEX parley_sessions_by_project ON parley_sessions (cwd, turn);
CREATE TABLE parley_entries (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, at TEXT NOT NULL,
    message TEXT NOT NULL, context TEXT NOT NULL, checksum INTEGER NOT NULL, UNIQUE (session, seq)
);
CREATE VIRTUAL TABLE parley_words USING fts5(words, content='', tokenize="unicode61 remove_diacritics 0");
CREATE TABLE parley_agents (
    session TEXT NOT NULL, id TEXT NOT NULL, meta TEXT NOT NULL, PRIMARY KEY (session, id)
);
""",
)
CONVERSATION = """
CREATE TABLE IF NOT EXISTS parley_conversation (one INTEGER PRIMARY KEY CHECK (one = 1), session TEXT NOT NULL)
"""
ADD_ENTRY = """
INSERT INTO parley_entries (session, seq, kind, at, message, context, checksum)
VALUES (:key, :seq, :kind, :at, :message, :context, :checksum)
"""
ADD_WORDS = "INSERT INTO parley_words (rowid, words) VALUES (?, ?)"
UPDATE_SESSION = f"""
INSERT INTO parley_sessions AS known
    (id, cwd, git_branch, title, first_prompt, created, modified, turn, size_bytes, messages)
VALUES (:id, :cwd, :branch, :title, :prompt, :at, :at, :turn, :size, :said)
{ON_CONFLICT}
"""
FOUND = """
SELECT session, seq, kind, at, message FROM parley_words JOIN parley_entries ON parley_entries.id = parley_words.rowid
WHERE parley_words MATCH :query AND session IN (SELECT id FROM parley_sessions)
"""
SUMMARY = '%"isCompactSummary":true%'
"""Matches the context of compact summaries, which repeat what was said."""
RECALLED = '%"recalled":true%'
"""Matches tool results of memory searches, which repeat what was said. In users' text the quotes are escaped."""


class SqliteLog(SqlLog):
    """Its connection is open for as long as it is held."""

    def __init__(self, store: SqliteStore, session_id: str, agent_id: str, lease: Lease) -> None:
        super().__init__(store, session_id, agent_id)
        self._path = store.file
        self._lease: Lease | None = lease
        with store.translate_errors():
            self._database = private_database.open_database(store.file, SCHEMA)
            # After a steal, wait until a write of the previous holder has ended.
            with private_database.transaction(self._database):
                pass
        self._translate_errors = store.translate_errors

    def _insert(self, rows: builtins.list[Json]) -> None:
        with self._translate_errors(), private_database.transaction(self._database) as database:
            if self._lease is None or not self._lease.is_ours():
                raise SessionBusy(self._session_id, TAKEN_OVER)
            for row in rows:
                words = " ".join(row.pop("words"))
                added = database.execute(ADD_ENTRY, row)
                if words:
                    database.execute(ADD_WORDS, (added.lastrowid, words))
                if not self._agent_id:
                    database.execute(UPDATE_SESSION, {**row, "turn": time.time_ns()})

    def sync(self) -> None:
        try:
            file = private_files.open_file(f"{self._path}-wal", os.O_RDONLY)
            try:
                os.fdatasync(file)
            finally:
                os.close(file)
        except FileNotFoundError:
            return  # the WAL was moved into the database file, which SQLite syncs itself
        except OSError as exc:
            raise SessionError(f"cannot write the database {self._path}: {exc.strerror}") from None

    def close(self) -> None:
        self._database.close()
        if self._lease is not None:
            self._lease.release()
            self._lease = None


class SqliteStore(SqlStore):
    """All sessions in one file. Each operation opens its own connection."""

    def __init__(self, path: Path, context: EntryContext) -> None:
        super().__init__(context)
        self.file = path
        self.location = str(path)

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> SqliteStore:
        return cls(setup.path, setup.context)

    def translate_errors(self) -> AbstractContextManager[None]:
        """Raise errors of SQLite and of the system as SessionError."""
        return private_database.translate_errors(f"the database {self.file}")

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        with self.translate_errors():
            database = private_database.open_database(self.file, SCHEMA)
            try:
                yield database
            finally:
                database.close()

    @contextmanager
    def connect_for_bytes(self) -> Iterator[sqlite3.Connection]:
        with self.connect() as database:
            database.text_factory = bytes
            yield database

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self.connect() as database, private_database.transaction(database):
            yield database

    def _rows(self, text: str, **params: object) -> builtins.list[tuple[Any, ...]]:
        return super()._rows(text, **params) if self.file.exists() else []

    def is_held(self, session_id: str) -> bool:
        return is_leased(Path(f"{self.file}.leases", check_id(session_id)))

    def _open_log(self, session_id: str, agent_id: str = "", *, steal: bool = False) -> SqliteLog:
        path = Path(f"{self.file}.leases", session_id)
        lease = BorrowedLease() if agent_id else acquire(path, session_id, steal=steal)
        try:
            return SqliteLog(self, session_id, agent_id, lease)
        except BaseException:
            lease.release()
            raise

    def conversation(self, new_id: Callable[[], str]) -> str:
        """The file's default session, for runs that name none. The first call picks the newest, or a new id, for good.

        Raises SessionError.
        """
        with self.connect() as database:
            run = database.execute
            if not run("SELECT 1 FROM sqlite_master WHERE name = 'parley_conversation'").fetchone():
                newest = run("SELECT id FROM parley_sessions ORDER BY turn DESC LIMIT 1").fetchone() or (new_id(),)
                with private_database.transaction(database):
                    run(CONVERSATION)
                    # Another process may have been faster.
                    run("INSERT OR IGNORE INTO parley_conversation VALUES (1, ?)", newest)
            return str(run("SELECT session FROM parley_conversation").fetchone()[0])

    def _match(self, query_words: builtins.list[str], limit: int) -> builtins.list[tuple[Any, ...]]:
        query = " ".join(f'"{word}"' for word in query_words)
        return self._rows(FOUND + "ORDER BY parley_words.rowid DESC LIMIT :limit", query=query, limit=limit)

    def ranked(self, text: str, limit: int, session_id: str | None = None) -> builtins.list[SearchHit]:
        query_words = significant_words(text)
        where = "AND (:id IS NULL OR session = :id) AND context NOT LIKE :summary AND message NOT LIKE :recalled "
        found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for query in build_queries(query_words):
            if len(found) >= limit:
                break  # weaker queries may match most of the file
            params = {"query": query, "id": session_id, "summary": SUMMARY, "recalled": RECALLED, "limit": limit}
            for row in self._rows(FOUND + where + "ORDER BY parley_words.rank LIMIT :limit", **params):
                found.setdefault(row[:2], row)
        return make_hits(
            [*found.values()][:limit],
            query_words,
            lambda found_words: not found_words.isdisjoint(query_words),
            find_passage,
        )

    def _remove_from_index(self, database: Database, session_id: str) -> None:
        # A contentless FTS index needs the text to delete a row.
        rows = database.execute("SELECT id, kind, message FROM parley_entries WHERE session = :id", {"id": session_id})
        for id, kind, message in rows:
            if words := split_words(row_text(kind, message)):
                database.execute(
                    "INSERT INTO parley_words (parley_words, rowid, words) VALUES ('delete', :id, :words)",
                    {"id": id, "words": " ".join(words)},
                )
