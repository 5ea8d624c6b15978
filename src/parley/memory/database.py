"""The SQLite file of a memory: tables of its own, in the database of the sessions or in a separate one.

    with MemoryDatabase(path).writing() as run:     one transaction
    with MemoryDatabase(path).reading() as run:     queries of an empty memory have no rows

The file and the tables are created with the first write. Every use has its own connection, so that an abandoned
thread leaves nothing open, and a killed process no partial change.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from parley.errors import SessionError
from parley.stores.search_text import build_queries, significant_words
from parley.workspace import private_files

VERSION = 1
BUSY_TIMEOUT_SECONDS = 10
TOKENIZER = 'tokenize="unicode61 remove_diacritics 0"'
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS parley_version (part TEXT PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE memory_entries (
    id INTEGER PRIMARY KEY, slug TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, parent TEXT, title TEXT NOT NULL,
    body TEXT NOT NULL, links TEXT NOT NULL, sources TEXT NOT NULL, archived INTEGER NOT NULL, at TEXT NOT NULL,
    author TEXT NOT NULL
);
CREATE INDEX memory_entries_by_parent ON memory_entries (parent);
CREATE TABLE memory_versions (
    slug TEXT NOT NULL, version INTEGER NOT NULL, parent TEXT, title TEXT NOT NULL, body TEXT NOT NULL,
    links TEXT NOT NULL, sources TEXT NOT NULL, archived INTEGER NOT NULL, at TEXT NOT NULL, author TEXT NOT NULL,
    PRIMARY KEY (slug, version)
);
CREATE TABLE memory_summaries (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, rank INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    text TEXT NOT NULL, at TEXT NOT NULL, UNIQUE (session, rank, first, last)
);
CREATE TABLE memory_progress (session TEXT PRIMARY KEY, seq INTEGER NOT NULL);
CREATE VIRTUAL TABLE memory_entry_words USING fts5(
    slug, title, body, content='memory_entries', content_rowid='id', {TOKENIZER}
);
CREATE VIRTUAL TABLE memory_summary_words USING fts5(
    text, content='memory_summaries', content_rowid='id', {TOKENIZER}
);
CREATE TRIGGER memory_entry_new AFTER INSERT ON memory_entries BEGIN
    INSERT INTO memory_entry_words (rowid, slug, title, body) VALUES (new.id, new.slug, new.title, new.body);
END;
CREATE TRIGGER memory_entry_changed AFTER UPDATE ON memory_entries BEGIN
    INSERT INTO memory_entry_words (memory_entry_words, rowid, slug, title, body)
        VALUES ('delete', old.id, old.slug, old.title, old.body);
    INSERT INTO memory_entry_words (rowid, slug, title, body) VALUES (new.id, new.slug, new.title, new.body);
END;
CREATE TRIGGER memory_summary_new AFTER INSERT ON memory_summaries BEGIN
    INSERT INTO memory_summary_words (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER memory_summary_gone AFTER DELETE ON memory_summaries BEGIN
    INSERT INTO memory_summary_words (memory_summary_words, rowid, text) VALUES ('delete', old.id, old.text);
END;
"""
TABLES = ("memory_entries", "memory_versions", "memory_summaries", "memory_progress")
HAS_TABLES = "SELECT 1 FROM sqlite_master WHERE name = 'memory_entries'"


class NoTables:
    """A memory in which nothing was stored yet."""

    def execute(self, statement: str, given: Sequence[Any] = ()) -> NoTables:
        return self

    def fetchone(self) -> None:
        return None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(())


NO_TABLES = NoTables()
Reader = sqlite3.Connection | NoTables


class MemoryDatabase:
    def __init__(self, path: Path, below: int = 0) -> None:
        """`below` is how many of the folders above the file are private and must not be links."""
        self.path = path
        self._below = below

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction. Raises SessionError."""
        with self._translate_errors(), self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                prepare(database, self.path)
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Raises SessionError."""
        if not self._exists():
            yield NO_TABLES
            return
        with self._translate_errors(), self._open() as database:
            yield database if is_prepared(database, self.path) else NO_TABLES

    @property
    def is_empty(self) -> bool:
        """Whether nothing was stored yet. Raises SessionError."""
        with self.reading() as run:
            return run is NO_TABLES

    def search(self, statement: str, text: str, limit: int, *given: Any) -> list[tuple[Any, ...]]:
        """The rows with all the words, then those with some, best first and each once. Raises SessionError.

        The statement takes a full-text query, what is given, and a limit. Its first column identifies a row.
        """
        hits: dict[Any, tuple[Any, ...]] = {}
        with self.reading() as run:
            for query in build_queries(significant_words(text)):
                for row in run.execute(statement, (query, *given, limit)):
                    hits.setdefault(row[0], row)
        return list(hits.values())[:limit]

    def dry_run(self) -> MemoryDatabase:
        """A copy in memory, to preview changes. Raises SessionError."""
        return DryRunDatabase(self)

    def _exists(self) -> bool:
        return self.path.exists()

    def _open(self) -> AbstractContextManager[sqlite3.Connection]:
        return closing(connect(self.path, self._below))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors of SQLite into SessionError."""
        try:
            yield
        except sqlite3.Error as exc:
            raise SessionError(f"the memory {self.path} cannot be used: {exc}") from None


class DryRunDatabase(MemoryDatabase):
    """A copy of a memory. Changes are discarded."""

    def __init__(self, of: MemoryDatabase) -> None:
        super().__init__(of.path)
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        with self.writing() as mine, of.reading() as theirs:
            for table in TABLES:
                for row in theirs.execute(f"SELECT * FROM {table}"):
                    mine.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def _exists(self) -> bool:
        return True

    def _open(self) -> AbstractContextManager[sqlite3.Connection]:
        return nullcontext(self._database)


def connect(path: Path, below: int = 0) -> sqlite3.Connection:
    """Raises SessionError, sqlite3.Error."""
    try:
        real = private_files.prepare_database(path, below=below)
        made = sqlite3.connect(real, BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            private_files.check_database(made, real)
            made.execute("PRAGMA journal_mode = WAL")
            made.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            made.close()
            raise
    except OSError as exc:
        raise SessionError(f"the memory {path} cannot be used: {exc.strerror}") from None
    return made


def is_prepared(database: sqlite3.Connection, path: Path) -> bool:
    """Whether the tables are there. Raises SessionError for those of a newer version."""
    if database.execute(HAS_TABLES).fetchone() is None:
        return False
    (version,) = database.execute("SELECT version FROM parley_version WHERE part = 'memory'").fetchone() or (VERSION,)
    if version > VERSION:
        raise SessionError(
            f"the memory {path} has version {version}; this program supports up to {VERSION}. Upgrade parley."
        )
    return True


def prepare(database: sqlite3.Connection, path: Path) -> None:
    """Create the tables if they do not exist, in the current transaction. Raises SessionError."""
    if is_prepared(database, path):
        return
    for statement in statements(SCHEMA):
        database.execute(statement)
    database.execute("INSERT OR REPLACE INTO parley_version VALUES ('memory', ?)", (VERSION,))


def statements(script: str) -> Iterator[str]:
    """Split a script into statements: `executescript` would commit the transaction."""
    held = ""
    for line in script.splitlines(keepends=True):
        held += line
        if sqlite3.complete_statement(held):
            yield held
            held = ""
