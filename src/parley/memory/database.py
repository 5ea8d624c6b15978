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

from parley.stores.search_text import build_queries, significant_words
from parley.workspace.private_database import (
    IN_MEMORY,
    Schema,
    create_tables,
    has_tables,
    open_database,
    transaction,
    translate_errors,
)

TOKENIZER = 'tokenize="unicode61 remove_diacritics 0"'
SCRIPT = f"""
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
SCHEMA = Schema("memory", 1, SCRIPT)
TABLES = ("memory_entries", "memory_versions", "memory_summaries", "memory_progress")


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
        with translate_errors(f"the memory {self.path}"), self._open() as database, transaction(database):
            create_tables(database, SCHEMA)
            yield database

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Raises SessionError."""
        if not self._exists():
            yield NO_TABLES
            return
        with translate_errors(f"the memory {self.path}"), self._open() as database:
            yield database if has_tables(database, SCHEMA) else NO_TABLES

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
        return closing(open_database(self.path, SCHEMA, below=self._below, create=False))


class DryRunDatabase(MemoryDatabase):
    """A copy of a memory. Changes are discarded."""

    def __init__(self, of: MemoryDatabase) -> None:
        super().__init__(of.path)
        self._database = open_database(IN_MEMORY, SCHEMA)
        with self.writing() as mine, of.reading() as theirs:
            for table in TABLES:
                for row in theirs.execute(f"SELECT * FROM {table}"):
                    mine.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def _exists(self) -> bool:
        return True

    def _open(self) -> AbstractContextManager[sqlite3.Connection]:
        return nullcontext(self._database)
