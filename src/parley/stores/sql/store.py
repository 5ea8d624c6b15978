"""The stores in databases: one implementation, and a small part for each of SQLite and PostgreSQL.

The transcript of a session is a numbered log (`numbered_log.py`): one message per entry, with the number of the entry
as its id. A database has no partial writes, so any damage is an error; a repair moves the messages from there on to
another key. The keys of subagents' transcripts and of moved messages contain a slash, which session ids do not.

`parley_sessions` and the index for searches are projections: what lists and searches need, kept up to date by each
append in the transaction of the entry. Titles and tags that others give are in `parley_sessions` only.

See also: `sqlite.py` and `postgres.py`, with the connections, the leases and the indexes.
"""

from __future__ import annotations

import builtins
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from parley.errors import DamagedSession
from parley.protocol.base import Json, encode_json
from parley.stores.base import AgentInfo, Entry, Info, Label, Log, RepairReport, SearchHit, Store, check_id, is_id
from parley.stores.files.entry_codec import EntryContext
from parley.stores.numbered_log import LogKey
from parley.stores.search_text import SAID, entry_text, first_prompt, make_hit, split_words
from parley.stores.sql.numbered_log import Rows, SqlLog, Steps, of, run_steps

Execute = Callable[[str, Json], Rows]
SESSIONS = """
CREATE TABLE parley_sessions (
    id TEXT PRIMARY KEY, cwd TEXT NOT NULL, git_branch TEXT, title TEXT, tag TEXT, first_prompt TEXT,
    created TEXT NOT NULL, modified TEXT NOT NULL, turn BIGINT NOT NULL,
    size_bytes BIGINT NOT NULL, messages BIGINT NOT NULL
);
CREATE INDEX parley_sessions_by_project ON parley_sessions (cwd, turn);
CREATE TABLE parley_agents (session TEXT NOT NULL, id TEXT NOT NULL, meta TEXT NOT NULL, PRIMARY KEY (session, id));
"""
INFO = """
SELECT id, cwd, title, first_prompt, created, modified, size_bytes, messages, tag, git_branch FROM parley_sessions
"""
PAGE = "ORDER BY turn DESC LIMIT :limit OFFSET :offset"
SAVE_SESSION = """
INSERT INTO parley_sessions AS known
    (id, cwd, git_branch, title, first_prompt, created, modified, turn, size_bytes, messages)
SELECT :id, :cwd, :branch, :title, :prompt, :at, :at, {turn}, :size, :said {source}
ON CONFLICT (id) DO UPDATE SET modified = excluded.modified, turn = excluded.turn,
    size_bytes = known.size_bytes + excluded.size_bytes, messages = known.messages + excluded.messages,
    first_prompt = coalesce(known.first_prompt, excluded.first_prompt),
    title = coalesce(excluded.title, known.title)
"""
"""An entry makes the row of its session, or changes it. `turn` is the sequence of its last message."""
OF_SESSION = "WHERE tenant = '' AND session = :session"
MOST = 1 << 60
"""More sessions than there are."""
ENTRY = msgspec.json.Decoder(Entry)


