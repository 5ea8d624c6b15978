"""The stores in databases: one implementation, and a small part for each of SQLite and PostgreSQL.

`parley_entries` is the log of all sessions: one row per entry, chained by checksums like the lines of a file. A row's
checksum covers its fields and all rows before it, so altered, missing and reordered rows are detected. A database has
no partial writes, so any damage is an error; a repair moves the rows from there on to another key. The keys of
subagents' entries and of moved rows contain a slash, which session ids do not.

`parley_sessions` and the index for searches are projections: what lists and searches need, kept up to date by each
append in the transaction of the entry. Titles and tags that others give are in `parley_sessions` only.

Statements have named parameters (`:id`) and are the same in both databases; `PostgresConnection` translates them.

See also: `sqlite.py` and `postgres.py`, with the connections, the leases, the statements that append, and the indexes.
"""

from __future__ import annotations

import builtins
import os
import time
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from typing import Any, Protocol

import msgspec

from parley.errors import DamagedSession, UnknownSession
from parley.protocol.base import Json, Struct, encode_json
from parley.stores.base import AgentInfo, Entry, Info, Log, RepairReport, SearchHit, Store, check_id, is_id
from parley.stores.files.entry_codec import EntryContext
from parley.stores.search_text import SAID, entry_text, first_prompt, make_excerpt, split_words

INFO = """
SELECT id, cwd, title, first_prompt, created, modified, size_bytes, messages, tag, git_branch FROM parley_sessions
"""
ENTRIES = """
SELECT seq, kind, at, message, context, checksum FROM parley_entries
WHERE session = :key AND seq > :after ORDER BY seq LIMIT :page
"""
CHECKSUM = "SELECT checksum FROM parley_entries WHERE session = :key AND seq <= :seq ORDER BY seq DESC LIMIT 1"
ON_CONFLICT = """
ON CONFLICT (id) DO UPDATE SET modified = excluded.modified, turn = excluded.turn,
    size_bytes = known.size_bytes + excluded.size_bytes, messages = known.messages + excluded.messages,
    first_prompt = coalesce(known.first_prompt, excluded.first_prompt),
    title = coalesce(excluded.title, known.title)
"""
"""How another entry changes the row of its session."""
MOVE_ASIDE = "UPDATE parley_entries SET session = :aside WHERE session = :id AND seq >= :seq"
SET_SIZE = "UPDATE parley_sessions SET size_bytes = :kept_bytes, messages = :kept_messages WHERE id = :id"
HIGHEST = (1 << 63) - 1
PAGE = 1000
"""How many rows are read at a time, so that a long session need not fit into memory."""
DECODER = msgspec.json.Decoder()
Row = tuple[Any, ...]
"""seq, kind, at, message, context (UTF-8 bytes), checksum. In a damaged file the values may have any type."""


class Database(Protocol):
    """A connection."""

    def execute(self, text: str, params: Mapping[str, Any] = ..., /) -> Any:
        """Returns a cursor."""


