"""Sessions that end with the process: tests, and `--no-session-persistence`."""

from __future__ import annotations

from collections.abc import Iterator

from parley.errors import SessionBusy, UnknownSession
from parley.stores.base import Entry


class MemoryLog:
    def __init__(self, session_id: str, sessions: dict[str, list[Entry]], holders: dict[str, MemoryLog]) -> None:
        self._session_id = session_id
        self._sessions = sessions
        self._holders = holders
        holders[session_id] = self

    def append(self, entry: Entry) -> None:
        if self._holders.get(self._session_id) is not self:
            raise SessionBusy(self._session_id, "whoever took it over")
        # The session that was written last stands last.
        kept = self._sessions.pop(self._session_id, [])
        kept.append(entry)
        self._sessions[self._session_id] = kept

    def sync(self) -> None:
        pass

    def entries(self, after: int = -1) -> Iterator[Entry]:
        return iter([entry for entry in self._sessions.get(self._session_id, ()) if entry.seq > after])

    def close(self) -> None:
        if self._holders.get(self._session_id) is self:
            del self._holders[self._session_id]


class Memory:
    def __init__(self) -> None:
        self._sessions: dict[str, list[Entry]] = {}
        self._holders: dict[str, MemoryLog] = {}

    def exists(self, session_id: str) -> bool:
        return session_id in self._sessions

    def create(self, session_id: str) -> MemoryLog:
        return self._held(session_id)

    def open(self, session_id: str, *, steal: bool = False) -> MemoryLog:
        self._check(session_id)
        return self._held(session_id, steal=steal)

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        self._check(session_id)
        return iter([entry for entry in self._sessions[session_id] if entry.seq > after])

    def _held(self, session_id: str, *, steal: bool = False) -> MemoryLog:
        if session_id in self._holders and not steal:
            raise SessionBusy(session_id, "this process")
        return MemoryLog(session_id, self._sessions, self._holders)

    def _check(self, session_id: str) -> None:
        if session_id not in self._sessions:
            raise UnknownSession(session_id)

    def newest(self) -> str | None:
        return next(reversed(self._sessions), None)

    def path(self, session_id: str) -> str:
        return ""
