"""Sessions that end with the process: tests, and `--no-session-persistence`."""

from __future__ import annotations

from collections.abc import Iterator

from parley.errors import UnknownSession
from parley.stores.base import Entry


class MemoryLog:
    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def append(self, entry: Entry) -> None:
        self._entries.append(entry)

    def entries(self) -> Iterator[Entry]:
        return iter(list(self._entries))

    def close(self) -> None:
        pass


class Memory:
    def __init__(self) -> None:
        self._logs: dict[str, MemoryLog] = {}

    def exists(self, session_id: str) -> bool:
        return session_id in self._logs

    def create(self, session_id: str) -> MemoryLog:
        return self._logs.setdefault(session_id, MemoryLog())

    def open(self, session_id: str) -> MemoryLog:
        if session_id not in self._logs:
            raise UnknownSession(session_id)
        return self._logs[session_id]

    def newest(self) -> str | None:
        return next(reversed(self._logs), None)

    def path(self, session_id: str) -> str:
        return ""
