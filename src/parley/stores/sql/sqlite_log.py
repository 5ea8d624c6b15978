"""The log of a session, or of one of its subagents, in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from parley.errors import DamagedSession, SessionBusy, SessionError
from parley.protocol.base import encode_json
from parley.stores.base import TAKEN_OVER, Entry
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.lease import Lease
from parley.stores.search_text import SAID, entry_text, first_prompt, split_words
from parley.stores.sql.rows import RowChain, next_checksum
from parley.stores.sql.sqlite_file import connect, translate_errors
from parley.workspace import private_files

COLUMNS = "SELECT seq, kind, at, message, context, checksum FROM entries "
ENTRIES = COLUMNS + "WHERE session = ? AND seq > ? ORDER BY seq"
LAST = COLUMNS + "WHERE session = ? AND seq <= ? ORDER BY seq DESC LIMIT 1"
ADD = "INSERT INTO entries (session, seq, kind, at, message, context, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)"
HIGHEST = (1 << 63) - 1


class SqliteLog:
    def __init__(self, path: Path, key: str, context: EntryContext, lease: Lease) -> None:
        self._path = path
        self._key = key
        """The session's id; for a subagent, the session's and the agent's."""
        self._context = context
        self._lease: Lease | None = lease
        self._total: int | None = None
        """The checksum of all entries; None until it is needed."""
        self._database = connect(path)
        with translate_errors(path):
            # After a steal, wait until a write of the previous holder has ended.
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("COMMIT")

    def append(self, entry: Entry) -> None:
        if self._total is None:
            self._total = total_before(self._path, self._key, HIGHEST)
        with translate_errors(self._path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                total = self._insert(entry, self._total)
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")
            self._total = total

    def _insert(self, entry: Entry, before: int) -> int:
        """Insert an entry and return the new checksum. Raises SessionBusy, sqlite3.Error."""
        if self._lease is None or not self._lease.is_ours():
            raise SessionBusy(self._key, TAKEN_OVER)
        message, context = encode_json(entry.message), encode_json(entry.context)
        total = next_checksum(before, entry.seq, entry.kind.encode(), entry.at.encode(), message, context)
        row = (self._key, entry.seq, entry.kind, entry.at, message.decode(), context.decode(), total)
        added = self._database.execute(ADD, row)
        self._describe(entry, added.lastrowid, len(message) + len(context))
        return total

    def _describe(self, entry: Entry, row: int | None, size_bytes: int) -> None:
        """Update the session's row and the full-text index. Raises sqlite3.Error."""
        run, session_id = self._database.execute, self._key
        if found := split_words(entry_text(entry.kind, entry.message)):
            run("INSERT INTO said (rowid, words) VALUES (?, ?)", (row, " ".join(found)))
        location = (os.path.realpath(self._context.cwd), self._context.git_branch or None)
        run(
            "INSERT INTO sessions (id, cwd, git_branch, created, modified, turn) VALUES (?, ?, ?, ?, ?, 0) "
            "ON CONFLICT DO NOTHING",
            (session_id, *location, entry.at, entry.at),
        )
        run(
            "UPDATE sessions SET modified = ?, turn = ?, size_bytes = size_bytes + ?, messages = messages + ?, "
            "first_prompt = coalesce(first_prompt, ?), title = coalesce(?, title) WHERE id = ?",
            (
                entry.at,
                time.time_ns(),
                size_bytes,
                int(entry.kind in SAID),
                first_prompt(entry.kind, entry.message),
                entry.message.get("title") if entry.kind == "title" else None,
                session_id,
            ),
        )

    def sync(self) -> None:
        try:
            file = private_files.open_file(f"{self._path}-wal", os.O_RDONLY)
            try:
                os.fdatasync(file)
            finally:
                os.close(file)
        except FileNotFoundError:
            return  # the WAL was moved into the database file, which SQLite syncs itself
        except OSError as exc:
            raise SessionError(f"cannot write the database {self._path}: {exc.strerror}") from None

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return entries(self._path, self._key, after)

    def close(self) -> None:
        self._database.close()
        if self._lease is not None:
            self._lease.release()
            self._lease = None


class SqliteAgentLog(SqliteLog):
    """The log of a subagent, which is not listed or searched."""

    def _describe(self, entry: Entry, row: int | None, size_bytes: int) -> None:
        pass


def entries(path: Path, key: str, after: int) -> Iterator[Entry]:
    """Yield the entries with `seq > after`. Raises SessionError, DamagedSession."""
    with translate_errors(path), closing(open_for_bytes(path)) as database:
        total = total_at(database, key, after)
        chain = RowChain(key, str(path), total or 0)
        begin = -1 if total is None else after
        yield from chain.entries(database.execute(ENTRIES, (key, begin)), after)


def total_before(path: Path, key: str, seq: int) -> int:
    """The checksum of all entries up to `seq`. Raises SessionError, DamagedSession."""
    with translate_errors(path), closing(open_for_bytes(path)) as database:
        total = total_at(database, key, seq)
        if total is not None:
            return total
        chain = RowChain(key, str(path))
        for row in database.execute(ENTRIES, (key, -1)):
            chain.entry(*row)
        return chain.total


def total_at(database: sqlite3.Connection, key: str, seq: int) -> int | None:
    """The stored checksum of the last entry up to `seq`; None if an older version wrote it without one.

    Raises DamagedSession.
    """
    row = database.execute(LAST, (key, seq)).fetchone()
    stored = 0 if row is None else row[-1]
    if stored is not None and not isinstance(stored, int):
        raise DamagedSession(key, f"entry {row[0]}")
    return stored


def open_for_bytes(path: Path) -> sqlite3.Connection:
    """Open a connection that returns text as bytes, because damaged text may be invalid UTF-8. Raises SessionError."""
    database = connect(path)
    database.text_factory = bytes
    return database
