"""The store in one SQLite file (`--db FILE`), with a full-text index of all messages.

The file is in WAL mode, so readers and the writers of other sessions wait for each other for at most one entry.
`FILE.leases/<session>` names the process that holds a session. Each entry has a checksum, because SQLite does not
verify its pages.

See also: `sqlite_file.py` for the schema and connections, `sqlite_log.py` for one session's log.
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
from parley.stores.sql.rows import agent_key, aside_key, find_damage, info_from_row, keys_below
from parley.stores.sql.sqlite_file import connect, translate_errors
from parley.stores.sql.sqlite_log import ENTRIES, SqliteAgentLog, SqliteLog, entries, open_for_bytes
from parley.stores.sql.store import SqlStore

CONVERSATION = """
CREATE TABLE IF NOT EXISTS conversation (one INTEGER PRIMARY KEY CHECK (one = 1), session TEXT NOT NULL);
"""
INFO = "SELECT id, cwd, title, first_prompt, created, modified, size_bytes, messages, tag, git_branch FROM sessions "
FOUND = (
    "SELECT session, seq, kind, at, message FROM said JOIN entries ON entries.id = said.rowid "
    "WHERE said MATCH ? AND session IN (SELECT id FROM sessions) "
)
SUMMARY = '%"isCompactSummary":true%'
"""Matches the context of compact summaries, which repeat what was said."""
RECALLED = '%"recalled":true%'
"""Matches tool results of memory searches, which repeat what was said. In users' text the quotes are escaped."""
SIZE = "coalesce(sum(length(message) + length(context)), 0)"


