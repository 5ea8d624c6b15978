"""The log of a session in PostgreSQL, and its lease.

The lease is an advisory lock, which the server releases when the holder's connection ends. Each holder also gets a
fencing number, and an entry is only accepted with the current one: after a steal, the previous holder can no longer
write, even if it has not noticed. A broken connection is reopened unless another process has taken the session.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from parley._launched import launched_pid
from parley.errors import SessionBusy, SessionError, UsageError
from parley.protocol.base import encode_json
from parley.stores.base import TAKEN_OVER, Entry
from parley.stores.files.entry_codec import EntryContext
from parley.stores.search_text import SAID, entry_text, first_prompt, split_words
from parley.stores.sql.rows import Row, RowChain, agent_key, next_checksum
from parley.version import how_to_install

if TYPE_CHECKING:
    import psycopg

COLUMNS = "SELECT seq, kind, at, message, context, checksum FROM parley_entries "
ENTRIES = COLUMNS + "WHERE session = %s AND seq > %s ORDER BY seq LIMIT %s"
LAST = "SELECT checksum FROM parley_entries WHERE session = %s AND seq <= %s ORDER BY seq DESC LIMIT 1"
HIGHEST = (1 << 63) - 1
LOCK = "hashtextextended('parley session ' || %s, 0)"
TAKE = """
INSERT INTO parley_leases VALUES (%(id)s, 1, pg_backend_pid(), %(holder)s, %(since)s)
ON CONFLICT (session) DO UPDATE SET fence = parley_leases.fence + 1, backend = excluded.backend,
    holder = excluded.holder, since = excluded.since
