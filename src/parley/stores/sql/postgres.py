"""The store in a PostgreSQL database (`--store postgres://…`), for engines on several hosts.

The lease of a session is an advisory lock, which the server releases when the holder's connection ends. Each holder
also gets a fencing number, and an entry is only accepted with the current one: after a steal, the previous holder can
no longer write, even if it has not noticed. A broken connection is reopened unless another process has taken the
session.
"""

from __future__ import annotations

import builtins
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from parley._launched import launched_pid
from parley.errors import SessionBusy, SessionError, UsageError
from parley.protocol.base import Json
from parley.stores.base import TAKEN_OVER, StoreSetup
from parley.stores.files.entry_codec import EntryContext
from parley.stores.sql.store import ON_CONFLICT, Database, SqlLog, SqlStore
from parley.version import how_to_install

if TYPE_CHECKING:
    import psycopg

VERSION = 3
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS parley_version (part text PRIMARY KEY, version int NOT NULL);
CREATE TABLE parley_sessions (
    id text PRIMARY KEY, cwd text NOT NULL, git_branch text, title text, tag text, first_prompt text,
    created text NOT NULL, modified text NOT NULL, turn bigint NOT NULL,
    size_bytes bigint NOT NULL, messages bigint NOT NULL
);
CREATE INDEX parley_sessions_by_project ON parley_sessions (cwd, turn);
CREATE SEQUENCE parley_turns;
CREATE TABLE parley_entries (
    session text NOT NULL, seq bigint NOT NULL, kind text NOT NULL, at text NOT NULL,
    message text NOT NULL, context text NOT NULL, checksum bigint NOT NULL, words text[] NOT NULL, turn bigint NOT NULL,
    PRIMARY KEY (session, seq)
);
CREATE INDEX parley_entries_by_word ON parley_entries USING gin (words);
CREATE TABLE parley_leases (
    session text PRIMARY KEY, fence bigint NOT NULL, backend int NOT NULL, holder text NOT NULL, since text NOT NULL
);
CREATE TABLE parley_agents (session text NOT NULL, id text NOT NULL, meta text NOT NULL, PRIMARY KEY (session, id));
INSERT INTO parley_version VALUES ('sessions', {VERSION});
"""
FIND_VERSION = "SELECT version FROM parley_version WHERE part = 'sessions'"
LOCK = "hashtextextended('parley session ' || :id, 0)"
IS_LOCK = f"locktype = 'advisory' AND granted AND objsubid = 1 AND (classid::bigint << 32) | objid::bigint = {LOCK}"
TAKE = """
INSERT INTO parley_leases VALUES (:id, 1, pg_backend_pid(), :holder, :since)
ON CONFLICT (session) DO UPDATE SET fence = parley_leases.fence + 1, backend = excluded.backend,
    holder = excluded.holder, since = excluded.since
RETURNING fence
"""
APPEND = f"""
WITH held AS (
    SELECT 1 FROM parley_leases WHERE session = :id AND (fence = :fence OR holder = :holder) FOR SHARE
),
turn AS (SELECT nextval('parley_turns') AS number FROM held),
added AS (
    INSERT INTO parley_entries (session, seq, kind, at, message, context, checksum, words, turn)
    SELECT :key, :seq, :kind, :at, :message, :context, :checksum, :words, number
    FROM turn ON CONFLICT DO NOTHING RETURNING turn
),
known AS (
    INSERT INTO parley_sessions AS known
        (id, cwd, git_branch, title, first_prompt, created, modified, turn, size_bytes, messages)
    SELECT :id, :cwd, :branch, :title, :prompt, :at, :at, turn, :size, :said FROM added WHERE :is_listed
    {ON_CONFLICT}
)
SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM added)
"""
"""One statement, so that an entry takes one round trip."""
MATCH = """
SELECT session, seq, kind, at, message FROM parley_entries
WHERE words @> :words AND session IN (SELECT id FROM parley_sessions) ORDER BY turn DESC LIMIT :limit
"""
CONNECT_SECONDS = 10
STATEMENT_SECONDS = 30
STEAL_SECONDS = 5


class PostgresConnection:
    """A connection that takes statements with named parameters such as `:id`."""

    def __init__(self, address: str) -> None:
        """Raises SessionError, or UsageError if the driver is not installed."""
        try:
            import psycopg
        except ImportError:
            raise UsageError(f"the PostgreSQL store needs an extra: {how_to_install('postgres')}") from None
        try:
            self.raw: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(
                address,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                application_name="parley",
                # Time out statements, and connections whose network has failed silently.
                options=f"-c statement_timeout={STATEMENT_SECONDS}s",
                keepalives_idle=STATEMENT_SECONDS,
                tcp_user_timeout=STATEMENT_SECONDS * 1000,
            )
        except psycopg.Error as exc:
            raise SessionError(f"cannot connect to the database: {format_error(exc)}") from None

    def execute(self, text: str, params: Mapping[str, Any] | None = None, /) -> psycopg.Cursor[tuple[Any, ...]]:
        """Raises psycopg.Error."""
        return self.raw.execute(translate_params(text), params)

    def close(self) -> None:
        self.raw.close()


@cache
def translate_params(text: str) -> bytes:
    """A statement with the parameters of psycopg."""
    return re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", text).encode()


def format_error(error: Exception) -> str:
    return " ".join(str(error).split())


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate psycopg.Error to SessionError."""
    import psycopg

    try:
        yield
    except psycopg.Error as exc:
        raise SessionError(f"cannot use the database: {format_error(exc)}") from None