class SqliteStore(SqlStore[SqliteLog]):
    def __init__(self, path: Path, context: EntryContext) -> None:
        self._path = path
        super().__init__(context)

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> SqliteStore:
        return cls(setup.path, setup.context)

    def is_held(self, session_id: str) -> bool:
        return is_leased(Path(f"{self._path}.leases", check_id(session_id)))

    def _entries(self, key: str, after: int) -> Iterator[Entry]:
        return entries(self._path, key, after)

    def _open_log(self, session_id: str, *, steal: bool = False) -> SqliteLog:
        lease = self._lease(session_id, steal=steal)
        try:
            return SqliteLog(self._path, session_id, self._context, lease)
        except BaseException:
            lease.release()
            raise

    def _lease(self, session_id: str, *, steal: bool = False) -> Lease:
        return acquire(Path(f"{self._path}.leases", session_id), session_id, steal=steal)

    def conversation(self, new_id: Callable[[], str]) -> str:
        """The file's default session, for runs that name none. The first call picks the newest, or a new id, for good.

        Raises SessionError.
        """
        with translate_errors(self._path), closing(connect(self._path)) as database:
            run = database.execute
            if not run("SELECT 1 FROM sqlite_master WHERE name = 'conversation'").fetchone():
                newest = run("SELECT id FROM sessions ORDER BY turn DESC LIMIT 1").fetchone() or (new_id(),)
                database.executescript(f"BEGIN IMMEDIATE; {CONVERSATION}")
                run("INSERT OR IGNORE INTO conversation VALUES (1, ?)", newest)  # another process may have been faster
                run("COMMIT")
            return str(run("SELECT session FROM conversation").fetchone()[0])

    def info(self, session_id: str) -> Info | None:
        found = self._query(INFO + "WHERE id = ?", session_id)
        return info_from_row(found[0]) if found else None

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        where = "" if project is None else "WHERE cwd = ? "
        params = () if project is None else (os.path.realpath(project),)
        order = "ORDER BY turn DESC LIMIT ? OFFSET ?"
        return [
            info_from_row(row)
            for row in self._query(INFO + where + order, *params, -1 if limit is None else limit, offset)
        ]

    def rename(self, session_id: str, title: str) -> None:
        self.check_exists(session_id)
        self._query("UPDATE sessions SET title = ? WHERE id = ?", title, session_id)

    def tag(self, session_id: str, tag: str | None) -> None:
        self.check_exists(session_id)
        self._query("UPDATE sessions SET tag = ? WHERE id = ?", tag or None, session_id)

    def delete(self, session_id: str) -> None:
        self.check_exists(session_id)
        with self._lease(session_id), self._transaction() as database:
            delete_rows(database, session_id)

    def repair(self, session_id: str) -> RepairReport | None:
        self.check_exists(session_id)
        with self._lease(session_id):
            with translate_errors(self._path), closing(open_for_bytes(self._path)) as database:
                found = find_damage(database.execute(ENTRIES, (session_id, -1)))
            if found is None:
                return None
            aside = aside_key(session_id, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
            with self._transaction() as database:
                # The rows get another key. They stay in the index, because removing them needs their original text.
                damaged = (session_id, found.seq)
                (size,) = database.execute(
                    f"SELECT {SIZE} FROM entries WHERE session = ? AND seq >= ?", damaged
                ).fetchone()
                database.execute("UPDATE entries SET session = ? WHERE session = ? AND seq >= ?", (aside, *damaged))
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

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        query_words = split_words(text)
        if not query_words:
            return []
        query = " ".join(f'"{word}"' for word in query_words)
        found = self._query(FOUND + "ORDER BY said.rowid DESC LIMIT ?", query, limit)
        return find_hits(found, query_words, lambda words: words >= set(query_words), make_excerpt)

    def ranked(self, text: str, limit: int, session_id: str | None = None) -> builtins.list[SearchHit]:
        query_words = significant_words(text)
        where = FOUND + "AND (? IS NULL OR session = ?) AND context NOT LIKE ? AND message NOT LIKE ? "
        found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for query in build_queries(query_words):
            if len(found) >= limit:
                break  # weaker queries may match most of the file
            params = (query, session_id, session_id, SUMMARY, RECALLED, limit)
            for row in self._query(where + "ORDER BY said.rank LIMIT ?", *params):
                found.setdefault(row[:2], row)
        return find_hits(
            [*found.values()][:limit],
            query_words,
            lambda found_words: not found_words.isdisjoint(query_words),
            find_passage,
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction. Raises SessionError."""
        with translate_errors(self._path), closing(connect(self._path)) as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    def _query(self, text: str, *params: str | int | None) -> builtins.list[tuple[Any, ...]]:
        if not self._path.exists():
            return []
        with translate_errors(self._path), closing(connect(self._path)) as database:
            return database.execute(text, params).fetchall()


def delete_rows(database: sqlite3.Connection, session_id: str) -> None:
    found = database.execute("SELECT id, kind, message FROM entries WHERE session = ?", (session_id,))
    # A contentless FTS index needs the text to delete a row.
    indexed = ((id, split_words(row_text(kind, message))) for id, kind, message in found)
    database.executemany(
        "INSERT INTO said (said, rowid, words) VALUES ('delete', ?, ?)",
        [(id, " ".join(words)) for id, words in indexed if words],
    )
    database.execute("DELETE FROM entries WHERE session = ?", (session_id,))
    database.execute("DELETE FROM entries WHERE session >= ? AND session < ?", keys_below(session_id))
    database.execute("DELETE FROM agents WHERE session = ?", (session_id,))
    database.execute("DELETE FROM sessions WHERE id = ?", (session_id,))


def find_hits(
    found: Iterable[tuple[Any, ...]],
    query_words: list[str],
    matches: Callable[[set[str]], bool],
    make_part: Callable[[str, list[str]], str],
) -> list[SearchHit]:
    """The hits among rows. They are checked again, because the index may still contain the old text of damaged rows."""
    texts = ((id, seq, kind, at, row_text(kind, message)) for id, seq, kind, at, message in found)
    return [
        SearchHit(id=id, seq=seq, kind=kind, at=at, excerpt=make_part(text, query_words))
        for id, seq, kind, at, text in texts
        if matches(set(split_words(text)))
    ]


def row_text(kind: str, message: str) -> str:
    """The searchable text of a row; "" if it cannot be decoded."""
    try:
        return entry_text(kind, msgspec.json.decode(message))
    except (msgspec.DecodeError, AttributeError, RecursionError):
        return ""
