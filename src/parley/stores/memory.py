"""Sessions that end with the process: tests, and `--no-session-persistence`."""

from __future__ import annotations

from collections.abc import Iterator

from parley.errors import UnknownSession
from parley.stores.base import Entry


class MemoryLog:
    def __init__(self, session_id: str, sessions: dict[str, list[Entry]]) -> None:
        self._session_id = session_id
        self._sessions = sessions

    def append(self, entry: Entry) -> None:
        # The session that was written last stands last.
        kept = self._sessions.pop(self._session_id, [])
        kept.append(entry)
        self._sessions[self._session_id] = kept

    def entries(self) -> Iterator[Entry]:
        return iter(list(self._sessions.get(self._session_id, ())))

    def close(self) -> None:
        pass


class Memory:
    def __init__(self) -> None:
        self._sessions: dict[str, list[Entry]] = {}

    def exists(self, session_id: str) -> bool:
        return session_id in self._sessions

    def create(self, session_id: str) -> MemoryLog:
        return MemoryLog(session_id, self._sessions)

    def open(self, session_id: str) -> MemoryLog:
        if session_id not in self._sessions:
            raise UnknownSession(session_id)
        return MemoryLog(session_id, self._sessions)

    def newest(self) -> str | None:
        return next(reversed(self._sessions), None)

    def path(self, session_id: str) -> str:
        return ""
