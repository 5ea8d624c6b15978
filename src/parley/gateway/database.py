"""The projections of a gateway in SQLite: what is read across sessions, such as lists, the inbox, search and costs.

    rows.follow(log, records)    something was recorded
    rows.restore(log)            write the rows of a session as its state says
    rows.forget(session_id)

All of `projections.db` follows from the logs of the sessions (`session_log/`), so a file of another version is deleted
and filled again. A row is written as the state has it after the record: there is one fold, `SessionState`. What is
found in the text of lines comes later (`index/`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import SessionError
from parley.gateway.session_log.records import (
    AnyRecord,
    AskedRecord,
    CopiedRecord,
    CreatedRecord,
    DecidedRecord,
    DelegatedRecord,
    DeletedRecord,
    EngineChangedRecord,
    EngineStartedRecord,
    PromptCancelledRecord,
    PromptFinishedRecord,
    PromptTakenRecord,
    SessionSummary,
    TitledRecord,
    UsedRecord,
    WithdrawnRecord,
)
from parley.gateway.session_log.session_log import SessionLog
from parley.workspace.private_database import COMPANIONS, Schema, open_database, translate_errors

PROJECTIONS = Schema(
    "projections",
    2,
    """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    creator TEXT NOT NULL,
    cwd TEXT NOT NULL,
    options BLOB NOT NULL,
    workspace TEXT,
    title TEXT NOT NULL DEFAULT '',
    engine_ids TEXT NOT NULL DEFAULT '[]',
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
CREATE INDEX renamed_sessions ON sessions (id) WHERE engine_ids != '[]';
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
    """Statements are short, so they run on the event loop."""

    def __init__(self, path: Path, schema: Schema) -> None:
        """Open the file, or create it. Raises SessionError."""
        self.name = f"the database {path}"
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
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise

    def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """`values`: those of the statement, or a dict with their names. Raises SessionError."""
        given = values[0] if values and isinstance(values[0], dict) else values
        with translate_errors(self.name):
            return self._connection.execute(statement, given)

    def change(self, statement: str, *values: Any) -> int:
        """Execute a statement; returns the number of rows that it changed. Raises SessionError."""
        return self.run(statement, *values).rowcount

    def insert(self, table: str, row: dict[str, Any]) -> None:
        """Insert a row, or replace the one with its key. Raises SessionError."""
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self.change(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", *row.values())

    def rows(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        """Raises SessionError."""
        with translate_errors(self.name):
            return self.run(statement, *values).fetchall()

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


OF_SESSION = frozenset(
    {
        CreatedRecord,
        CopiedRecord,
        TitledRecord,
        EngineStartedRecord,
        EngineChangedRecord,
        PromptTakenRecord,
        PromptFinishedRecord,
        PromptCancelledRecord,
    }
)
"""The records that change the row of a session."""
OF_QUESTION = AskedRecord | DelegatedRecord | DecidedRecord | WithdrawnRecord


class SessionRows:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.behind: set[str] = set()
        """The sessions of which something was recorded that the database did not take."""

    def follow(self, log: SessionLog, records: Sequence[AnyRecord]) -> None:
        """Raises SessionError."""
        kinds = {type(record) for record in records}
        if not kinds.isdisjoint(OF_SESSION):
            self._save_session(log)
        for record in records:
            if isinstance(record, OF_QUESTION):
                self._save_question(log, record.request_id)
            elif isinstance(record, UsedRecord):
                self._add_spending(log, record.tokens, record.usd)
            elif isinstance(record, DeletedRecord):
                self._save_deleted(log, record)

    def restore(self, log: SessionLog, *, is_spent_here: bool = True) -> None:
        """Write all rows of a session, and nothing that was found in its lines. Raises SessionError.

        `is_spent_here`: whether what it has used counts here, and not on another host.
        """
        state = log.state
        self.behind.discard(log.session_id)
        with self._database.transaction():
            self.forget(log.session_id)
            if is_spent_here:
                self._database.change("DELETE FROM spending WHERE session=?", log.session_id)
                self._add_spending(log, state.spent_tokens, state.spent_usd)
            if state.deleted is not None:
                self._save_deleted(log, state.deleted)
            elif state.created is not None:
                self._save_session(log)
                for request_id in state.questions:
                    self._save_question(log, request_id)
                if state.summary is not None:
                    self.save_summary(log.session_id, state.summary)

    def save_summary(self, session_id: str, summary: SessionSummary, log_bytes: int = 0) -> None:
        """`log_bytes`: how long the log is if all of it is indexed. Raises SessionError."""
        fields = {**msgspec.structs.asdict(summary), "log_bytes": log_bytes}
        marks = ", ".join(f"{name}=?" for name in fields)
        self._database.change(f"UPDATE sessions SET {marks} WHERE id=?", *fields.values(), session_id)

    def forget(self, session_id: str) -> None:
        """Delete the rows of a session, but not what it has spent. Raises SessionError."""
        self._database.change("DELETE FROM sessions WHERE id=?", session_id)
        self._database.change("DELETE FROM turns WHERE session=?", session_id)

    def _save_session(self, log: SessionLog) -> None:
        state, created = log.state, log.state.created
        if created is None:
            return
        self._database.change(
            "INSERT INTO sessions (id, tenant, creator, cwd, options, workspace, title, created_at, used_at,"
            " open_prompts, copied_lines, engine_ids) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET"
            " title=CASE excluded.title WHEN '' THEN title ELSE excluded.title END,"
            " used_at=max(used_at, excluded.used_at), open_prompts=excluded.open_prompts,"
            " copied_lines=excluded.copied_lines, engine_ids=excluded.engine_ids",
            *(log.session_id, created.tenant, created.creator, created.cwd, created.options, created.workspace),
            *(state.title, created.at, state.used_at, len(state.open_prompts)),
            *(0 if state.copied is None else state.copied.lines, msgspec.json.encode(state.engine_ids).decode()),
        )

    def _save_question(self, log: SessionLog, request_id: str) -> None:
        question = log.state.questions[request_id]
        key = {"session": log.session_id, "request_id": request_id}
        row = {**msgspec.structs.asdict(question), **key, "line": log.line(question.line)}
        self._database.insert("questions", row)

    def _add_spending(self, log: SessionLog, tokens: int, usd: float) -> None:
        if log.state.created is not None and (tokens or usd):
            self._database.change(
                "INSERT INTO spending (session, name, tokens, usd) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (session) DO UPDATE SET tokens=tokens+excluded.tokens, usd=usd+excluded.usd",
                *(log.session_id, log.state.created.creator, tokens, usd),
            )

    def _save_deleted(self, log: SessionLog, record: DeletedRecord) -> None:
        """Turns stay when their session is deleted: the money is spent."""
        self._database.change("DELETE FROM sessions WHERE id=?", log.session_id)
        tenant = "" if log.state.created is None else log.state.created.tenant
        for turn in record.turns:
            row = msgspec.structs.asdict(turn)
            del row["uses"]
            self._database.insert("turns", {**row, "session": log.session_id, "tenant": tenant, "title": record.title})
            for use in turn.uses:
                names = ("model", "usd", "input_tokens", "output_tokens", "cache_read_tokens")
                used = dict(zip(names, use, strict=True))
                self._database.insert("usage", {"session": log.session_id, "number": turn.number, **used})