class SqlLog(Log):
    """The log of a session, or of one of its subagents, which are not listed and searched."""

    def __init__(self, store: SqlStore, session_id: str, agent_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._agent_id = agent_id
        self._key = agent_key(session_id, agent_id) if agent_id else session_id
        self._total: int | None = None
        """The checksum of all entries; None until it is needed."""

    @abstractmethod
    def _insert(self, rows: builtins.list[Json]) -> None:
        """Insert all rows or none, unless another process took the session over. Raises SessionError, SessionBusy."""

    def append(self, *entries: Entry) -> None:
        total = self._store.read_checksum(self._key, HIGHEST) if self._total is None else self._total
        rows: builtins.list[Json] = []
        for entry in entries:
            rows.append(self._row(entry, total))
            total = rows[-1]["checksum"]
        self._insert(rows)
        self._total = total

    def _row(self, entry: Entry, before: int) -> Json:
        """The entry's row, and what it adds to the row of its session and to the index."""
        message, context = encode_json(entry.message), encode_json(entry.context)
        prompt = first_prompt(entry.kind, entry.message)
        return {
            "id": self._session_id,
            "key": self._key,
            "seq": entry.seq,
            "kind": entry.kind,
            "at": entry.at,
            "message": message.decode(),
            "context": context.decode(),
            "checksum": next_checksum(before, entry.seq, entry.kind.encode(), entry.at.encode(), message, context),
            "words": [] if self._agent_id else split_words(entry_text(entry.kind, entry.message)),
            "cwd": os.path.realpath(self._store.context.cwd),
            "branch": self._store.context.git_branch or None,
            "title": entry.message.get("title") if entry.kind == "title" else None,
            "prompt": None if prompt is None else prompt.replace("\0", ""),
            "size": len(message) + len(context),
            "said": int(entry.kind in SAID),
        }

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return self._store.read_entries(self._key, after)


class SqlStore(Store):
    """A store without the part that differs between databases."""

    location: str
    """Where the entries are, for error messages."""
    collation = ""
    """What follows a key that is compared byte by byte."""

    def __init__(self, context: EntryContext) -> None:
        self.context = context

    @abstractmethod
    def connect(self) -> AbstractContextManager[Database]:
        """Errors of the database are raised as SessionError."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Database]:
        """A connection; what is written is committed at the end, or not at all if the block raises."""

    @abstractmethod
    def connect_for_bytes(self) -> AbstractContextManager[Database]:
        """A connection that returns text as bytes: checksums are of bytes, and damaged text may be invalid UTF-8."""

    @abstractmethod
    def _open_log(self, session_id: str, agent_id: str = "", *, steal: bool = False) -> SqlLog:
        """Hold a session, whether or not it exists. A subagent's log needs no lease of its own. Raises SessionBusy."""

    @abstractmethod
    def _match(self, query_words: builtins.list[str], limit: int) -> builtins.list[tuple[Any, ...]]:
        """The session, seq, kind, time and message of rows that may have all the words, newest first."""

    @abstractmethod
    def _remove_from_index(self, database: Database, session_id: str) -> None: ...

    def _rows(self, text: str, **params: object) -> builtins.list[tuple[Any, ...]]:
        with self.connect() as database:
            found: builtins.list[tuple[Any, ...]] = database.execute(text, params).fetchall()
        return found

    # Reading.

    def info(self, session_id: str) -> Info | None:
        found = self._rows(INFO + "WHERE id = :id", id=session_id) if is_id(session_id) else []
        return info_from_row(found[0]) if found else None

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        where = "" if project is None else "WHERE cwd = :cwd "
        found = self._rows(
            INFO + where + "ORDER BY turn DESC LIMIT :limit OFFSET :offset",
            cwd=os.path.realpath(project or ""),
            limit=HIGHEST if limit is None else limit,
            offset=offset,
        )
        return [info_from_row(row) for row in found]

    def newest(self) -> str | None:
        found = self.list(self.context.cwd, limit=1)
        return found[0].id if found else None

    def exists(self, session_id: str) -> bool:
        return self.info(session_id) is not None

    def check_exists(self, session_id: str) -> None:
        """Raises UnknownSession."""
        if not self.exists(session_id):
            raise UnknownSession(session_id)

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        self.check_exists(session_id)
        return self.read_entries(session_id, after)

    def read_agent(self, session_id: str, agent_id: str) -> Iterator[Entry]:
        return self.read_entries(agent_key(session_id, check_id(agent_id)), -1)

    def read_entries(self, key: str, after: int) -> Iterator[Entry]:
        """Yield the entries under a key with `seq > after`. Raises SessionError, DamagedSession."""
        chain = RowChain(key, self.location, self.read_checksum(key, after) if after >= 0 else 0)
        with self.connect_for_bytes() as database:
            for row in read_rows(database, key, after):
                yield chain.entry(*row)

    def read_checksum(self, key: str, seq: int) -> int:
        """The checksum of all entries up to `seq`. Raises SessionError, DamagedSession."""
        found = self._rows(CHECKSUM, key=key, seq=seq)
        total = found[0][0] if found else 0
        if not isinstance(total, int):
            raise DamagedSession(key, f"the last entry in {self.location}")
        return total

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        found = self._rows("SELECT id, meta FROM parley_agents WHERE session = :id", id=session_id)
        return [AgentInfo(id=id, meta=msgspec.json.decode(meta)) for id, meta in found]

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        query_words = split_words(text)
        found = self._match(query_words, limit) if query_words else []
        return make_hits(found, query_words, lambda words: words >= set(query_words), make_excerpt)

    def path(self, session_id: str) -> str:
        """A database has no transcript."""
        return ""

    # Writing.

    def create(self, session_id: str) -> Log:
        return self._open_log(check_id(session_id))

    def open(self, session_id: str, *, steal: bool = False) -> Log:
        self.check_exists(session_id)
        return self._open_log(session_id, steal=steal)

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Log:
        if meta is not None:
            row = {"id": session_id, "agent": check_id(agent_id), "meta": msgspec.json.encode(meta).decode()}
            with self.transaction() as database:
                database.execute("INSERT INTO parley_agents (session, id, meta) VALUES (:id, :agent, :meta)", row)
        return self._open_log(session_id, agent_id)

    def rename(self, session_id: str, title: str) -> None:
        self._label(session_id, "title", title)

    def tag(self, session_id: str, tag: str | None) -> None:
        self._label(session_id, "tag", tag)

    def _label(self, session_id: str, column: str, text: str | None) -> None:
        self.check_exists(session_id)
        label = {"id": session_id, "label": (text or "").replace("\0", "") or None}
        with self.transaction() as database:
            database.execute(f"UPDATE parley_sessions SET {column} = :label WHERE id = :id", label)

    def delete(self, session_id: str) -> None:
        self.check_exists(session_id)
        keys = {"id": session_id, "first": f"{session_id}/", "end": f"{session_id}0"}  # "0" is next after "/"
        key = f"session{self.collation}"
        with closing(self._open_log(session_id)), self.transaction() as database:
            self._remove_from_index(database, session_id)
            database.execute("DELETE FROM parley_entries WHERE session = :id", keys)
            database.execute(f"DELETE FROM parley_entries WHERE {key} >= :first AND {key} < :end", keys)
            database.execute("DELETE FROM parley_agents WHERE session = :id", keys)
            database.execute("DELETE FROM parley_sessions WHERE id = :id", keys)

    def repair(self, session_id: str) -> RepairReport | None:
        self.check_exists(session_id)
        with closing(self._open_log(session_id)):
            with self.connect_for_bytes() as database:
                damage = find_damage(read_rows(database, session_id))
            if damage is None:
                return None
            aside = f"{session_id}/damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
            params = {"id": session_id, "aside": aside, **msgspec.structs.asdict(damage)}
            with self.transaction() as database:
                (size,) = database.execute(
                    "SELECT coalesce(sum(length(message) + length(context)), 0) FROM parley_entries "
                    "WHERE session = :id AND seq >= :seq",
                    params,
                ).fetchone()
                database.execute(MOVE_ASIDE, params)
                database.execute(SET_SIZE, params)
        place = f"the entries of {aside!r} in {self.location}"
        return RepairReport(kept_bytes=damage.kept_bytes, aside_bytes=int(size), aside=place)


# Rows.


class RowDamage(Struct, frozen=True):
    """The first damaged row, and the size of the intact part before it."""

    seq: int
    kept_bytes: int
    kept_messages: int


class RowChain:
    """Verifies rows in order. `total` is the checksum that the next row continues from."""

    def __init__(self, session_id: str, location: str, total: int = 0) -> None:
        self.total = total
        self._session_id = session_id
        self._location = location

    def entry(self, seq: int, kind: bytes, at: bytes, message: bytes, context: bytes, stored: int) -> Entry:
        """Decode a row. Raises DamagedSession unless it continues the chain."""
        try:
            self.total = next_checksum(self.total, seq, kind, at, message, context)
            if stored == self.total:
                decoded, decoded_context = DECODER.decode(message), DECODER.decode(context)
                return Entry(seq=seq, kind=kind.decode(), at=at.decode(), message=decoded, context=decoded_context)
        except (TypeError, AttributeError, UnicodeDecodeError, msgspec.DecodeError, RecursionError):
            pass
        raise DamagedSession(self._session_id, f"entry {seq} in {self._location}")


def next_checksum(before: int, seq: int, kind: bytes, at: bytes, message: bytes, context: bytes) -> int:
    """The checksum of a row after others with the checksum `before`."""
    return zlib.crc32(b"\0".join((b"%d" % seq, kind, at, message, context)), before)


def read_rows(database: Database, key: str, after: int = -1) -> Iterator[Row]:
    """The rows after a number, over a connection for bytes."""
    while page := database.execute(ENTRIES, {"key": key, "after": after, "page": PAGE}).fetchall():
        yield from page
        after = page[-1][0]


def find_damage(rows: Iterable[Row]) -> RowDamage | None:
    """Find the first row that does not continue the chain; None if all do."""
    chain, size, messages = RowChain("", ""), 0, 0
    for row in rows:
        try:
            entry = chain.entry(*row)
        except DamagedSession:
            return RowDamage(seq=row[0], kept_bytes=size, kept_messages=messages)
        size += len(row[3]) + len(row[4])
        messages += entry.kind in SAID
    return None


def agent_key(session_id: str, agent_id: str) -> str:
    return f"{session_id}/agent-{agent_id}"


def info_from_row(row: Row) -> Info:
    """A session's row, with its columns in the order of the fields of `Info`."""
    return Info(**dict(zip(Info.__struct_fields__, row, strict=True)))


def make_hits(
    found: Iterable[tuple[Any, ...]],
    query_words: list[str],
    matches: Callable[[set[str]], bool],
    make_part: Callable[[str, list[str]], str],
) -> list[SearchHit]:
    """The hits among rows. They are checked again, because an index may still contain the old text of damaged rows."""
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
