"""The SQLite file of a local cluster."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.cluster.base import ClusterError

VERSION = 1
# AUTOINCREMENT: the number of a removed message is never used again.
SCHEMA = """
CREATE TABLE messages (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    previous INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (tenant, session, message_id)
);
CREATE INDEX messages_by_session ON messages (tenant, session, sequence);
CREATE TABLE snapshots (
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (tenant, session)
);
CREATE TABLE registry (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL,
    revision INTEGER NOT NULL,
    is_temporary INTEGER NOT NULL
);
CREATE TABLE revisions (last INTEGER NOT NULL);
INSERT INTO revisions VALUES (0);
"""


class LocalDatabase:
    """Statements are short, so they run on the event loop. Every commit is synced to the disk."""

    def __init__(self, path: Path) -> None:
        self.name = f"the database {path}"
        with self._translate_errors():
            path.touch(mode=0o600)
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise ClusterError(
                    f"{self.name} has the format version {version}; this Parley reads up to {VERSION}. Upgrade parley."
                )
            if version < VERSION:
                self._connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version={VERSION}; COMMIT;")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit several statements together, or none of them. Nothing may be awaited inside. Raises ClusterError."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise

    def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Raises ClusterError."""
        with self._translate_errors():
            return self._connection.execute(statement, values)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Raises ClusterError."""
        with self._translate_errors():
            return self._connection.execute(statement, values).fetchall()

    def row(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row. Raises ClusterError."""
        return next(iter(self.rows(statement, *values)), None)

    def next_revision(self) -> int:
        """A number that is higher than all before it. Raises ClusterError."""
        self.run("UPDATE revisions SET last = last + 1")
        ((revision,),) = self.rows("SELECT last FROM revisions")
        return int(revision)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as exc:
            error = ClusterError(f"{self.name} failed: {exc}")
            if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                error.error_code = "ENOSPC"
            raise error from None
