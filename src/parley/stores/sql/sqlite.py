"""The store in one SQLite file (`--db FILE`), with a full-text index of all messages.

The file is in WAL mode, so readers and the writers of other sessions wait for each other for at most one entry.
`FILE.leases/<session>` names the process that holds a session. Entries have checksums, because SQLite does not verify
its pages.
"""

from __future__ import annotations

import builtins
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from parley.errors import SessionBusy, SessionError
from parley.protocol.base import Json
from parley.stores.base import TAKEN_OVER, SearchHit, StoreSetup, check_id
from parley.stores.files.entry_codec import EntryContext
from parley.stores.lease import BorrowedLease, Lease, acquire, is_leased
from parley.stores.search_text import build_queries, entry_text, find_passage, significant_words, split_words
from parley.stores.sql.numbered_log import MESSAGES, Rows, SqlLog, Steps, make_sqlite_tables, run_steps
from parley.stores.sql.store import OF_SESSION, SAVE_SESSION, SESSIONS, Execute, SqlStore, SqlTranscript, decode_rows
from parley.workspace import private_database, private_files

WORDS = """
CREATE VIRTUAL TABLE parley_words USING fts5(words, content='', tokenize="unicode61 remove_diacritics 0");
"""
LOG = make_sqlite_tables("parley", MESSAGES, reuses_numbers=True)
SCHEMA = private_database.Schema("sessions", 4, SESSIONS + LOG + WORDS)
CONVERSATION = """
CREATE TABLE IF NOT EXISTS parley_conversation (one INTEGER PRIMARY KEY CHECK (one = 1), session TEXT NOT NULL)
"""
SAVE = SAVE_SESSION.format(turn=":turn", source="WHERE true")
ADD_WORDS = "INSERT INTO parley_words (rowid, words) VALUES (:turn, :words)"
REMOVE_WORDS = "INSERT INTO parley_words (parley_words, rowid, words) VALUES ('delete', :turn, :words)"
"""A contentless FTS index needs the text to delete a row."""
FOUND = """
SELECT session, data FROM parley_words JOIN parley_messages ON sequence = parley_words.rowid
WHERE parley_words MATCH :query AND session IN (SELECT id FROM parley_sessions)
"""
NEW = """
AND (:id IS NULL OR session = :id) AND CAST(data AS TEXT) NOT LIKE :summary AND CAST(data AS TEXT) NOT LIKE :recalled
"""
REPETITIONS = {"summary": '%"isCompactSummary":true%', "recalled": '%"recalled":true%'}
"""Match compact summaries and the results of memory searches, which repeat what was said. In users' text the quotes are
escaped."""


class SqliteTranscript(SqlTranscript):
    """Its connection is open for as long as it is held."""

    def __init__(self, store: SqliteStore, session_id: str, agent_id: str, lease: Lease) -> None:
        super().__init__(store, session_id, agent_id)
        self._path = store.file
        self._lease: Lease | None = lease
        self._translate_errors = store.translate_errors
        with self._translate_errors():
            self._database = private_database.open_database(store.file, SCHEMA)
            # After a steal, wait until a write of the previous holder has ended.
            with private_database.transaction(self._database):
                pass

    def _run(self, steps: Steps[int], *, is_single: bool) -> int:
        with self._translate_errors(), private_database.transaction(self._database):
            if self._lease is None or not self._lease.is_ours():
                raise SessionBusy(self._session_id, TAKEN_OVER)
            return run_steps(steps, executor(self._database))

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
        self.log = SqlLog("parley", str(path))

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> SqliteStore:
        return cls(setup.path, setup.context)

    def translate_errors(self) -> AbstractContextManager[None]:
        """Raise errors of SQLite and of the system as SessionError."""
        return private_database.translate_errors(f"the database {self.file}")

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with self.translate_errors():
            database = private_database.open_database(self.file, SCHEMA)
            try:
                yield database
            finally:
                database.close()

    @contextmanager
    def connect(self) -> Iterator[Execute]:
        with self._database() as database:
            yield executor(database)

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        with self._database() as database, private_database.transaction(database):
            yield executor(database)

    def fetch(self, text: str, **params: object) -> Rows:
        return super().fetch(text, **params) if self.file.exists() else []

    def is_held(self, session_id: str) -> bool:
        return is_leased(Path(f"{self.file}.leases", check_id(session_id)))

    def _open(self, session_id: str, agent_id: str = "", *, steal: bool = False) -> SqliteTranscript:
        path = Path(f"{self.file}.leases", session_id)
        lease = BorrowedLease() if agent_id else acquire(path, session_id, steal=steal)
        try:
            return SqliteTranscript(self, session_id, agent_id, lease)
        except BaseException:
            lease.release()
            raise

    def project(self, sequence: int, row: Json) -> Steps[None]:
        words = row.pop("words")
        yield SAVE, {**row, "turn": sequence}
        if words:
            yield ADD_WORDS, {"turn": sequence, "words": " ".join(words)}

    def conversation(self, new_id: Callable[[], str]) -> str:
        """The file's default session, for runs that name none. The first call picks the newest, or a new id, for good.

        Raises SessionError.
        """
        with self._database() as database:
            run = database.execute
            if not run("SELECT 1 FROM sqlite_master WHERE name = 'parley_conversation'").fetchone():
                newest = run("SELECT id FROM parley_sessions ORDER BY turn DESC LIMIT 1").fetchone() or (new_id(),)
                with private_database.transaction(database):
                    run(CONVERSATION)
                    # Another process may have been faster.
                    run("INSERT OR IGNORE INTO parley_conversation VALUES (1, ?)", newest)
            return str(run("SELECT session FROM parley_conversation").fetchone()[0])

    def _match(self, query_words: builtins.list[str], limit: int) -> Rows:
        query = " ".join(f'"{word}"' for word in query_words)
        return self.fetch(f"{FOUND} ORDER BY parley_words.rowid DESC LIMIT :limit", query=query, limit=limit)

    def ranked(self, text: str, limit: int, session_id: str | None = None) -> builtins.list[SearchHit]:
        query_words = significant_words(text)
        found: dict[tuple[str, int], SearchHit] = {}
        for query in build_queries(query_words):
            if len(found) >= limit:
                break  # weaker queries may match most of the file
            params = {"query": query, "id": session_id, "limit": limit, **REPETITIONS}
            rows = self.fetch(f"{FOUND} {NEW} ORDER BY parley_words.rank LIMIT :limit", **params)
            for id, entry in decode_rows(rows):
                said = entry_text(entry.kind, entry.message)
                if not set(query_words).isdisjoint(split_words(said)):
                    excerpt = find_passage(said, query_words)
                    hit = SearchHit(id=id, seq=entry.seq, kind=entry.kind, at=entry.at, excerpt=excerpt)
                    found.setdefault((id, entry.seq), hit)
        return [*found.values()][:limit]

    def _remove_from_index(self, execute: Execute, session: Json) -> None:
        for sequence, data in execute(f"SELECT sequence, data FROM parley_messages {OF_SESSION}", session):
            for _, entry in decode_rows([("", data)]):
                if words := split_words(entry_text(entry.kind, entry.message)):
                    execute(REMOVE_WORDS, {"turn": sequence, "words": " ".join(words)})


def executor(database: sqlite3.Connection) -> Execute:
    return lambda text, params: database.execute(text, params).fetchall()
