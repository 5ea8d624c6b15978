"""The store in a PostgreSQL database (`--store postgres://…`), for engines on several hosts.

See also: `postgres_log.py` for one session's log and its lease, `rows.py` for the checksums.
"""

from __future__ import annotations

import builtins
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Json
from parley.stores.base import AgentInfo, Entry, Info, RepairReport, SearchHit, StoreSetup, check_id, is_id
from parley.stores.files.entry_codec import EntryContext
from parley.stores.search_text import entry_text, make_excerpt, split_words
from parley.stores.sql.postgres_log import LOCK, PostgresAgentLog, PostgresLog, connect, entries, rows, translate_errors
from parley.stores.sql.rows import aside_key, find_damage, info_from_row, keys_below
from parley.stores.sql.store import SqlStore

if TYPE_CHECKING:
    import psycopg

VERSION = 2
SCHEMA = """
CREATE TABLE IF NOT EXISTS parley_version (part text PRIMARY KEY, version int NOT NULL);
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
CREATE TABLE IF NOT EXISTS parley_agents (
    session text NOT NULL, id text NOT NULL, meta text NOT NULL, PRIMARY KEY (session, id)
);
ALTER TABLE parley_entries ADD COLUMN IF NOT EXISTS checksum bigint;
INSERT INTO parley_version VALUES ('sessions', 2) ON CONFLICT (part) DO UPDATE SET version = excluded.version;
"""
INFO = """
SELECT id, cwd, title, first_prompt, created, modified, size_bytes, messages, tag, git_branch
FROM parley_sessions
"""
BELOW = 'session COLLATE "C" >= %s AND session COLLATE "C" < %s'


class PostgresStore(SqlStore[PostgresLog]):
    """All sessions in one database. Each operation opens its own connection."""

    def __init__(self, address: str, context: EntryContext) -> None:
        self._address = address
        super().__init__(context)
        self._is_prepared = False

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> PostgresStore:
        return cls(setup.place, setup.context)

    def is_held(self, session_id: str) -> bool:
        granted = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
        return bool(self._rows(f"{granted} AND (classid::bigint << 32) | objid::bigint = {LOCK}", session_id))

    def _entries(self, key: str, after: int) -> Iterator[Entry]:
        return entries(self._address, key, after)

    def _open_log(self, session_id: str, *, steal: bool = False) -> PostgresLog:
        self._connect_prepared().close()
        return PostgresLog(self._address, session_id, self._context, steal=steal)

    def info(self, session_id: str) -> Info | None:
        if not is_id(session_id):
            return None
        found = self._rows(INFO + "WHERE id = %s", session_id)
        return info_from_row(found[0]) if found else None

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        where = "" if project is None else "WHERE cwd = %s "
        params = () if project is None else (os.path.realpath(project),)
        order = "ORDER BY turn DESC LIMIT %s OFFSET %s"
        return [info_from_row(row) for row in self._rows(INFO + where + order, *params, limit, offset)]

    def rename(self, session_id: str, title: str) -> None:
        self.check_exists(session_id)
        self._run("UPDATE parley_sessions SET title = %s WHERE id = %s", title.replace("\0", ""), session_id)

    def tag(self, session_id: str, tag: str | None) -> None:
        self.check_exists(session_id)
        self._run(
            "UPDATE parley_sessions SET tag = %s WHERE id = %s", (tag or "").replace("\0", "") or None, session_id
        )

    def delete(self, session_id: str) -> None:
        self.check_exists(session_id)
        held = self._open_log(session_id)
        try:
            for table, column in (("entries", "session"), ("agents", "session"), ("sessions", "id")):
                self._run(f"DELETE FROM parley_{table} WHERE {column} = %s", session_id)
            self._run(f"DELETE FROM parley_entries WHERE {BELOW}", *keys_below(session_id))
        finally:
            held.close()

    def repair(self, session_id: str) -> RepairReport | None:
        self.check_exists(session_id)
        held = self._open_log(session_id)
        try:
            with self._connect_prepared() as database, translate_errors():
                found = find_damage(rows(database, session_id, -1))
            if found is None:
                return None
            aside = aside_key(session_id, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
            # The moved rows keep their content, but are no longer searchable.
            moved = self._rows(
                "WITH moved AS (UPDATE parley_entries SET session = %s, words = '{}' WHERE session = %s AND seq >= %s "
                "RETURNING length(message) + length(context) AS size) SELECT coalesce(sum(size), 0)::bigint FROM moved",
                *(aside, session_id, found.seq),
            )
            kept = (found.kept_bytes, found.kept_messages, session_id)
            self._run("UPDATE parley_sessions SET size_bytes = %s, messages = %s WHERE id = %s", *kept)
            location = f"the entries of {aside!r} in the database"
            return RepairReport(kept_bytes=found.kept_bytes, aside_bytes=moved[0][0], aside=location)
        finally:
            held.close()

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> PostgresAgentLog:
        if meta is not None:
            row = (session_id, check_id(agent_id), msgspec.json.encode(meta).decode())
            self._run("INSERT INTO parley_agents VALUES (%s, %s, %s)", *row)
        return PostgresAgentLog(self._address, session_id, agent_id, self._context)

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        found = self._rows("SELECT id, meta FROM parley_agents WHERE session = %s", session_id)
        return [AgentInfo(id=id, meta=msgspec.json.decode(meta)) for id, meta in found]

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        query_words = split_words(text)
        if not query_words:
            return []
        found = self._rows(
            "SELECT session, seq, kind, at, message FROM parley_entries WHERE words @> %s ORDER BY turn DESC LIMIT %s",
            query_words,
            limit,
        )
        return [
            SearchHit(
                id=id,
                seq=seq,
                kind=kind,
                at=at,
                excerpt=make_excerpt(entry_text(kind, msgspec.json.decode(message)), query_words),
            )
            for id, seq, kind, at, message in found
        ]

    def _rows(self, text: str, *params: object) -> builtins.list[tuple[Any, ...]]:
        with self._connect_prepared() as database, translate_errors():
            return database.execute(text, params).fetchall()

    def _run(self, text: str, *params: object) -> None:
        with self._connect_prepared() as database, translate_errors():
            database.execute(text, params)

    def _connect_prepared(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect, and create or migrate the tables on the first call. Raises SessionError."""
        database = connect(self._address)
        if not self._is_prepared:
            try:
                with translate_errors():
                    prepare(database)
            except BaseException:
                database.close()
                raise
            self._is_prepared = True
        return database


def prepare(database: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Create or migrate the tables. Raises SessionError for a newer schema, psycopg.Error."""
    has_tables = database.execute("SELECT to_regclass('parley_leases') IS NOT NULL").fetchone() == (True,)
    text = "SELECT version FROM parley_version WHERE part = 'sessions'"
    (version,) = (database.execute(text).fetchone() if has_tables else None) or (0,)
    if version > VERSION:
        raise SessionError(
            f"the database has schema version {version}; this program supports up to {VERSION}. Upgrade parley."
        )
    if version < VERSION:
        with database.transaction():
            # Creating the same table concurrently fails.
            database.execute("SELECT pg_advisory_xact_lock(hashtextextended('parley schema', 0))")
            database.execute(SCHEMA.encode())
