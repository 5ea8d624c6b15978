"""All sessions in one SQLite file (`--db FILE`), with an index of all words that were said.

The file is in WAL mode, so that readers and the writers of other sessions do not wait for
each other longer than for one entry. Who holds a session stands in `FILE.leases/<session>`.
"""

from __future__ import annotations

import builtins
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import SessionBusy, SessionError, UnknownSession
from parley.protocol.base import spell
from parley.stores.base import Entry, Hit, Info, Mended, plain
from parley.stores.lease import Lease, is_held, take
from parley.stores.line import Context
from parley.stores.words import SAID, excerpt, first_prompt, said, words

VERSION = 1
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
    message TEXT NOT NULL, context TEXT NOT NULL, UNIQUE (session, seq)
);
CREATE VIRTUAL TABLE IF NOT EXISTS said USING fts5(words, content='', tokenize="unicode61 remove_diacritics 0");
"""
INFO = "SELECT id, cwd, title, first_prompt, created, modified, size_bytes, messages, tag, git_branch FROM sessions "
ENTRIES = "SELECT seq, kind, at, message, context FROM entries WHERE session = ? AND seq > ? ORDER BY seq"


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What SQLite has to complain about, as a session's error."""
    try:
        yield
    except sqlite3.Error as flaw:
        raise SessionError(f"the database {path} cannot be used: {flaw}") from None


