"""The SQLite file of many sessions: its tables, and connections to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.errors import SessionError
from parley.workspace import private_files

VERSION = 2
PATIENCE_SECONDS = 10
SCHEMA = """
CREATE TABLE IF NOT EXISTS parley_version (part TEXT PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, cwd TEXT NOT NULL, git_branch TEXT, title TEXT, tag TEXT, first_prompt TEXT,
    created TEXT NOT NULL, modified TEXT NOT NULL, turn INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL DEFAULT 0, messages INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS sessions_by_project ON sessions (cwd, turn);
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, at TEXT NOT NULL,
    message TEXT NOT NULL, context TEXT NOT NULL, checksum INTEGER, UNIQUE (session, seq)
);
CREATE VIRTUAL TABLE IF NOT EXISTS said USING fts5(words, content='', tokenize="unicode61 remove_diacritics 0");
CREATE TABLE IF NOT EXISTS agents (
    session TEXT NOT NULL, id TEXT NOT NULL, meta TEXT NOT NULL, PRIMARY KEY (session, id)
);
"""
HAS_CHECKSUMS = "SELECT 1 FROM pragma_table_info('entries') WHERE name = 'checksum'"
OUR_VERSION = "SELECT version FROM parley_version WHERE part = 'sessions'"


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What SQLite has to complain about, as a session's error."""
    try:
        yield
    except sqlite3.Error as flaw:
        raise SessionError(f"the database {path} cannot be used: {flaw}") from None
    except UnicodeDecodeError:
        # A damaged file may have names of tables that are no text, and complaints quote them.
        raise SessionError(f"the database {path} cannot be used: it is damaged") from None


def connect(path: Path) -> sqlite3.Connection:
    """Raises SessionError."""
    with told(path):
        try:
            if os.path.exists(path) and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
                return read_only(path)
            real = private_files.prepare_database(path)
            made = sqlite3.connect(real, PATIENCE_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                private_files.must_be_database(made, real)
                prepare(made, path)
            except BaseException:
                made.close()
                raise
        except OSError as flaw:
            raise SessionError(f"the database {path} cannot be used: {flaw.strerror}") from None
        return made


def read_only(path: Path) -> sqlite3.Connection:
    """A connection to a file that we may read and not write. Raises SessionError, sqlite3.Error, OSError."""
    path = Path(private_files.prepare_database(path, writes=False))
    log = path.with_name(f"{path.name}-wal")
    # SQLite wants to make files beside the database, even to read; it need not if nobody has left a log there.
    is_settled = not (log.exists() and log.stat().st_size)
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_settled else ''}"
    made = sqlite3.connect(address, PATIENCE_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
    try:
        private_files.must_be_database(made, str(path))
        version_of(made, path)
    except BaseException:
        made.close()
        raise
    return made


def prepare(database: sqlite3.Connection, path: Path) -> None:
    """Make the tables, or what an older version of them lacks. Raises SessionError for a newer file."""
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")  # with the system at each commit, on the device with `sync`
    if version_of(database, path) < VERSION:
        database.execute("BEGIN IMMEDIATE")
        try:
            grow(database)
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")


def version_of(database: sqlite3.Connection, path: Path) -> int:
    """The version of our tables, 0 if there are none. Raises SessionError for a newer one."""
    # Others may keep tables of their own in the file, and the versions of them beside ours.
    has_versions = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'parley_version'").fetchone()
    (version,) = (database.execute(OUR_VERSION).fetchone() if has_versions else None) or (0,)
    if version > VERSION:
        raise SessionError(f"the database {path} is of a newer version ({version}; this is {VERSION})")
    return int(version)


def grow(database: sqlite3.Connection) -> None:
    """Whatever another process has not done meanwhile."""
    for statement in SCHEMA.split(";\n"):
        database.execute(statement)
    if not database.execute(HAS_CHECKSUMS).fetchone():
        database.execute("ALTER TABLE entries ADD COLUMN checksum INTEGER")
    database.execute("INSERT OR REPLACE INTO parley_version VALUES ('sessions', ?)", (VERSION,))
