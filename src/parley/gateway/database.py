"""SQLite files of the gateway.

`projections.db` has what is read across sessions: lists, the inbox, search, costs. All of it follows from the logs of
the sessions (`session_log/`), so a file of another version is deleted and filled again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.errors import SessionError
from parley.workspace.private_database import COMPANIONS, Schema, open_database

PROJECTIONS = Schema(
    "projections",
    1,
    """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    creator TEXT NOT NULL,
    cwd TEXT NOT NULL,
    options BLOB NOT NULL,
    workspace TEXT,
    title TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    used_at REAL NOT NULL,
    open_prompts INTEGER NOT NULL DEFAULT 0,
    copied_lines INTEGER NOT NULL DEFAULT 0,
    model TEXT,
    permission_mode TEXT,
    turns INTEGER NOT NULL DEFAULT 0,
    cost_usd REAL NOT NULL DEFAULT 0,
    last_error TEXT,
    preview TEXT NOT NULL DEFAULT '',
    model_totals TEXT NOT NULL DEFAULT '{}',
    indexed_lines INTEGER NOT NULL DEFAULT 0,
    log_bytes INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX sessions_by_tenant ON sessions (tenant, used_at);
CREATE INDEX sessions_by_use ON sessions (used_at);
CREATE INDEX sessions_by_creator ON sessions (creator);
CREATE INDEX busy_sessions ON sessions (creator) WHERE open_prompts > 0;
CREATE TABLE questions (
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    request_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    line BLOB NOT NULL,
    asked_at REAL NOT NULL,
    expires_at REAL,
    delegate TEXT,
    state TEXT NOT NULL,
    decided_by TEXT,
    decided_at REAL,
    answer BLOB,
    PRIMARY KEY (session, request_id)
) WITHOUT ROWID;
CREATE INDEX open_questions ON questions (asked_at) WHERE state = 'open';
CREATE TABLE spending (
    session TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    usd REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX spending_by_name ON spending (name, session, tokens, usd);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    number INTEGER NOT NULL,
    uuid TEXT,
    time REAL,
    is_prompt INTEGER NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX messages_by_number ON messages (session, number);
CREATE INDEX prompts_by_number ON messages (session, number) WHERE is_prompt;
CREATE VIRTUAL TABLE message_words USING fts5(
    text, content='messages', content_rowid='id', tokenize='unicode61 remove_diacritics 2'
);
CREATE TRIGGER message_added AFTER INSERT ON messages BEGIN
    INSERT INTO message_words (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER message_deleted AFTER DELETE ON messages BEGIN
    INSERT INTO message_words (message_words, rowid, text) VALUES ('delete', old.id, old.text);
END;
CREATE TABLE tool_calls (
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    number INTEGER NOT NULL,
    position INTEGER NOT NULL,
    time REAL NOT NULL,
    tool TEXT NOT NULL,
    input TEXT NOT NULL,
    PRIMARY KEY (session, number, position)
) WITHOUT ROWID;
CREATE INDEX tool_calls_by_time ON tool_calls (time);
CREATE TABLE turns (
    session TEXT NOT NULL,
    number INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    title TEXT,
    time REAL NOT NULL,
    model TEXT,
    duration_ms REAL,
    duration_api_ms REAL,
    is_error INTEGER NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;
CREATE INDEX turns_by_time ON turns (time);
CREATE TABLE usage (
    session TEXT NOT NULL,
    number INTEGER NOT NULL,
    model TEXT NOT NULL,
    usd REAL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    PRIMARY KEY (session, number, model),
    FOREIGN KEY (session, number) REFERENCES turns ON DELETE CASCADE
) WITHOUT ROWID;
""",
)
# WITHOUT ROWID: in which order rows were inserted must not change an answer, not even the last digit of a sum.


class Database:
    def __init__(self, path: Path, schema: Schema) -> None:
        """Open the file, or create it. Raises SessionError."""
        try:
            self._connection = open_database(path, schema)
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA foreign_keys=ON")
            self._connection.create_function("casefold", 1, str.casefold, deterministic=True)
        except (OSError, sqlite3.Error) as exc:
            raise SessionError(f"cannot open {path}: {exc.strerror if isinstance(exc, OSError) else exc}") from exc

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit several changes together, or none of them. Nothing may be awaited inside. Raises SessionError."""
        self.change("BEGIN")
        try:
            yield
            self.change("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise

    def change(self, statement: str, *values: Any) -> int:
        """Execute a statement; returns the number of rows that it changed. Raises SessionError."""
        try:
            return self._connection.execute(statement, values).rowcount
        except sqlite3.Error as exc:
            raise SessionError(f"the database of the gateway failed: {exc}") from None

    def insert(self, table: str, row: dict[str, Any]) -> None:
        """Insert a row, or replace the one with its key. Raises SessionError."""
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self.change(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", *row.values())

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


def open_projections(path: Path) -> Database:
    """The database of the projections; a new one if it is of another version or cannot be read. Raises SessionError."""
    try:
        return Database(path, PROJECTIONS)
    except SessionError as exc:
        if not isinstance(exc.__cause__, sqlite3.DatabaseError):
            raise
    for ending in ("", *COMPANIONS):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    return Database(path, PROJECTIONS)
