"""What the stores in databases share: which sessions exist, and that only these are opened and read.

See also: `sqlite.py` and `postgres.py` for the queries, `rows.py` for the rows.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from parley.errors import UnknownSession
from parley.stores.base import Entry, Info, Log, check_id
from parley.stores.files.entry_codec import EntryContext
from parley.stores.sql.rows import agent_key

SessionLog = TypeVar("SessionLog", bound=Log)


class SqlStore(ABC, Generic[SessionLog]):
    """A `parley.stores.base.Store` without the queries of one database."""

    def __init__(self, context: EntryContext) -> None:
        self._context = context

    @abstractmethod
    def info(self, session_id: str) -> Info | None: ...

    @abstractmethod
    def list(self, project: str | None = None, limit: int | None = None, offset: int = 0) -> builtins.list[Info]: ...

    @abstractmethod
    def _open_log(self, session_id: str, *, steal: bool = False) -> SessionLog:
        """Hold a session, whether or not it exists. Raises SessionBusy."""

    @abstractmethod
    def _entries(self, key: str, after: int) -> Iterator[Entry]:
        """The rows under the key of a session or a subagent. Raises SessionError, DamagedSession."""

    def exists(self, session_id: str) -> bool:
        return self.info(session_id) is not None

    def check_exists(self, session_id: str) -> None:
        """Raises UnknownSession."""
        if not self.exists(session_id):
            raise UnknownSession(session_id)

    def create(self, session_id: str) -> SessionLog:
        return self._open_log(check_id(session_id))

    def open(self, session_id: str, *, steal: bool = False) -> SessionLog:
        self.check_exists(session_id)
        return self._open_log(session_id, steal=steal)

    def read(self, session_id: str, after: int = -1) -> Iterator[Entry]:
        self.check_exists(session_id)
        return self._entries(session_id, after)

    def read_agent(self, session_id: str, agent_id: str) -> Iterator[Entry]:
        return self._entries(agent_key(session_id, check_id(agent_id)), -1)

    def newest(self) -> str | None:
        found = self.list(self._context.cwd, limit=1)
        return found[0].id if found else None

    def path(self, session_id: str) -> str:
        """A database has no transcript."""
        return ""
