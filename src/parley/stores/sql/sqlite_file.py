"""Connections to the SQLite file of sessions, its schema and migrations."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.errors import SessionError
from parley.workspace import private_files

VERSION = 2
BUSY_TIMEOUT_SECONDS = 10
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
def translate_errors(path: Path) -> Iterator[None]:
    """Translate sqlite3.Error to SessionError."""
    try:
        yield
    except sqlite3.Error as exc:
        error = SessionError(f"cannot use the database {path}: {exc}")
        if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            error.error_code = "ENOSPC"
        raise error from None
    except UnicodeDecodeError:
        # In a damaged file, table names that errors quote may be invalid UTF-8.
        raise SessionError(f"cannot use the database {path}: the file is damaged") from None


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection; read-only if the file is not writable. Raises SessionError."""
    with translate_errors(path):
        try:
            if os.path.exists(path) and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
                return read_only(path)
            real = private_files.prepare_database(path)
            database = sqlite3.connect(real, BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                private_files.check_database(database, real)
                prepare(database, path)
            except BaseException:
                database.close()
                raise
        except OSError as exc:
            raise SessionError(f"cannot use the database {path}: {exc.strerror}") from None
        return database


def read_only(path: Path) -> sqlite3.Connection:
    """Open a read-only connection. Raises SessionError, sqlite3.Error, OSError."""
    path = Path(private_files.prepare_database(path, writes=False))
    log = path.with_name(f"{path.name}-wal")
    # Even to read, SQLite creates files next to the database, unless it is immutable: no WAL is pending.
    is_settled = not (log.exists() and log.stat().st_size)
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_settled else ''}"
    database = sqlite3.connect(address, BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
    try:
        private_files.check_database(database, str(path))
        read_version(database, path)
    except BaseException:
        database.close()
        raise
    return database


def prepare(database: sqlite3.Connection, path: Path) -> None:
    """Create or migrate the tables. Raises SessionError for a newer schema."""
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")  # a commit reaches the operating system; `sync` reaches the disk
    if read_version(database, path) < VERSION:
        database.execute("BEGIN IMMEDIATE")
        try:
            migrate(database)
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")


def read_version(database: sqlite3.Connection, path: Path) -> int:
    """The schema version, 0 if there are no tables. Raises SessionError for a newer one."""
    # Other parts of the program may have tables in the same file, with their own version rows.
    has_versions = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'parley_version'").fetchone()
    (version,) = (database.execute(OUR_VERSION).fetchone() if has_versions else None) or (0,)
    if version > VERSION:
        raise SessionError(
            f"the database {path} has schema version {version}; this program supports up to {VERSION}. Upgrade parley."
        )
    return int(version)


def migrate(database: sqlite3.Connection) -> None:
    """Create what is missing. Another process may have migrated part of it."""
    for statement in SCHEMA.split(";\n"):
        database.execute(statement)
    if not database.execute(HAS_CHECKSUMS).fetchone():
        database.execute("ALTER TABLE entries ADD COLUMN checksum INTEGER")
    database.execute("INSERT OR REPLACE INTO parley_version VALUES ('sessions', ?)", (VERSION,))
