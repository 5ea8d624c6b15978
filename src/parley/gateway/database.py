"""What the gateway knows besides the transcripts: sessions, prompts, questions, tokens. One SQLite file.

Every change is committed before it has an effect. In WAL mode a commit survives the death of the process; after a
power failure the last ones may be missing.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from parley.errors import SessionError

VERSION = 1
SCHEMA = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    creator TEXT NOT NULL,
    cwd TEXT NOT NULL,
    options TEXT NOT NULL,
    engine_id TEXT NOT NULL,
    title TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    used_at REAL NOT NULL,
    is_loaded INTEGER NOT NULL DEFAULT 0,
    initialize BLOB,
    callbacks_of TEXT,
    tokens_used INTEGER NOT NULL DEFAULT 0,
    usd_used REAL NOT NULL DEFAULT 0
);
CREATE TABLE spending (
    name TEXT PRIMARY KEY,
    tokens INTEGER NOT NULL,
    usd REAL NOT NULL
);
CREATE TABLE prompts (
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    uuid TEXT NOT NULL,
    line BLOB,
    digest BLOB NOT NULL,
    PRIMARY KEY (session, uuid)
);
CREATE INDEX open_prompts ON prompts (session) WHERE line IS NOT NULL;
CREATE TABLE questions (
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    request_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    line BLOB NOT NULL,
    asked_at REAL NOT NULL,
    expires_at REAL,
    delegate TEXT,
    state TEXT NOT NULL DEFAULT 'open',
    decided_by TEXT,
    decided_at REAL,
    answer BLOB,
    PRIMARY KEY (session, request_id)
);
CREATE INDEX open_questions ON questions (asked_at) WHERE state = 'open';
CREATE TABLE tokens (
    name TEXT PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    grants TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL
);
"""


class Database:
    def __init__(self, path: Path) -> None:
        """Open the file, or create it. Raises SessionError."""
        try:
            path.touch(mode=0o600)
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.row_factory = sqlite3.Row
            self._connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON")
            self._create(path)
        except (sqlite3.Error, OSError) as exc:
            raise SessionError(f"cannot open {path}: {exc}") from None

    def _create(self, path: Path) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            self._connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version={VERSION}; COMMIT;")
        elif version != VERSION:
            raise SessionError(
                f"{path} has the format version {version}, but this Parley reads only {VERSION}; use another --state"
            )

    def change(self, statement: str, *values: Any) -> int:
        """Execute a statement; returns the number of rows that it changed. Raises SessionError."""
        try:
            return self._connection.execute(statement, values).rowcount
        except sqlite3.Error as exc:
            raise SessionError(f"the database of the gateway failed: {exc}") from None

    def rows(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """Raises SessionError."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as exc:
            raise SessionError(f"the database of the gateway failed: {exc}") from None

    def row(self, statement: str, *values: Any) -> sqlite3.Row | None:
        """The first row. Raises SessionError."""
        return next(iter(self.rows(statement, *values)), None)

    def close(self) -> None:
        self._connection.close()
