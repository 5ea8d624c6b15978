"""A store in memory, for `--no-session-persistence` and tests. Its sessions end with the process."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

from parley.errors import SessionBusy, UnknownSession
from parley.protocol.base import Json, Struct
from parley.stores.base import (
    TAKEN_OVER,
    AgentInfo,
    Entry,
    Info,
    Log,
    RepairReport,
    SearchHit,
    Store,
    StoreSetup,
    check_id,
)
from parley.stores.search_text import search_entries, summarize_entries


class MemoryLog(Log):
    def __init__(self, session_id: str, sessions: dict[str, list[Entry]], holders: dict[str, MemoryLog]) -> None:
        self._session_id = session_id
        self._sessions = sessions
        self._holders = holders
        holders[session_id] = self

    def append(self, *entries: Entry) -> None:
        if self._holders.get(self._session_id) is not self:
            raise SessionBusy(self._session_id, TAKEN_OVER)
        # The most recently written session is last in the dict.
        kept = self._sessions.pop(self._session_id, [])
        kept += entries
        self._sessions[self._session_id] = kept

    def sync(self) -> None:
        """Nothing to do: nothing is ever on disk."""

    async def wait_synced(self) -> None:
        """The same."""

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return iter([entry for entry in self._sessions.get(self._session_id, ()) if entry.seq > after])

    def close(self) -> None:
        if self._holders.get(self._session_id) is self:
            del self._holders[self._session_id]


class Labels(Struct):
    """What others have said of a session."""

    title: str | None = None
    title_at: int = 0
    """The length of the log when the title was given. A later title in the log takes precedence."""
    tag: str | None = None


class MemoryStore(Store):
    def __init__(self, cwd: str = "") -> None:
        self._cwd = cwd
        self._sessions: dict[str, builtins.list[Entry]] = {}
        self._holders: dict[str, MemoryLog] = {}
        self._labels: dict[str, Labels] = {}
        self._agents: dict[str, dict[str, Json]] = {}
        self._agent_entries: dict[str, dict[str, builtins.list[Entry]]] = {}

    @classmethod
    def from_setup(cls, setup: StoreSetup) -> MemoryStore:
        return cls(setup.context.cwd)

    def exists(self, session_id: str) -> bool:
        return session_id in self._sessions

    def is_held(self, session_id: str) -> bool:
        return session_id in self._holders

    def create(self, session_id: str) -> Log:
        return self._hold(check_id(session_id))

    def open(self, session_id: str, *, steal: bool = False) -> Log:
        self._check(session_id)
        return self._hold(session_id, steal=steal)

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        self._check(session_id)
        return iter([entry for entry in self._sessions[session_id] if entry.seq > after])

    def _hold(self, session_id: str, *, steal: bool = False) -> Log:
        if session_id in self._holders and not steal:
            raise SessionBusy(session_id, "this process")
        return MemoryLog(session_id, self._sessions, self._holders)

    def _check(self, session_id: str) -> None:
        if session_id not in self._sessions:
            raise UnknownSession(session_id)

    def newest(self) -> str | None:
        return next(reversed(self._sessions), None)

    def info(self, session_id: str) -> Info | None:
        labels = self._labels.get(session_id, Labels())
        entries = self._sessions.get(session_id, [])
        return summarize_entries(session_id, self._cwd, entries, labels.title, labels.title_at, labels.tag)

    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]:
        if project not in (None, self._cwd):
            return []
        ids = builtins.list(reversed(self._sessions))[offset:][:limit]
        return [info for session_id in ids if (info := self.info(session_id)) is not None]

    def rename(self, session_id: str, title: str) -> None:
        self._check(session_id)
        labels = self._labels.setdefault(session_id, Labels())
        labels.title, labels.title_at = title, len(self._sessions[session_id])

    def tag(self, session_id: str, tag: str | None) -> None:
        self._check(session_id)
        self._labels.setdefault(session_id, Labels()).tag = tag or None

    def delete(self, session_id: str) -> None:
        self._check(session_id)
        self._hold(session_id).close()
        parts: tuple[dict[str, Any], ...] = (self._sessions, self._labels, self._agents, self._agent_entries)
        for part in parts:
            part.pop(session_id, None)

    def repair(self, session_id: str) -> RepairReport | None:
        self._check(session_id)
        return None

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Log:
        if meta is not None:
            self._agents.setdefault(session_id, {})[agent_id] = meta
        return MemoryLog(agent_id, self._agent_entries.setdefault(session_id, {}), {})

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        return [AgentInfo(id=id, meta=meta) for id, meta in self._agents.get(session_id, {}).items()]

    def read_agent(self, session_id: str, agent_id: str) -> Iterator[Entry]:
        return iter(tuple(self._agent_entries.get(session_id, {}).get(agent_id, ())))

    def search(self, text: str, limit: int = 20) -> builtins.list[SearchHit]:
        return search_entries(reversed(self._sessions.items()), text, limit)

    def path(self, session_id: str) -> str:
        return ""