def connect(path: Path) -> sqlite3.Connection:
    """Raises SessionError."""
    with told(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as flaw:
            raise SessionError(f"the database {path} cannot be used: {flaw.strerror}") from None
        made = sqlite3.connect(path, PATIENCE_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            prepare(made, path)
        except BaseException:
            made.close()
            raise
        return made


def prepare(database: sqlite3.Connection, path: Path) -> None:
    """Make the tables if they are not there. Raises SessionError for a newer file."""
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")  # with the system at each commit, on the device with `sync`
    is_new = not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'parley_version'").fetchone()
    if is_new:
        database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
        database.execute("INSERT OR IGNORE INTO parley_version VALUES ('sessions', ?)", (VERSION,))
    (version,) = database.execute("SELECT version FROM parley_version WHERE part = 'sessions'").fetchone() or (VERSION,)
    if version > VERSION:
        raise SessionError(f"the database {path} is of a newer version ({version}; this is {VERSION})")


class SqliteLog:
    def __init__(self, path: Path, session_id: str, context: Context, lease: Lease) -> None:
        self._path = path
        self._session_id = session_id
        self._context = context
        self._lease: Lease | None = lease
        self._database = connect(path)
        with told(path):
            # Whoever we took it from may be in the middle of a write: after this, it is over.
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("COMMIT")

    def append(self, entry: Entry) -> None:
        with told(self._path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                self._insert(entry)
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def _insert(self, entry: Entry) -> None:
        """Raises SessionBusy, sqlite3.Error."""
        if self._lease is None or not self._lease.is_ours():
            raise SessionBusy(self._session_id, "whoever took it over")
        run, session_id = self._database.execute, self._session_id
        message, context = spell(entry.message).decode(), spell(entry.context).decode()
        row = (session_id, entry.seq, entry.kind, entry.at, message, context)
        added = run("INSERT INTO entries (session, seq, kind, at, message, context) VALUES (?, ?, ?, ?, ?, ?)", row)
        if found := words(said(entry.kind, entry.message)):
            run("INSERT INTO said (rowid, words) VALUES (?, ?)", (added.lastrowid, " ".join(found)))
        surroundings = (os.path.realpath(self._context.cwd), self._context.git_branch or None)
        run(
            "INSERT INTO sessions (id, cwd, git_branch, created, modified, turn) VALUES (?, ?, ?, ?, ?, 0) "
            "ON CONFLICT DO NOTHING",
            (session_id, *surroundings, entry.at, entry.at),
        )
        run(
            "UPDATE sessions SET modified = ?, turn = ?, size_bytes = size_bytes + ?, messages = messages + ?, "
            "first_prompt = coalesce(first_prompt, ?), title = coalesce(?, title) WHERE id = ?",
            (
                entry.at,
                time.time_ns(),
                len(message) + len(context),
                int(entry.kind in SAID),
                first_prompt(entry.kind, entry.message),
                entry.message.get("title") if entry.kind == "title" else None,
                session_id,
            ),
        )

    def sync(self) -> None:
        try:
            file = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # all of it has been moved into the database, which SQLite syncs itself
        try:
            os.fdatasync(file)
        except OSError as flaw:
            raise SessionError(f"the database {self._path} cannot be written: {flaw.strerror}") from None
        finally:
            os.close(file)

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return rows(self._path, self._session_id, after)

    def close(self) -> None:
        self._database.close()
        if self._lease is not None:
            self._lease.release()
            self._lease = None


class Sqlite:
    def __init__(self, path: Path, context: Context) -> None:
        self._path = path
        self._context = context

    def exists(self, session_id: str) -> bool:
        return self.info(session_id) is not None

    def is_held(self, session_id: str) -> bool:
        return is_held(Path(f"{self._path}.leases", plain(session_id)))

    def create(self, session_id: str) -> SqliteLog:
        return self._held(plain(session_id))

    def open(self, session_id: str, *, steal: bool = False) -> SqliteLog:
        self._check(session_id)
        return self._held(session_id, steal=steal)

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        self._check(session_id)
        return rows(self._path, session_id, after)

    def _held(self, session_id: str, *, steal: bool = False) -> SqliteLog:
        lease = self._lease(session_id, steal=steal)
        try:
            return SqliteLog(self._path, session_id, self._context, lease)
        except BaseException:
            lease.release()
            raise

    def _lease(self, session_id: str, *, steal: bool = False) -> Lease:
        return take(Path(f"{self._path}.leases", session_id), session_id, steal=steal)

    def _check(self, session_id: str) -> None:
        if not self.exists(session_id):
            raise UnknownSession(session_id)

    def newest(self) -> str | None:
        found = self.list(self._context.cwd, limit=1)
        return found[0].id if found else None

    def info(self, session_id: str) -> Info | None:
        found = self._query(INFO + "WHERE id = ?", session_id)
        return as_info(found[0]) if found else None

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        where = "" if project is None else "WHERE cwd = ? "
        given = () if project is None else (os.path.realpath(project),)
        order = "ORDER BY turn DESC LIMIT ? OFFSET ?"
        return [
            as_info(row) for row in self._query(INFO + where + order, *given, -1 if limit is None else limit, offset)
        ]

    def rename(self, session_id: str, title: str) -> None:
        self._check(session_id)
        self._query("UPDATE sessions SET title = ? WHERE id = ?", title, session_id)

    def tag(self, session_id: str, tag: str | None) -> None:
        self._check(session_id)
        self._query("UPDATE sessions SET tag = ? WHERE id = ?", tag or None, session_id)

    def delete(self, session_id: str) -> None:
        self._check(session_id)
        with self._lease(session_id), told(self._path), closing(connect(self._path)) as database:
            database.execute("BEGIN IMMEDIATE")
            forget(database, session_id)
            database.execute("COMMIT")

    def repair(self, session_id: str) -> Mended | None:
        self._check(session_id)
        return None  # SQLite sees to that itself

    def search(self, text: str, limit: int = 20) -> builtins.list[Hit]:
        wanted = words(text)
        if not wanted:
            return []
        found = self._query(
            "SELECT session, seq, kind, at, message FROM said JOIN entries ON entries.id = said.rowid "
            "WHERE said MATCH ? ORDER BY said.rowid DESC LIMIT ?",
            " ".join(f'"{word}"' for word in wanted),
            limit,
        )
        return [
            Hit(id=id, seq=seq, kind=kind, at=at, excerpt=excerpt(said(kind, msgspec.json.decode(message)), wanted))
            for id, seq, kind, at, message in found
        ]

    def path(self, session_id: str) -> str:
        return ""

    def _query(self, text: str, *given: str | int | None) -> builtins.list[tuple[Any, ...]]:
        if not self._path.exists():
            return []
        with told(self._path), closing(connect(self._path)) as database:
            return database.execute(text, given).fetchall()


def rows(path: Path, session_id: str, after: int) -> Iterator[Entry]:
    """Raises SessionError."""
    with told(path), closing(connect(path)) as database:
        for seq, kind, at, message, context in database.execute(ENTRIES, (session_id, after)):
            yield as_entry(seq, kind, at, message, context)


def forget(database: sqlite3.Connection, session_id: str) -> None:
    found = database.execute("SELECT id, kind, message FROM entries WHERE session = ?", (session_id,))
    # An index without a copy of the texts wants to hear again what it is to forget.
    indexed = ((id, words(said(kind, msgspec.json.decode(message)))) for id, kind, message in found)
    database.executemany(
        "INSERT INTO said (said, rowid, words) VALUES ('delete', ?, ?)",
        [(id, " ".join(heard)) for id, heard in indexed if heard],
    )
    database.execute("DELETE FROM entries WHERE session = ?", (session_id,))
    database.execute("DELETE FROM sessions WHERE id = ?", (session_id,))


def as_entry(seq: int, kind: str, at: str, message: str, context: str) -> Entry:
    """Raises SessionError."""
    try:
        spoken, about = msgspec.json.decode(message), msgspec.json.decode(context)
    except msgspec.DecodeError as flaw:
        raise SessionError(f"entry {seq} of the session cannot be read: {flaw}") from None
    return Entry(seq=seq, kind=kind, at=at, message=spoken, context=about)


def as_info(row: tuple[Any, ...]) -> Info:
    return Info(**dict(zip(Info.__struct_fields__, row, strict=True)))
