"""Connections to the SQLite file of sessions, and its tables."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from parley.workspace import private_database

SCRIPT = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, cwd TEXT NOT NULL, git_branch TEXT, title TEXT, tag TEXT, first_prompt TEXT,
    created TEXT NOT NULL, modified TEXT NOT NULL, turn INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL DEFAULT 0, messages INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX sessions_by_project ON sessions (cwd, turn);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, at TEXT NOT NULL,
    message TEXT NOT NULL, context TEXT NOT NULL, checksum INTEGER NOT NULL, UNIQUE (session, seq)
);
CREATE VIRTUAL TABLE said USING fts5(words, content='', tokenize="unicode61 remove_diacritics 0");
CREATE TABLE agents (
    session TEXT NOT NULL, id TEXT NOT NULL, meta TEXT NOT NULL, PRIMARY KEY (session, id)
);
"""
SCHEMA = private_database.Schema("sessions", 3, SCRIPT)


def translate_errors(path: Path) -> AbstractContextManager[None]:
    return private_database.translate_errors(f"the database {path}")


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection; read-only if the file is not writable. Raises SessionError."""
    with translate_errors(path):
        return private_database.open_database(path, SCHEMA)
