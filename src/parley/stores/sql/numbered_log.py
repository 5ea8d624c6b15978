"""Numbered logs in SQL, without I/O: the same statements for SQLite and PostgreSQL.

    log = SqlLog("parley_cluster", "PostgreSQL at db.example.com")
    sequence, is_new = run_steps(log.append(key, data, expected=0, message_id="a"), execute)

A method is a generator: it yields statements with their parameters, gets the rows, and returns the answer. So the same
code runs on `sqlite3`, on `psycopg` and on its asynchronous connections (`run_steps_async`).

A message names the one that it follows, and at most one follows another. To append is one statement: it stores nothing
unless the last message is the expected one, and of two writers at the same time the index refuses one. A message that
is missing or was moved is noticed by these references, and one that was altered by its checksum.

Parameters are written as `:name`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import cache
from typing import Any, TypeVar
from zlib import crc32

from parley.errors import ClusterError, LogDamaged
from parley.protocol.base import Json, Struct
from parley.stores.numbered_log import LogKey, Snapshot, make_gap, make_refusal, make_reused_id, make_truncated

T = TypeVar("T")
Rows = Sequence[tuple[Any, ...]]
Steps = Generator[tuple[str, Json], Rows, T]
HIGHEST = (1 << 63) - 1
PAGE = 500
"""How many messages are read at a time, so that a long session need not fit into memory."""
MESSAGES = """
CREATE TABLE {name}_messages (
    sequence {sequence}, tenant TEXT NOT NULL, session TEXT NOT NULL, shard BIGINT NOT NULL, previous BIGINT NOT NULL,
    id TEXT NOT NULL, checksum BIGINT NOT NULL, data {binary} NOT NULL,
    UNIQUE (tenant, session, previous), UNIQUE (tenant, session, id)
);
"""
SNAPSHOTS = """
CREATE INDEX {name}_messages_by_shard ON {name}_messages (shard, tenant, session);
CREATE TABLE {name}_snapshots (
    tenant TEXT NOT NULL, session TEXT NOT NULL, sequence BIGINT NOT NULL, data {binary} NOT NULL,
    PRIMARY KEY (tenant, session)
);
"""
HEAD = """
SELECT sequence FROM {name}_messages WHERE tenant = :tenant AND session = :session ORDER BY previous DESC LIMIT 1
"""
ADD = f"""
INSERT INTO {{name}}_messages (tenant, session, shard, previous, id, checksum, data)
SELECT :tenant, :session, :shard, :expected, :message_id, :checksum, :data {{held}}
WHERE :expected = coalesce(({HEAD}), 0) ON CONFLICT DO NOTHING RETURNING sequence
"""
FIND = """
SELECT sequence, previous, data FROM {name}_messages
WHERE tenant = :tenant AND session = :session AND id = :message_id
"""
READ = """
SELECT sequence, previous, id, checksum, data FROM {name}_messages
WHERE tenant = :tenant AND session = :session AND previous >= :after AND sequence <= :head ORDER BY previous LIMIT :page
"""
SAVE = """
INSERT INTO {name}_snapshots AS stored VALUES (:tenant, :session, :sequence, :data)
ON CONFLICT (tenant, session) DO UPDATE SET sequence = excluded.sequence, data = excluded.data
WHERE stored.sequence <= excluded.sequence RETURNING sequence
"""
LOAD = "SELECT sequence, data FROM {name}_snapshots WHERE tenant = :tenant AND session = :session"
DELETE_MESSAGES = "DELETE FROM {name}_messages WHERE tenant = :tenant AND session = :session"
DELETE_SNAPSHOT = "DELETE FROM {name}_snapshots WHERE tenant = :tenant AND session = :session"
KEYS = "SELECT DISTINCT tenant, session FROM {name}_messages WHERE shard = :shard"


def make_sqlite_tables(name: str, script: str, *, reuses_numbers: bool = False) -> str:
    """The statements that create tables. `reuses_numbers`: the number of the last message may be, if it was deleted."""
    sequence = "INTEGER PRIMARY KEY" if reuses_numbers else "INTEGER PRIMARY KEY AUTOINCREMENT"
    return script.format(name=name, sequence=sequence, binary="BLOB")


def make_postgres_tables(name: str, script: str) -> str:
    # Not unique: in a database that was restored without its sequence, an append must not look like a lost race.
    sequence = f"bigint NOT NULL DEFAULT nextval('{name}_sequence')"
    return f"CREATE SEQUENCE {name}_sequence;" + script.format(name=name, sequence=sequence, binary="bytea")


def run_steps(steps: Steps[T], execute: Callable[[str, Json], Rows]) -> T:
    """Run what yields statements."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(*statement))
    except StopIteration as exc:
        answer: T = exc.value
        return answer


