"""The sessions of a process: open, find, close.

Sessions share nothing but the process. There is one over stdio; the in-process mode of the SDK can have many.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from parley.engine.control.dispatcher import ControlDispatcher
from parley.engine.session.config import SessionConfig
from parley.engine.session.session import Session
from parley.errors import SessionError
from parley.host import Host
from parley.protocol.base import Json
from parley.stores.base import Log


class Hub:
    def __init__(self) -> None:
        self._sessions: list[Session] = []

    def open(self, config: SessionConfig, host: Host) -> Session:
        """Open a session. Raises SessionError if it is already open."""
        if self.find(config.identity.id) is not None:
            raise SessionError(f"session {config.identity.id} is already open")

        storage = config.storage

        def agent_log(agent_id: str, meta: Json | None) -> Log:
            return storage.mirror_agent_log(agent_id, meta, storage.open_agent_log(agent_id, meta), host.send)

        config = msgspec.structs.replace(config, storage=msgspec.structs.replace(storage, open_agent_log=agent_log))
        mirrored = config.with_wrapped_log(lambda log: storage.mirror_log(log, host.send))
        session = Session(mirrored, host, ControlDispatcher)
        self._sessions.append(session)
        return session

    def find(self, session_id: str) -> Session | None:
        return next((session for session in self._sessions if session.id == session_id), None)

    def close(self, session: Session) -> None:
        """Close the log of a session whose turns have ended."""
        if session in self._sessions:
            self._sessions.remove(session)
            session.journal.close()

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions))

    def __len__(self) -> int:
        return len(self._sessions)