class SqlTranscript(Log):
    """The log of a session, or of one of its subagents, which are not listed and searched."""

    def __init__(self, store: SqlStore, session_id: str, agent_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._agent_id = agent_id
        self._key = make_key(session_id, agent_id)
        self._head: int | None = None
        """The sequence of the last message; None until it is needed."""

    @abstractmethod
    def _run(self, steps: Steps[int], *, is_single: bool) -> int:
        """Append all or nothing, unless another process took the session over. Raises SessionError, SessionBusy.

        `is_single`: it is one entry, which one statement stores.
        """

    def append(self, *entries: Entry) -> None:
        self._head = self._run(self._append(entries), is_single=len(entries) == 1)

    def _append(self, entries: Iterable[Entry]) -> Steps[int]:
        head = (yield from self._store.log.head(self._key)) if self._head is None else self._head
        for entry in entries:
            data = encode_json(entry)
            row = self._row(entry, len(data))
            head, is_new = yield from self._store.log.append(
                self._key, data, expected=head, message_id=str(entry.seq), **row
            )
            if is_new and not self._agent_id:
                yield from self._store.project(head, row)
        return head

    def _row(self, entry: Entry, size_bytes: int) -> Json:
        """What the entry adds to the row of its session and to the index."""
        prompt = first_prompt(entry.kind, entry.message)
        return {
            "id": self._session_id,
            "at": entry.at,
            "words": [] if self._agent_id else split_words(entry_text(entry.kind, entry.message)),
            "cwd": os.path.realpath(self._store.cwd),
            "branch": self._store.context.git_branch or None,
            "title": entry.message.get("title") if entry.kind == "title" else None,
            "prompt": None if prompt is None else prompt.replace("\0", ""),
            "size": size_bytes,
            "said": int(entry.kind in SAID),
        }

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return self._store.read_entries(self._key, after)


class SqlStore(Store):
    """A store without the part that differs between databases."""

    log: SqlLog
    collation = ""
    """What follows a key that is compared byte by byte."""

    def __init__(self, context: EntryContext) -> None:
        super().__init__(context.cwd)
        self.context = context

    @abstractmethod
    def connect(self) -> AbstractContextManager[Execute]:
        """A connection, as the function that runs a statement. Errors of the database are raised as SessionError."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Execute]:
        """The same; what is written is committed at the end, or not at all if the block raises."""

    @abstractmethod
    def _open(self, session_id: str, agent_id: str = "", *, steal: bool = False) -> SqlTranscript:
        """Hold a session, whether or not it exists. A subagent's log needs no lease of its own. Raises SessionBusy."""

    def project(self, sequence: int, row: Json) -> Steps[None]:
        """What an entry adds, unless the statement that appends does it."""
        yield from ()

    @abstractmethod
    def _match(self, query_words: builtins.list[str], limit: int) -> Rows:
        """The session and the data of messages that may have all the words, newest first."""

    @abstractmethod
    def _remove_from_index(self, execute: Execute, session: Json) -> None: ...

    def fetch(self, text: str, **params: object) -> Rows:
        with self.connect() as execute:
            return execute(text, params)

    # Reading.

    def info(self, session_id: str) -> Info | None:
        found = self.fetch(f"{INFO} WHERE id = :id", id=session_id) if is_id(session_id) else []
        return info_from_row(found[0]) if found else None

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        where = "" if project is None else "WHERE cwd = :cwd"
        page = {"cwd": os.path.realpath(project or ""), "limit": MOST if limit is None else limit, "offset": offset}
        return [info_from_row(row) for row in self.fetch(f"{INFO} {where} {PAGE}", **page)]

    def _entries(self, session_id: str, agent_id: str = "", after: int = -1) -> Iterator[Entry]:
        return self.read_entries(make_key(session_id, agent_id), after)

    def read_entries(self, key: LogKey, after: int = -1) -> Iterator[Entry]:
        """Yield the entries of a transcript with `seq > after`. Raises SessionError, DamagedSession."""
        with self.connect() as execute:
            start = run_steps(self.log.find(key, str(after)), execute) if after >= 0 else 0
            for _, data in self._messages(execute, key, start):
                entry = ENTRY.decode(data)
                if entry.seq > after:
                    yield entry

    def _messages(self, execute: Execute, key: LogKey, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Raises DamagedSession."""
        page, damage = run_steps(self.log.read(key, after), execute)
        while page:
            yield from page
            if damage is not None:
                break
            page, damage = run_steps(self.log.read(key, page[-1][0]), execute)
        if damage is not None:
            raise DamagedSession(key.session, f"entry {damage.message_id} in {self.log.where}")

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        found = self.fetch("SELECT id, meta FROM parley_agents WHERE session = :id", id=session_id)
        return [AgentInfo(id=id, meta=msgspec.json.decode(meta)) for id, meta in found]

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        query_words = split_words(text)
        found = decode_rows(self._match(query_words, limit)) if query_words else ()
        # They are checked again, because an index may still contain the old text of damaged rows.
        hits = (make_hit(session_id, entry, query_words) for session_id, entry in found)
        return [hit for hit in hits if hit is not None]

    # Writing.

    def _hold(self, session_id: str, *, resumes: bool = False, steal: bool = False) -> Log:
        return self._open(session_id, steal=steal)

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Log:
        if meta is not None:
            row = {"id": session_id, "agent": check_id(agent_id), "meta": msgspec.json.encode(meta).decode()}
            self.fetch("INSERT INTO parley_agents (session, id, meta) VALUES (:id, :agent, :meta)", **row)
        return self._open(session_id, agent_id)

    def _label(self, session_id: str, label: Label, text: str | None) -> None:
        text = (text or "").replace("\0", "") or None
        self.fetch(f"UPDATE parley_sessions SET {label} = :label WHERE id = :id", id=session_id, label=text)

    def _remove(self, session_id: str) -> None:
        # "0" is next after "/".
        keys = {"session": session_id, "first": f"{session_id}/", "end": f"{session_id}0"}
        key = f"session{self.collation}"
        with self.transaction() as execute:
            self._remove_from_index(execute, keys)
            execute(f"DELETE FROM parley_messages {OF_SESSION}", keys)
            execute(f"DELETE FROM parley_messages WHERE tenant = '' AND {key} >= :first AND {key} < :end", keys)
            execute("DELETE FROM parley_agents WHERE session = :session", keys)
            execute("DELETE FROM parley_sessions WHERE id = :session", keys)

    def _repair(self, session_id: str) -> RepairReport | None:
        key = make_key(session_id)
        last, kept_bytes, kept_messages = 0, 0, 0
        with self.transaction() as execute:
            try:
                for last, data in self._messages(execute, key):  # noqa: B007  # the last that is intact
                    kept_bytes += len(data)
                    kept_messages += ENTRY.decode(data).kind in SAID
            except DamagedSession:
                pass
            else:
                return None
            aside = f"{session_id}/damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
            row = {**of(key), "after": last, "aside": aside, "bytes": kept_bytes, "messages": kept_messages}
            damaged = f"{OF_SESSION} AND previous >= :after"
            ((size,),) = execute(f"SELECT coalesce(sum(length(data)), 0) FROM parley_messages {damaged}", row)
            execute(f"UPDATE parley_messages SET session = :aside {damaged}", row)
            execute("UPDATE parley_sessions SET size_bytes = :bytes, messages = :messages WHERE id = :session", row)
        place = f"the entries of {aside!r} in {self.log.where}"
        return RepairReport(kept_bytes=kept_bytes, aside_bytes=int(size), aside=place)


def make_key(session_id: str, agent_id: str = "") -> LogKey:
    return LogKey("", f"{session_id}/agent-{agent_id}" if agent_id else session_id)


def info_from_row(row: tuple[Any, ...]) -> Info:
    """A session's row, with its columns in the order of the fields of `Info`."""
    return Info(**dict(zip(Info.__struct_fields__, row, strict=True)))


def decode_rows(rows: Rows) -> Iterator[tuple[str, Entry]]:
    """The sessions and entries of messages, without those that are damaged."""
    for session_id, data in rows:
        try:
            yield session_id, ENTRY.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, RecursionError):
            continue
