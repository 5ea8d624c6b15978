"""All sessions in one SQLite file (`--db FILE`), with an index of all words that were said.

The file is in WAL mode, so that readers and the writers of other sessions do not wait for
each other longer than for one entry. Who holds a session stands in `FILE.leases/<session>`.
Each entry has a checksum, as SQLite does not look whether a page is what it wrote.
"""

from __future__ import annotations

import builtins
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import UnknownSession
from parley.protocol.base import Json
from parley.stores.base import AgentInfo, Entry, Info, RepairReport, SearchHit, StoreSetup, check_id
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.lease import Lease, acquire, is_leased
from parley.stores.files.sidechain import BorrowedLease
from parley.stores.search_text import (
    build_queries,
    entry_text,
    find_passage,
    make_excerpt,
    significant_words,
    split_words,
)
from parley.stores.sql.rows import agent_key, aside_key, find_damage, keys_below
from parley.stores.sql.sqlite_file import connect, translate_errors
from parley.stores.sql.sqlite_log import ENTRIES, SqliteAgentLog, SqliteLog, entries, open_for_bytes

CONVERSATION = """
CREATE TABLE IF NOT EXISTS conversation (one INTEGER PRIMARY KEY CHECK (one = 1), session TEXT NOT NULL);
"""
INFO = "SELECT id, cwd, title, first_prompt, created, modified, size_bytes, messages, tag, git_branch FROM sessions "
FOUND = (
    "SELECT session, seq, kind, at, message FROM said JOIN entries ON entries.id = said.rowid "
    "WHERE said MATCH ? AND session IN (SELECT id FROM sessions) "
)
SUMMARY = '%"isCompactSummary":true%'
"""In the context of what stands for what was said, and was not said itself."""
RECALLED = '%"recalled":true%'
"""In the result of a call that looked up what was said: a repetition. What people write has its quotes escaped."""
SIZE = "coalesce(sum(length(message) + length(context)), 0)"


