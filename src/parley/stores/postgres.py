"""Sessions in a PostgreSQL database (`--store postgres://…`), for engines on many hosts."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from parley.errors import SessionError, UnknownSession
from parley.stores.base import PLAIN_ID, Entry, Hit, Info, Mended, plain
from parley.stores.line import Context
from parley.stores.postgres_log import LOCK, PostgresLog, connect, rows, told
from parley.stores.words import excerpt, said, words

if TYPE_CHECKING:
    import psycopg

VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS parley_version (part text PRIMARY KEY, version int NOT NULL);
INSERT INTO parley_version VALUES ('sessions', 1) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS parley_sessions (
    id text PRIMARY KEY, cwd text NOT NULL, git_branch text, title text, tag text, first_prompt text,
    created text NOT NULL, modified text NOT NULL, turn bigint NOT NULL,
    size_bytes bigint NOT NULL DEFAULT 0, messages bigint NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS parley_sessions_by_project ON parley_sessions (cwd, turn);
CREATE SEQUENCE IF NOT EXISTS parley_turns;
CREATE TABLE IF NOT EXISTS parley_entries (
    session text NOT NULL, seq bigint NOT NULL, kind text NOT NULL, at text NOT NULL,
    message text NOT NULL, context text NOT NULL, words text[] NOT NULL, turn bigint NOT NULL,
    PRIMARY KEY (session, seq)
);
CREATE INDEX IF NOT EXISTS parley_entries_by_word ON parley_entries USING gin (words);
CREATE TABLE IF NOT EXISTS parley_leases (
    session text PRIMARY KEY, fence bigint NOT NULL, backend int NOT NULL, holder text NOT NULL, since text NOT NULL
);
"""
INFO = """
SELECT id, cwd, title, first_prompt, created, modified, size_bytes, messages, tag, git_branch
FROM parley_sessions
"""


class Postgres:
    def __init__(self, address: str, context: Context) -> None:
        self._address = address
        self._context = context
        self._is_prepared = False

    def exists(self, session_id: str) -> bool:
        return self.info(session_id) is not None

    def is_held(self, session_id: str) -> bool:
        granted = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
        return bool(self._rows(f"{granted} AND (classid::bigint << 32) | objid::bigint = {LOCK}", session_id))

    def create(self, session_id: str) -> PostgresLog:
        return self._held(plain(session_id))

    def open(self, session_id: str, *, steal: bool = False) -> PostgresLog:
        self._check(session_id)
        return self._held(session_id, steal=steal)

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        self._check(session_id)
        return rows(self._address, session_id, after)

    def _held(self, session_id: str, *, steal: bool = False) -> PostgresLog:
        self._prepared().close()
        return PostgresLog(self._address, session_id, self._context, steal=steal)

    def _check(self, session_id: str) -> None:
        if not self.exists(session_id):
            raise UnknownSession(session_id)

    def newest(self) -> str | None:
        found = self.list(self._context.cwd, limit=1)
        return found[0].id if found else None

    def info(self, session_id: str) -> Info | None:
        if not PLAIN_ID.fullmatch(session_id):
            return None
        found = self._rows(INFO + "WHERE id = %s", session_id)
        return as_info(found[0]) if found else None

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        where = "" if project is None else "WHERE cwd = %s "
        given = () if project is None else (os.path.realpath(project),)
        order = "ORDER BY turn DESC LIMIT %s OFFSET %s"
        return [as_info(row) for row in self._rows(INFO + where + order, *given, limit, offset)]

    def rename(self, session_id: str, title: str) -> None:
        self._check(session_id)
        self._run("UPDATE parley_sessions SET title = %s WHERE id = %s", title.replace("\0", ""), session_id)

    def tag(self, session_id: str, tag: str | None) -> None:
        self._check(session_id)
        self._run(
            "UPDATE parley_sessions SET tag = %s WHERE id = %s", (tag or "").replace("\0", "") or None, session_id
        )

    def delete(self, session_id: str) -> None:
        self._check(session_id)
        held = self._held(session_id)
        try:
            for table, column in (("entries", "session"), ("sessions", "id")):
                self._run(f"DELETE FROM parley_{table} WHERE {column} = %s", session_id)
        finally:
            held.close()

    def repair(self, session_id: str) -> Mended | None:
        self._check(session_id)
        return None  # the server sees to that itself

    def search(self, text: str, limit: int = 20) -> builtins.list[Hit]:
        wanted = words(text)
        if not wanted:
            return []
        found = self._rows(
            "SELECT session, seq, kind, at, message FROM parley_entries WHERE words @> %s ORDER BY turn DESC LIMIT %s",
            wanted,
            limit,
        )
        return [
            Hit(id=id, seq=seq, kind=kind, at=at, excerpt=excerpt(said(kind, msgspec.json.decode(message)), wanted))
            for id, seq, kind, at, message in found
        ]

    def path(self, session_id: str) -> str:
        return ""

    def _rows(self, text: str, *given: object) -> builtins.list[tuple[Any, ...]]:
        with self._prepared() as database, told():
            return database.execute(text, given).fetchall()

    def _run(self, text: str, *given: object) -> None:
        with self._prepared() as database, told():
            database.execute(text, given)

    def _prepared(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection to a database that has our tables. Raises SessionError."""
        database = connect(self._address)
        if not self._is_prepared:
            try:
                with told():
                    prepare(database)
            except BaseException:
                database.close()
                raise
            self._is_prepared = True
        return database


def prepare(database: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Make the tables if they are not there. Raises SessionError for a newer database, psycopg.Error."""
    found = database.execute("SELECT to_regclass('parley_leases') IS NOT NULL").fetchone()
    if found == (False,):
        with database.transaction():
            # Two who make the same table at once get in each other's way.
            database.execute("SELECT pg_advisory_xact_lock(hashtextextended('parley schema', 0))")
            database.execute(SCHEMA.encode())
    (version,) = database.execute("SELECT version FROM parley_version WHERE part = 'sessions'").fetchone() or (VERSION,)
    if version > VERSION:
        raise SessionError(f"the database is of a newer version ({version}; this is {VERSION})")


def as_info(row: tuple[Any, ...]) -> Info:
    return Info(**dict(zip(Info.__struct_fields__, row, strict=True)))