class PostgresLog(SqlLog):
    """The log of a session, whose connection holds the lease, or of a subagent. The session's lease covers that."""

    def __init__(self, store: PostgresStore, session_id: str, agent_id: str, *, steal: bool) -> None:
        super().__init__(store, session_id, agent_id)
        self._address = store.address
        self._database = PostgresConnection(store.address)
        self._fence = 0
        self._is_closed = False
        if agent_id:
            return
        try:
            with translate_errors():
                self._acquire(steal=steal)
        except BaseException:
            self._database.close()
            raise

    def _execute(self, text: str, **params: object) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._database.execute(text, {"id": self._session_id, **params})

    def _acquire(self, *, steal: bool) -> None:
        """Hold the session. Raises SessionBusy, psycopg.Error."""
        if not self._try_lock():
            holder = self._holder()
            if not steal:
                raise SessionBusy(self._session_id, holder)
            self._fence = self._write_holder()  # from here on the previous holder cannot write
            self._wait_for_lock(holder)
        self._fence = self._write_holder()

    def _try_lock(self) -> bool:
        return self._execute(f"SELECT pg_try_advisory_lock({LOCK})").fetchone() == (True,)

    def _wait_for_lock(self, holder: str) -> None:
        """Terminate the holder's connection and take the lock. Raises SessionBusy, psycopg.Error."""
        import psycopg

        self._execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
            f"WHERE pid <> pg_backend_pid() AND {IS_LOCK}"
        )
        self._database.execute(f"SET statement_timeout = '{STEAL_SECONDS}s'")
        try:
            self._execute(f"SELECT pg_advisory_lock({LOCK})")
        except psycopg.errors.QueryCanceled:
            raise SessionBusy(self._session_id, f"{holder}, whose connection could not be terminated") from None
        self._database.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")

    def _write_holder(self) -> int:
        """Record us as the holder and return our fencing number."""
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        found = self._execute(TAKE, holder=holder_signature(), since=since).fetchone()
        assert found is not None
        return int(found[0])

    def _holder(self) -> str:
        found = self._execute("SELECT holder || ' since ' || since FROM parley_leases WHERE session = :id").fetchone()
        return str(found[0]) if found else "another process"

    def _insert(self, rows: builtins.list[Json]) -> None:
        import psycopg

        if self._is_closed:
            raise SessionBusy(self._session_id, TAKEN_OVER)
        with translate_errors():
            try:
                self._insert_once(rows)
            except psycopg.OperationalError:
                # The server may have stored them before the connection broke. The key prevents duplicates.
                self._reconnect()
                self._insert_once(rows, again=True)

    def _insert_once(self, rows: builtins.list[Json], *, again: bool = False) -> None:
        """Raises SessionBusy, SessionError, psycopg.Error."""
        holder = holder_signature() if self._agent_id else None
        with self._database.raw.transaction() if len(rows) > 1 else nullcontext():
            for row in rows:
                words = sorted(set(row["words"]))
                owner = {"fence": self._fence, "holder": holder, "is_listed": not self._agent_id, "words": words}
                held, added = self._database.execute(APPEND, {**row, **owner}).fetchone() or (0, 0)
                if not held:
                    raise SessionBusy(self._session_id, TAKEN_OVER)
                if not added and not again:
                    raise SessionError(f"entry {row['seq']} of session {self._session_id} already exists")

    def _reconnect(self) -> None:
        """Raises SessionBusy, SessionError, psycopg.Error."""
        self._database.close()
        self._database = PostgresConnection(self._address)
        if self._agent_id:
            return
        found = self._execute("SELECT fence FROM parley_leases WHERE session = :id").fetchone()
        if found != (self._fence,) or not self._try_lock():
            raise SessionBusy(self._session_id, self._holder())
        self._fence = self._write_holder()

    def sync(self) -> None:
        """Nothing to do: the server has synced each commit to disk."""

    async def wait_synced(self) -> None:
        """The same."""

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        import psycopg

        with suppress(psycopg.Error):
            # The server would do so itself, but only some time after `close` returns.
            self._database.execute("SELECT pg_advisory_unlock_all()")
        self._database.close()


