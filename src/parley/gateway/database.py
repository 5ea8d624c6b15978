"""What the gateway knows besides the transcripts: sessions, prompts, questions, tokens. One SQLite file.

Every change is committed before it has an effect. In WAL mode a commit survives the death of the process; after a
power failure the last ones may be missing. What `index/` derives from the lines of sessions is in the same file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.errors import SessionError

FIRST_SCHEMA = """
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
INDEX_SCHEMA = """
ALTER TABLE prompts ADD COLUMN digest BLOB;
ALTER TABLE sessions ADD COLUMN model TEXT;
ALTER TABLE sessions ADD COLUMN permission_mode TEXT;
ALTER TABLE sessions ADD COLUMN turns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cost_usd REAL NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN last_error TEXT;
ALTER TABLE sessions ADD COLUMN preview TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN model_totals TEXT NOT NULL DEFAULT '{}';
ALTER TABLE sessions ADD COLUMN copied_lines INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN indexed_lines INTEGER NOT NULL DEFAULT 0;
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
    id INTEGER PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    number INTEGER NOT NULL,
    time REAL,
    tool TEXT NOT NULL,
    input TEXT NOT NULL
);
CREATE INDEX tool_calls_by_number ON tool_calls (session, number);
CREATE TABLE turns (
    session TEXT NOT NULL,
    number INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    title TEXT NOT NULL,
    time REAL NOT NULL,
    model TEXT,
    duration_ms REAL,
    duration_api_ms REAL,
    is_error INTEGER NOT NULL,
    PRIMARY KEY (session, number)
);
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
);
"""
WORKSPACE_SCHEMA = """
ALTER TABLE sessions ADD COLUMN workspace TEXT;
"""
READER_SCHEMA = """
CREATE INDEX sessions_by_tenant ON sessions (tenant, used_at);
CREATE INDEX sessions_by_use ON sessions (used_at);
CREATE INDEX sessions_by_creator ON sessions (creator);
ALTER TABLE prompts ADD COLUMN unread_by TEXT;
ALTER TABLE prompts ADD COLUMN start INTEGER;
ALTER TABLE prompts ADD COLUMN result INTEGER;
CREATE INDEX unread_prompts ON prompts (session, unread_by) WHERE unread_by IS NOT NULL;
"""
STEPS = (FIRST_SCHEMA, INDEX_SCHEMA, WORKSPACE_SCHEMA, READER_SCHEMA)
"""Step n brings a file from version n to version n + 1."""
VERSION = len(STEPS)


MEMORY = Path(":memory:")
"""A database that ends with its process."""


class Database:
    def __init__(self, path: Path) -> None:
        """Open the file, or create it. Raises SessionError."""
        try:
            if path != MEMORY:
                path.touch(mode=0o600)
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.row_factory = sqlite3.Row
            self._connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON")
            self._connection.create_function("casefold", 1, str.casefold, deterministic=True)
            self._migrate(path)
        except (sqlite3.Error, OSError) as exc:
            raise SessionError(f"cannot open {path}: {exc}") from None

    def _migrate(self, path: Path) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise SessionError(
                f"{path} has the format version {version}, but this Parley reads only versions up to {VERSION}; "
                "use another --state"
            )
        for number, step in enumerate(STEPS[version:], version + 1):
            self._connection.executescript(f"BEGIN; {step} PRAGMA user_version={number}; COMMIT;")

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

    def rows(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """Raises SessionError."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as exc:
            raise SessionError(f"the database of the gateway failed: {exc}") from None

    def row(self, statement: str, *values: Any) -> sqlite3.Row | None:
        """The first row. Raises SessionError."""
        return next(iter(self.rows(statement, *values)), None)

    def add_function(self, name: str, arguments: int, function: Callable[..., Any]) -> None:
        """Let statements call a function."""
        self._connection.create_function(name, arguments, function)

    def close(self) -> None:
        self._connection.close()