async def run_steps_async(steps: Steps[T], execute: Callable[[str, Json], Awaitable[Rows]]) -> T:
    """The same on a connection that is awaited."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await execute(*statement))
    except StopIteration as exc:
        answer: T = exc.value
        return answer


@cache
def translate_params(text: str) -> bytes:
    """A statement with the parameters of psycopg."""
    return re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", text).encode()


@cache
def name_tables(text: str, name: str) -> str:
    return text.format(name=name)


class DamagedMessage(Struct, frozen=True):
    """The first message that is altered, or that does not follow the last one that was read."""

    sequence: int
    message_id: object
    is_altered: bool = False


class SqlLog:
    def __init__(self, name: str, where: str, shards: int = 1, add: str = ADD.format(name="{name}", held="")) -> None:
        """`name`: how its tables begin. `where`: the database, for errors. `add`: the statement that appends."""
        self.where = where
        self._name = name
        self._shards = shards
        self._add = add

    def _sql(self, text: str) -> str:
        return name_tables(text, self._name)

    def append(
        self, key: LogKey, data: bytes, *, expected: int, message_id: str, **more: Any
    ) -> Steps[tuple[int, bool]]:
        """The sequence of the message, and whether it is new. `more`: further parameters of the statement.

        Raises Fenced, LogDamaged, ClusterError.
        """
        row = {**of(key), "shard": key.shard(self._shards), "expected": expected, "message_id": message_id}
        checksum = compute_checksum(key, expected, message_id, data)
        if added := (yield self._sql(self._add), {**row, **more, "checksum": checksum, "data": data}):
            return int(added[0][0]), True
        for sequence, previous, stored in (yield self._sql(FIND), row):
            if (previous, stored) != (expected, data):
                raise make_reused_id(self.where, key, message_id)
            return int(sequence), False
        raise make_refusal(self.where, key, (yield from self.head(key)), expected)

    def read(
        self, key: LogKey, after: int, head: int = HIGHEST
    ) -> Steps[tuple[list[tuple[int, bytes]], DamagedMessage | None]]:
        """Some messages after a sequence, and what is wrong with the next one. None if there are no more."""
        found: list[tuple[int, bytes]] = []
        params = {**of(key), "after": after, "head": head, "page": PAGE}
        for sequence, previous, message_id, checksum, data in (yield self._sql(READ), params):
            if previous != after or sequence <= after:  # without the second, an altered sequence could be read for ever
                return found, DamagedMessage(sequence, message_id)
            if not isinstance(data, bytes) or checksum != compute_checksum(key, previous, message_id, data):
                return found, DamagedMessage(sequence, message_id, is_altered=True)
            found.append((sequence, data))
            after = sequence
        return found, None

    def find(self, key: LogKey, message_id: str) -> Steps[int]:
        """The sequence of a message; 0 if there is none."""
        found = yield self._sql(FIND), {**of(key), "message_id": message_id}
        return int(found[0][0]) if found else 0

    def head(self, key: LogKey) -> Steps[int]:
        found = yield self._sql(HEAD), of(key)
        return int(found[0][0]) if found else 0

    def save_snapshot(self, key: LogKey, snapshot: Snapshot) -> Steps[None]:
        if (head := (yield from self.head(key))) < snapshot.sequence:
            raise make_truncated(self.where, key, head, snapshot.sequence)
        row = {**of(key), "sequence": snapshot.sequence, "data": snapshot.data}
        if (yield self._sql(SAVE), row):
            yield self._sql(f"{DELETE_MESSAGES} AND sequence < :sequence"), row

    def load_snapshot(self, key: LogKey) -> Steps[Snapshot | None]:
        found = yield self._sql(LOAD), of(key)
        return Snapshot(*found[0]) if found else None

    def delete(self, key: LogKey) -> Steps[None]:
        # The messages last: as long as there are any, `keys` has the session, so that a deletion can be repeated.
        for text in (DELETE_SNAPSHOT, DELETE_MESSAGES):
            yield self._sql(text), of(key)

    def keys(self, shard: int) -> Steps[list[LogKey]]:
        found = yield self._sql(KEYS), {"shard": shard}
        return sorted(LogKey(*row) for row in found)

    def make_damage(self, key: LogKey, after: int, damage: DamagedMessage) -> LogDamaged:
        if damage.is_altered:
            return LogDamaged(f"{self.where}: message {damage.sequence} of session {key.session} was altered")
        return make_gap(self.where, key, after, damage.sequence)


def of(key: LogKey) -> Json:
    return {"tenant": key.tenant, "session": key.session}


def compute_checksum(key: LogKey, previous: int, message_id: object, data: bytes) -> int:
    head = "\0".join((key.tenant, key.session, str(previous), str(message_id), ""))
    return crc32(data, crc32(head.encode(errors="replace")))


# Tables in PostgreSQL.

VERSIONS = "CREATE TABLE IF NOT EXISTS parley_version (part text PRIMARY KEY, version int NOT NULL)"

# A look-up in a table, because to_regclass remembers that a table was missing until the end of the transaction.
IS_VERSIONED = "SELECT 1 FROM pg_class WHERE relname = 'parley_version' AND pg_table_is_visible(oid)"


def find_version(part: str, version: int, where: str) -> Steps[bool]:
    """Whether the tables of a part are there. Raises ClusterError for those of another version."""
    found: Rows = []
    if (yield IS_VERSIONED, {}):
        found = yield "SELECT version FROM parley_version WHERE part = :part", {"part": part}
    if found and found[0][0] != version:
        raise ClusterError(
            f"{where} has schema version {found[0][0]} of {part}; this Parley reads only version {version}, and leaves "
            "the database unchanged"
        )
    return bool(found)


def create_tables(part: str, version: int, script: str, where: str) -> Steps[None]:
    """Create the tables of a part in PostgreSQL, unless they are there, in a transaction. Raises ClusterError."""
    # Creating the same table concurrently fails.
    yield "SELECT pg_advisory_xact_lock(hashtextextended('parley schema', 0))", {}
    if not (yield from find_version(part, version, where)):
        for statement in f"{VERSIONS};{script}".split(";"):
            if statement.strip():
                yield statement, {}
        yield "INSERT INTO parley_version VALUES (:part, :version)", {"part": part, "version": version}


def format_error(error: Exception) -> str:
    """An error of psycopg in one line."""
    return " ".join(str(error).split())
