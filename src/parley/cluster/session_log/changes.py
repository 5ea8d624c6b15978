"""Notices what the gateway changes in its database, so that no statement of the gateway has to know of the log.

Triggers write down which rows of a session have changed. `take` returns the rows as they are now: several changes of
one row become one record.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from parley.cluster.session_log.fold import TABLES
from parley.cluster.session_log.records import RowDeletedRecord, RowRecord
from parley.gateway.database import Database

DERIVED = frozenset(
    {"model", "permission_mode", "turns", "cost_usd", "last_error", "preview", "model_totals", "indexed_lines"}
)
"""Columns that the index fills from the lines. Only snapshots have them, so that a new owner need not index first."""
FOLLOWING = frozenset({"used_at"})
"""Columns whose changes alone are not worth a record: lines have their times."""
SESSION = {"sessions": "id", "prompts": "session", "questions": "session"}
"""The column that names the session of a row."""

SCHEMA = """
CREATE TABLE changes (
    seq INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    key TEXT NOT NULL
);
"""


class Changes:
    def __init__(self, database: Database, notify: Callable[[str], None]) -> None:
        """`notify` is called with the id of a session in the middle of a statement: it may only remember it."""
        self._database = database
        self._notify = notify
        self._is_recording = True
        self.columns = {table: kept_columns(database, table) for table in TABLES}
        database.add_function("note_change", 1, self._note)
        database.change(SCHEMA)
        for table in TABLES:
            self._add_triggers(table)

    def _add_triggers(self, table: str) -> None:
        changed = " OR ".join(f"new.{name} IS NOT old.{name}" for name in self.columns[table] if name not in FOLLOWING)
        for event, row, condition in (("INSERT", "new", "1"), ("UPDATE", "new", changed), ("DELETE", "old", "1")):
            session = f"{row}.{SESSION[table]}"
            self._database.change(
                f"CREATE TRIGGER record_{table}_{event.lower()} AFTER {event} ON {table}"
                f" WHEN ({condition}) AND note_change({session}) BEGIN"
                f" INSERT INTO changes (session, name, key) VALUES ({session}, '{table}', {row}.{TABLES[table]}); END"
            )

    def _note(self, session: str) -> bool:
        if self._is_recording:
            self._notify(session)
        return self._is_recording

    def take(self, session: str) -> Iterator[RowRecord | RowDeletedRecord]:
        """The rows of a session that have changed since the last call. Raises SessionError."""
        found = self._database.rows(
            "SELECT name, key, min(seq) AS first, max(seq) AS last FROM changes WHERE session=?"
            " GROUP BY name, key ORDER BY first",
            session,
        )
        if not found:
            return
        last = max(change["last"] for change in found)
        self._database.change("DELETE FROM changes WHERE session=? AND seq<=?", session, last)
        for change in found:
            table, key = change["name"], change["key"]
            row = self._read(table, session, key)
            if row is None:
                yield RowDeletedRecord(table=table, key=key)
            else:
                yield RowRecord(table=table, row=row)

    def _read(self, table: str, session: str, key: str) -> dict[str, Any] | None:
        columns = ", ".join(self.columns[table])
        row = self._database.row(
            f"SELECT {columns} FROM {table} WHERE {SESSION[table]}=? AND {TABLES[table]}=?", session, key
        )
        return None if row is None else dict(row)

    def read_all(self, session: str) -> Iterator[RowRecord]:
        """All rows of a session, for a snapshot. Raises SessionError."""
        for table in self.columns:
            columns = ", ".join(self._all_columns(table))
            for row in self._database.rows(
                f"SELECT {columns} FROM {table} WHERE {SESSION[table]}=? ORDER BY rowid", session
            ):
                yield RowRecord(table=table, row=dict(row))

    def restore(self, rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """Insert the rows of a session, without noticing. Columns that this version does not have are left out."""
        with self._without_recording(), self._database.transaction():
            for table in self.columns:
                for row in rows.get(table, {}).values():
                    names = [name for name in self._all_columns(table) if name in row]
                    self._database.change(
                        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
                        *(row[name] for name in names),
                    )

    def _all_columns(self, table: str) -> list[str]:
        return [*self.columns[table], *(sorted(DERIVED) if table == "sessions" else ())]

    def remove(self, session: str) -> None:
        """Delete the rows of a session, without noticing. Raises SessionError."""
        with self._without_recording(), self._database.transaction():
            for statement in (
                "DELETE FROM sessions WHERE id=?",
                "DELETE FROM turns WHERE session=?",
                "DELETE FROM changes WHERE session=?",
            ):
                self._database.change(statement, session)

    @contextmanager
    def _without_recording(self) -> Iterator[None]:
        self._is_recording = False
        try:
            yield
        finally:
            self._is_recording = True


def kept_columns(database: Database, table: str) -> list[str]:
    """The columns that are in the log: all that do not follow from the lines."""
    rows: list[sqlite3.Row] = database.rows(f"PRAGMA table_info({table})")
    return [row["name"] for row in rows if row["name"] not in DERIVED]
