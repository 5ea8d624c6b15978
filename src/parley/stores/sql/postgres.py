"""The store in a PostgreSQL database (`--store postgres://…`), for engines on several hosts.

Each holder of a session gets a fencing number, and an entry is only accepted with the current one: after a steal, the
previous holder can no longer write, even if it has not noticed. The holder also has an advisory lock on the session and
its number, which the server releases when the connection ends: a number without a lock is stale. A broken connection
is reopened unless another process has taken the session.
"""

from __future__ import annotations

import builtins
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from parley._launched import launched_pid
from parley.errors import ClusterError, SessionBusy, SessionError, UsageError
from parley.protocol.base import Json
from parley.stores.base import TAKEN_OVER, Entry, StoreSetup
from parley.stores.files.entry_codec import EntryContext
from parley.stores.sql.numbered_log import (
    ADD,
    MESSAGES,
    Rows,
    SqlLog,
    Steps,
    create_tables,
    find_version,
    format_error,
    make_postgres_tables,
    run_steps,
    translate_params,
)
from parley.stores.sql.store import OF_SESSION, SAVE_SESSION, SESSIONS, Execute, SqlStore, SqlTranscript
from parley.version import how_to_install

if TYPE_CHECKING:
    import psycopg

VERSION = 4
WHERE = "the database"
"""For errors: an address may contain a password."""
MORE_TABLES = """
CREATE INDEX parley_messages_by_sequence ON parley_messages (sequence);
CREATE TABLE parley_words (sequence bigint PRIMARY KEY, words text[] NOT NULL);
CREATE INDEX parley_words_by_word ON parley_words USING gin (words);
CREATE TABLE parley_leases (
    session text PRIMARY KEY, fence bigint NOT NULL, holder text NOT NULL, since text NOT NULL
);
"""
LOCK = "hashtextextended('parley session ' || {session} || ' ' || {fence}, 0)"
TRY_LOCK = f"SELECT pg_try_advisory_lock({LOCK.format(session=':id', fence=':fence::bigint')})"
IS_HELD = f"""
SELECT 1 FROM parley_leases JOIN pg_locks ON locktype = 'advisory' AND granted AND objsubid = 1
    AND (classid::bigint << 32) | objid::bigint = {LOCK.format(session="session", fence="fence")}
WHERE session = :id
"""
TAKE = """
INSERT INTO parley_leases VALUES (:id, :fence, :holder, :since)
ON CONFLICT (session) DO UPDATE SET fence = excluded.fence, holder = excluded.holder, since = excluded.since
    WHERE parley_leases.fence = excluded.fence - 1
RETURNING fence
"""
HELD = "SELECT 1 FROM parley_leases WHERE session = :id AND (fence = :fence OR holder = :holder)"
APPEND = f"""
WITH held AS ({HELD} FOR SHARE),
added AS ({ADD.format(name="{name}", held="FROM held")}),
saved AS ({SAVE_SESSION.format(turn="sequence", source="FROM added WHERE :is_listed")}),
indexed AS (
    INSERT INTO parley_words SELECT sequence, :words::text[] FROM added WHERE :is_listed
)
SELECT sequence FROM added
"""
"""One statement, so that an entry takes one round trip."""
MATCH = """
SELECT session, data FROM parley_words JOIN parley_messages USING (sequence)
WHERE words @> :words AND session IN (SELECT id FROM parley_sessions) ORDER BY sequence DESC LIMIT :limit
"""
REMOVE_WORDS = f"DELETE FROM parley_words WHERE sequence IN (SELECT sequence FROM parley_messages {OF_SESSION})"
CONNECT_SECONDS = 10
STATEMENT_SECONDS = 30


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

    def execute(self, text: str, params: Json, /) -> Rows:
        """Raises psycopg.Error."""
        cursor = self.raw.execute(translate_params(text), params)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        self.raw.close()


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate psycopg.Error to SessionError."""
    import psycopg

    try:
        yield
    except psycopg.Error as exc:
        raise SessionError(f"cannot use the database: {format_error(exc)}") from None


class PostgresTranscript(SqlTranscript):
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

    def _execute(self, text: str, **params: object) -> Rows:
        return self._database.execute(text, {"id": self._session_id, **params})

    def _acquire(self, *, steal: bool) -> None:
        """Hold the session. Raises SessionBusy, psycopg.Error."""
        fence, holder = self._find_lease()
        if not steal and not self._try_lock(fence):
            raise SessionBusy(self._session_id, holder)
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        taken = {"fence": fence + 1, "holder": holder_signature(), "since": since}
        # From here on the previous holder cannot write. Of several processes at the same time, one gets the lock.
        if not self._try_lock(fence + 1) or not self._execute(TAKE, **taken):
            raise SessionBusy(self._session_id, self._find_lease()[1])
        self._fence = fence + 1

    def _find_lease(self) -> tuple[int, str]:
        """The last fencing number, and who has it."""
        found = self._execute("SELECT fence, holder || ' since ' || since FROM parley_leases WHERE session = :id")
        return found[0] if found else (0, "another process")

    def _try_lock(self, fence: int) -> bool:
        return self._execute(TRY_LOCK, fence=fence) == [(True,)]

    def _row(self, entry: Entry, size_bytes: int) -> Json:
        row = super()._row(entry, size_bytes)
        return {**row, "words": sorted(set(row["words"])), "is_listed": not self._agent_id, **self._lease()}

    def _lease(self) -> Json:
        return {"fence": self._fence, "holder": holder_signature() if self._agent_id else None}

    def append(self, *entries: Entry) -> None:
        import psycopg

        if self._is_closed:
            raise SessionBusy(self._session_id, TAKEN_OVER)
        with translate_errors():
            try:
                super().append(*entries)
            except psycopg.OperationalError:
                # The server may have stored them before the connection broke. Then it says so.
                self._reconnect()
                super().append(*entries)

    def _run(self, steps: Steps[int], *, is_single: bool) -> int:
        try:
            with nullcontext() if is_single else self._database.raw.transaction():
                return run_steps(steps, self._database.execute)
        except ClusterError:
            if not self._execute(HELD, **self._lease()):
                raise SessionBusy(self._session_id, TAKEN_OVER) from None
            raise

    def _reconnect(self) -> None:
        """Raises SessionBusy, SessionError, psycopg.Error."""
        self._database.close()
        self._database = PostgresConnection(self._address)
        if self._agent_id:
            return
        fence, holder = self._find_lease()
        if fence != self._fence or not self._try_lock(fence):
            raise SessionBusy(self._session_id, holder)

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
            self._execute("SELECT pg_advisory_unlock_all()")
        self._database.close()


def holder_signature() -> str:
    return f"process {launched_pid()} on {os.uname().nodename}"


class PostgresStore(SqlStore):
    """All sessions in one database. Each operation opens its own connection."""

    collation = ' COLLATE "C"'

    def __init__(self, address: str, context: EntryContext) -> None:
        super().__init__(context)
        self.address = address
        self.log = SqlLog("parley", WHERE, add=APPEND)
        self._is_prepared = False

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> PostgresStore:
        return cls(setup.place, setup.context)

    @contextmanager
    def _connect(self) -> Iterator[PostgresConnection]:
        database = PostgresConnection(self.address)
        try:
            with translate_errors():
                self._prepare(database)
                yield database
        finally:
            database.close()

    def _prepare(self, database: PostgresConnection) -> None:
        """Create the tables if there are none. Raises SessionError for another version, psycopg.Error."""
        if not self._is_prepared and not run_steps(find_version("sessions", VERSION, WHERE), database.execute):
            tables = make_postgres_tables("parley", MESSAGES) + SESSIONS + MORE_TABLES
            with database.raw.transaction():
                run_steps(create_tables("sessions", VERSION, tables, WHERE), database.execute)
        self._is_prepared = True

    @contextmanager
    def connect(self) -> Iterator[Execute]:
        with self._connect() as database:
            yield database.execute

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        with self._connect() as database, database.raw.transaction():
            yield database.execute

    def is_held(self, session_id: str) -> bool:
        return bool(self.fetch(IS_HELD, id=session_id))

    def _open(self, session_id: str, agent_id: str = "", *, steal: bool = False) -> PostgresTranscript:
        with nullcontext() if self._is_prepared else self._connect():
            return PostgresTranscript(self, session_id, agent_id, steal=steal)

    def _match(self, query_words: builtins.list[str], limit: int) -> Rows:
        return self.fetch(MATCH, words=query_words, limit=limit)

    def _remove_from_index(self, execute: Execute, session: Json) -> None:
        execute(REMOVE_WORDS, session)
