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
        self._sessions: dict[str, Session] = {}

    def open(self, config: SessionConfig, host: Host) -> Session:
        """Open a session. Raises SessionError if it is open already."""
        if config.session_id in self._sessions:
            raise SessionError(f"session {config.session_id} is open already")

        storage = config.storage

        def agent_log(agent_id: str, meta: Json | None) -> Log:
            return storage.mirror_agent_log(agent_id, meta, storage.open_agent_log(agent_id, meta), host.send)

        mirrored = msgspec.structs.replace(
            storage, log=storage.mirror_log(storage.log, host.send), open_agent_log=agent_log
        )
        config = msgspec.structs.replace(config, storage=mirrored)
        session = self._sessions[config.session_id] = Session(config, host, ControlDispatcher)
        return session

    def find(self, session_id: str) -> Session | None:
        return self._sessions.get(session_id)

    def close(self, session_id: str) -> None:
        """Close the log of a session whose turns have ended."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.config.storage.log.close()

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)