class SqliteStore:
    def __init__(self, path: Path, context: EntryContext) -> None:
        self._path = path
        self._context = context

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> SqliteStore:
        return cls(setup.path, setup.context)

    def exists(self, session_id: str) -> bool:
        return self.info(session_id) is not None

    def is_held(self, session_id: str) -> bool:
        return is_leased(Path(f"{self._path}.leases", check_id(session_id)))

    def create(self, session_id: str) -> SqliteLog:
        return self._open_log(check_id(session_id))

    def open(self, session_id: str, *, steal: bool = False) -> SqliteLog:
        self._check(session_id)
        return self._open_log(session_id, steal=steal)

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        self._check(session_id)
        return entries(self._path, session_id, after)

    def _open_log(self, session_id: str, *, steal: bool = False) -> SqliteLog:
        lease = self._lease(session_id, steal=steal)
        try:
            return SqliteLog(self._path, session_id, self._context, lease)
        except BaseException:
            lease.release()
            raise

    def _lease(self, session_id: str, *, steal: bool = False) -> Lease:
        return acquire(Path(f"{self._path}.leases", session_id), session_id, steal=steal)

    def _check(self, session_id: str) -> None:
        if not self.exists(session_id):
            raise UnknownSession(session_id)

    def newest(self) -> str | None:
        found = self.list(self._context.cwd, limit=1)
        return found[0].id if found else None

    def conversation(self, new_id: Callable[[], str]) -> str:
        """The session that is meant where none is named: the newest there is, or a new one, and the same ever after.

        Raises SessionError.
        """
        with translate_errors(self._path), closing(connect(self._path)) as database:
            run = database.execute
            if not run("SELECT 1 FROM sqlite_master WHERE name = 'conversation'").fetchone():
                newest = run("SELECT id FROM sessions ORDER BY turn DESC LIMIT 1").fetchone() or (new_id(),)
                database.executescript(f"BEGIN IMMEDIATE; {CONVERSATION}")
                run("INSERT OR IGNORE INTO conversation VALUES (1, ?)", newest)  # somebody else may have been faster
                run("COMMIT")
            return str(run("SELECT session FROM conversation").fetchone()[0])

    def info(self, session_id: str) -> Info | None:
        found = self._query(INFO + "WHERE id = ?", session_id)
        return info_from_row(found[0]) if found else None

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        where = "" if project is None else "WHERE cwd = ? "
        given = () if project is None else (os.path.realpath(project),)
        order = "ORDER BY turn DESC LIMIT ? OFFSET ?"
        return [
            info_from_row(row)
            for row in self._query(INFO + where + order, *given, -1 if limit is None else limit, offset)
        ]

    def rename(self, session_id: str, title: str) -> None:
        self._check(session_id)
        self._query("UPDATE sessions SET title = ? WHERE id = ?", title, session_id)

    def tag(self, session_id: str, tag: str | None) -> None:
        self._check(session_id)
        self._query("UPDATE sessions SET tag = ? WHERE id = ?", tag or None, session_id)

    def delete(self, session_id: str) -> None:
        self._check(session_id)
        with self._lease(session_id), self._transaction() as database:
            delete_rows(database, session_id)

    def repair(self, session_id: str) -> RepairReport | None:
        self._check(session_id)
        with self._lease(session_id):
            with translate_errors(self._path), closing(open_for_bytes(self._path)) as database:
                found = find_damage(database.execute(ENTRIES, (session_id, -1)))
            if found is None:
                return None
            aside = aside_key(session_id, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
            with self._transaction() as database:
                # The rows get another name. To take them out of the index we would have to know what they said.
                behind = (session_id, found.seq)
                (size,) = database.execute(
                    f"SELECT {SIZE} FROM entries WHERE session = ? AND seq >= ?", behind
                ).fetchone()
                database.execute("UPDATE entries SET session = ? WHERE session = ? AND seq >= ?", (aside, *behind))
                kept = (found.kept_bytes, found.kept_messages, session_id)
                database.execute("UPDATE sessions SET size_bytes = ?, messages = ? WHERE id = ?", kept)
            return RepairReport(
                kept_bytes=found.kept_bytes, aside_bytes=size, aside=f"the entries of {aside!r} in {self._path}"
            )

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> SqliteAgentLog:
        if meta is not None:
            with self._transaction() as database:
                row = (session_id, check_id(agent_id), msgspec.json.encode(meta).decode())
                database.execute("INSERT INTO agents VALUES (?, ?, ?)", row)
        return SqliteAgentLog(self._path, agent_key(session_id, agent_id), self._context, BorrowedLease())

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        found = self._query("SELECT id, meta FROM agents WHERE session = ? ORDER BY rowid", session_id)
        return [AgentInfo(id=id, meta=msgspec.json.decode(meta)) for id, meta in found]

    def read_agent(self, session_id: str, agent_id: str) -> Iterator[Entry]:
        return entries(self._path, agent_key(session_id, check_id(agent_id)), -1)

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        wanted = split_words(text)
        if not wanted:
            return []
        query = " ".join(f'"{word}"' for word in wanted)
        found = self._query(FOUND + "ORDER BY said.rowid DESC LIMIT ?", query, limit)
        return find_hits(found, wanted, lambda there: there >= set(wanted), make_excerpt)

    def ranked(self, text: str, limit: int, session_id: str | None = None) -> builtins.list[SearchHit]:
        wanted = significant_words(text)
        where = FOUND + "AND (? IS NULL OR session = ?) AND context NOT LIKE ? AND message NOT LIKE ? "
        found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for query in build_queries(wanted):
            if len(found) >= limit:
                break  # what has only some of the words may be half of all that was ever said
            given = (query, session_id, session_id, SUMMARY, RECALLED, limit)
            for row in self._query(where + "ORDER BY said.rank LIMIT ?", *given):
                found.setdefault(row[:2], row)
        return find_hits([*found.values()][:limit], wanted, lambda there: not there.isdisjoint(wanted), find_passage)

    def path(self, session_id: str) -> str:
        return ""

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction. Raises SessionError."""
        with translate_errors(self._path), closing(connect(self._path)) as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    def _query(self, text: str, *given: str | int | None) -> builtins.list[tuple[Any, ...]]:
        if not self._path.exists():
            return []
        with translate_errors(self._path), closing(connect(self._path)) as database:
            return database.execute(text, given).fetchall()


def delete_rows(database: sqlite3.Connection, session_id: str) -> None:
    found = database.execute("SELECT id, kind, message FROM entries WHERE session = ?", (session_id,))
    # An index without a copy of the texts wants to hear again what it is to forget.
    indexed = ((id, split_words(row_text(kind, message))) for id, kind, message in found)
    database.executemany(
        "INSERT INTO said (said, rowid, words) VALUES ('delete', ?, ?)",
        [(id, " ".join(once)) for id, once in indexed if once],
    )
    database.execute("DELETE FROM entries WHERE session = ?", (session_id,))
    database.execute("DELETE FROM entries WHERE session >= ? AND session < ?", keys_below(session_id))
    database.execute("DELETE FROM agents WHERE session = ?", (session_id,))
    database.execute("DELETE FROM sessions WHERE id = ?", (session_id,))


def find_hits(
    found: Iterable[tuple[Any, ...]],
    wanted: list[str],
    fits: Callable[[set[str]], bool],
    part: Callable[[str, list[str]], str],
) -> list[SearchHit]:
    """The finds among rows: the index may remember what damaged entries once said."""
    told = ((id, seq, kind, at, row_text(kind, message)) for id, seq, kind, at, message in found)
    return [
        SearchHit(id=id, seq=seq, kind=kind, at=at, excerpt=part(text, wanted))
        for id, seq, kind, at, text in told
        if fits(set(split_words(text)))
    ]


def row_text(kind: str, message: str) -> str:
    """What was said in an entry; "" if that cannot be read."""
    try:
        return entry_text(kind, msgspec.json.decode(message))
    except (msgspec.DecodeError, AttributeError, RecursionError):
        return ""


def info_from_row(row: tuple[Any, ...]) -> Info:
    return Info(**dict(zip(Info.__struct_fields__, row, strict=True)))