RETURNING fence
"""
APPEND = """
WITH held AS (
    SELECT 1 FROM parley_leases WHERE session = %(id)s AND (fence = %(fence)s OR holder = %(holder)s) FOR SHARE
),
turn AS (SELECT nextval('parley_turns') AS number FROM held),
added AS (
    INSERT INTO parley_entries
    SELECT %(key)s, %(seq)s, %(kind)s, %(at)s, %(message)s, %(context)s, %(words)s, number, %(checksum)s
    FROM turn ON CONFLICT DO NOTHING RETURNING turn
),
known AS (
    INSERT INTO parley_sessions AS known
    SELECT %(id)s, %(cwd)s, %(branch)s, %(title)s, NULL, %(prompt)s, %(at)s, %(at)s, turn, %(size)s, %(said)s FROM added
    WHERE %(is_own)s
    ON CONFLICT (id) DO UPDATE SET modified = excluded.modified, turn = excluded.turn,
        size_bytes = known.size_bytes + excluded.size_bytes, messages = known.messages + excluded.messages,
        first_prompt = coalesce(known.first_prompt, excluded.first_prompt),
        title = coalesce(excluded.title, known.title)
)
SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM added)
"""
CONNECT_SECONDS = 10
STATEMENT_SECONDS = 30
STEAL_SECONDS = 5
PAGE = 1000
LOCATION = "the database"


def connect(address: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Open a connection. Raises SessionError, or UsageError if the driver is not installed."""
    try:
        import psycopg
    except ImportError:
        raise UsageError(f"the PostgreSQL store needs an extra: {how_to_install('postgres')}") from None
    try:
        return psycopg.connect(
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


class PostgresLog:
    """The log of one session. Its connection holds the lease."""

    _is_own = True
    """Whether it is a session's own log, which is listed and searched. False for subagents."""

    def __init__(self, address: str, session_id: str, context: EntryContext, *, steal: bool = False) -> None:
        self._address = address
        self._session_id = self._key = session_id
        self._context = context
        self._database = connect(address)
        self._fence = 0
        self._is_closed = False
        self._total: int | None = None
        """The checksum of all entries; None until it is needed."""
        try:
            with translate_errors():
                self._acquire(steal=steal)
        except BaseException:
            self._database.close()
            raise

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
        found = self._database.execute(f"SELECT pg_try_advisory_lock({LOCK})", (self._session_id,)).fetchone()
        return bool(found and found[0])

    def _wait_for_lock(self, holder: str) -> None:
        """Terminate the holder's connection and take the lock. Raises SessionBusy, psycopg.Error."""
        import psycopg

        run = self._database.execute
        run(
            "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid() AND objsubid = 1 "
            f"AND (classid::bigint << 32) | objid::bigint = {LOCK}",
            (self._session_id,),
        )
        run(f"SET statement_timeout = '{STEAL_SECONDS}s'")
        try:
            run(f"SELECT pg_advisory_lock({LOCK})", (self._session_id,))
        except psycopg.errors.QueryCanceled:
            raise SessionBusy(self._session_id, f"{holder}, whose connection could not be terminated") from None
        run(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")

    def _write_holder(self) -> int:
        """Record us as the holder and return our fencing number."""
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        found = self._database.execute(
            TAKE, {"id": self._session_id, "holder": holder_signature(), "since": since}
        ).fetchone()
        assert found is not None
        return int(found[0])

    def _holder(self) -> str:
        text = "SELECT holder || ' since ' || since FROM parley_leases WHERE session = %s"
        found = self._database.execute(text, (self._session_id,)).fetchone()
        return str(found[0]) if found else "another process"

    def append(self, entry: Entry) -> None:
        import psycopg

        if self._is_closed:
            raise SessionBusy(self._session_id, TAKEN_OVER)
        if self._total is None:
            self._total = total_before(self._address, self._key, HIGHEST)
        params = self._row(entry, self._total)
        try:
            self._insert(params)
        except psycopg.OperationalError:
            # The server may have stored it before the connection broke. The key prevents a duplicate.
            self._reconnect()
            with translate_errors():
                self._insert(params, again=True)
        except psycopg.Error as exc:
            raise SessionError(f"cannot use the database: {format_error(exc)}") from None
        self._total = params["checksum"]

    def _insert(self, params: dict[str, Any], *, again: bool = False) -> None:
        """Raises SessionBusy, SessionError, psycopg.Error."""
        owner = {"fence": self._fence, "holder": None if self._is_own else holder_signature()}
        held, added = self._database.execute(APPEND, {**params, **owner}).fetchone() or (0, 0)
        if not held:
            raise SessionBusy(self._session_id, TAKEN_OVER)
        if not added and not again:
            raise SessionError(f"entry {params['seq']} of session {self._session_id} already exists")

    def _reconnect(self) -> None:
        """Raises SessionBusy, SessionError."""
        self._database.close()
        self._database = connect(self._address)
        with translate_errors():
            text = "SELECT fence FROM parley_leases WHERE session = %s"
            found = self._database.execute(text, (self._session_id,)).fetchone()
            if found != (self._fence,) or not self._try_lock():
                raise SessionBusy(self._session_id, self._holder())
            self._fence = self._write_holder()

    def _row(self, entry: Entry, before: int) -> dict[str, Any]:
        message, context = encode_json(entry.message), encode_json(entry.context)
        prompt, title = first_prompt(entry.kind, entry.message), entry.message.get("title")
        return {
            "id": self._session_id,
            "key": self._key,
            "is_own": self._is_own,
            "seq": entry.seq,
            "kind": entry.kind,
            "at": entry.at,
            "message": message.decode(),
            "context": context.decode(),
            "checksum": next_checksum(before, entry.seq, entry.kind.encode(), entry.at.encode(), message, context),
            # Subagents are not searched.
            "words": sorted(set(split_words(entry_text(entry.kind, entry.message)))) if self._is_own else [],
            "cwd": os.path.realpath(self._context.cwd),
            "branch": self._context.git_branch or None,
            "title": title if entry.kind == "title" else None,
            "prompt": None if prompt is None else prompt.replace("\0", ""),
            "size": len(message) + len(context),
            "said": int(entry.kind in SAID),
        }

    def sync(self) -> None:
        """Nothing to do: the server has synced each commit to disk."""

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return entries(self._address, self._key, after)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        import psycopg

        with suppress(psycopg.Error):
            # The server would do so itself, but only some time after `close` returns.
            self._database.execute("SELECT pg_advisory_unlock_all()")
        self._database.close()


class PostgresAgentLog(PostgresLog):
    """The log of a subagent. The lease of the session's own log, held by this process, covers it."""

    _is_own = False

    def __init__(self, address: str, session_id: str, agent_id: str, context: EntryContext) -> None:
        super().__init__(address, session_id, context)
        self._key = agent_key(session_id, agent_id)

    def _acquire(self, *, steal: bool) -> None:
        pass

    def _reconnect(self) -> None:
        self._database.close()
        self._database = connect(self._address)


def holder_signature() -> str:
    return f"process {launched_pid()} on {os.uname().nodename}"


def entries(address: str, key: str, after: int) -> Iterator[Entry]:
    """Raises SessionError, DamagedSession."""
    with connect(address) as database, translate_errors():
        total = total_at(database, key, after)
        begin = -1 if total is None else after
        yield from RowChain(key, LOCATION, total or 0).entries(rows(database, key, begin), after)


def rows(database: psycopg.Connection[tuple[Any, ...]], key: str, after: int) -> Iterator[Row]:
    """Yield rows page by page, so that a long session need not fit into memory. Raises psycopg.Error."""
    while page := database.execute(ENTRIES, (key, after, PAGE)).fetchall():
        for seq, kind, at, message, context, checksum in page:
            yield seq, kind.encode(), at.encode(), message.encode(), context.encode(), checksum
            after = seq


def total_before(address: str, key: str, seq: int) -> int:
    """The checksum of all entries up to `seq`. Raises SessionError, DamagedSession."""
    with connect(address) as database, translate_errors():
        total = total_at(database, key, seq)
        if total is not None:
            return total
        chain = RowChain(key, LOCATION)
        for row in rows(database, key, -1):
            chain.entry(*row)
        return chain.total


def total_at(database: psycopg.Connection[tuple[Any, ...]], key: str, seq: int) -> int | None:
    """The stored checksum of the last entry up to `seq`; None if an older version wrote it without one."""
    found = database.execute(LAST, (key, seq)).fetchone()
    return 0 if found is None else found[0]