def holder_signature() -> str:
    return f"process {launched_pid()} on {os.uname().nodename}"


class PostgresStore(SqlStore):
    """All sessions in one database. Each operation opens its own connection."""

    location = "the database"
    collation = ' COLLATE "C"'

    def __init__(self, address: str, context: EntryContext) -> None:
        super().__init__(context)
        self.address = address
        self._is_prepared = False

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> PostgresStore:
        return cls(setup.place, setup.context)

    @contextmanager
    def connect(self) -> Iterator[PostgresConnection]:
        database = PostgresConnection(self.address)
        try:
            with translate_errors():
                if not self._is_prepared:
                    prepare(database)
                    self._is_prepared = True
                yield database
        finally:
            database.close()

    @contextmanager
    def connect_for_bytes(self) -> Iterator[PostgresConnection]:
        from psycopg.adapt import Loader

        class BytesLoader(Loader):
            def load(self, data: bytes | bytearray | memoryview) -> bytes:
                return bytes(data)

        with self.connect() as database:
            database.raw.adapters.register_loader("text", BytesLoader)
            yield database

    @contextmanager
    def transaction(self) -> Iterator[PostgresConnection]:
        with self.connect() as database, database.raw.transaction():
            yield database

    def is_held(self, session_id: str) -> bool:
        return bool(self._rows(f"SELECT 1 FROM pg_locks WHERE {IS_LOCK}", id=session_id))

    def _open_log(self, session_id: str, agent_id: str = "", *, steal: bool = False) -> PostgresLog:
        if not self._is_prepared:
            with self.connect():
                pass
        return PostgresLog(self, session_id, agent_id, steal=steal)

    def _match(self, query_words: builtins.list[str], limit: int) -> builtins.list[tuple[Any, ...]]:
        return self._rows(MATCH, words=query_words, limit=limit)

    def _remove_from_index(self, database: Database, session_id: str) -> None:
        """Nothing to do: the words are in the rows."""


def prepare(database: PostgresConnection) -> None:
    """Create the tables if there are none. Raises SessionError for another version, psycopg.Error."""
    if has_tables(database):
        return
    with database.raw.transaction():
        # Creating the same table concurrently fails.
        database.execute("SELECT pg_advisory_xact_lock(hashtextextended('parley schema', 0))")
        if not has_tables(database):
            database.raw.execute(SCHEMA.encode())


def has_tables(database: PostgresConnection) -> bool:
    """Raises SessionError for another version, psycopg.Error."""
    has_versions = database.execute("SELECT to_regclass('parley_version') IS NOT NULL").fetchone() == (True,)
    found = database.execute(FIND_VERSION).fetchone() if has_versions else None
    if found not in (None, (VERSION,)):
        raise SessionError(
            f"cannot use the database: it has schema version {found[0]} of sessions; this Parley reads only version "
            f"{VERSION}, and leaves the database unchanged"
        )
    return found is not None
