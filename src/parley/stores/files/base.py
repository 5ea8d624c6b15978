"""What stores have in common that keep a session's log as lines in a file: its mending, and its agents' logs."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.errors import SessionError
from parley.protocol.base import Json
from parley.stores.base import AgentInfo, Entry, RepairReport
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.lease import acquire
from parley.stores.files.transcript import BELOW, Transcript
from parley.workspace import private_files


@contextmanager
def translate_os_errors() -> Iterator[None]:
    """A folder that we may not look into is told as a session's error."""
    try:
        yield
    except OSError as exc:
        raise SessionError(f"sessions cannot be looked for at {exc.filename}: {exc.strerror}") from None


def log_exists(path: Path) -> bool:
    """Whether a session has its log here. Raises OSError, Unsafe for what is no file of ours."""
    try:
        private_files.stat_file(path, below=BELOW)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class FileStore:
    """A part of such a store: where its logs lie, the store itself says."""

    _leases: Path
    _context: EntryContext
    _warn: Callable[[str], None]

    def path(self, session_id: str) -> str:
        raise NotImplementedError

    def _path_of_existing(self, session_id: str) -> Path:
        """Where the log of a session is. Raises UnknownSession."""
        raise NotImplementedError

    def repair(self, session_id: str) -> RepairReport | None:
        from parley.stores.files.repair import repair_file

        path = self._path_of_existing(session_id)
        with acquire(self._leases / session_id, session_id):
            return repair_file(path, session_id)

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Transcript:
        from parley.stores.files.sidechain import open_agent_log

        return open_agent_log(self.path(session_id), session_id, agent_id, meta, self._context, self._warn)

    def agents(self, session_id: str) -> builtins.list[AgentInfo]:
        from parley.stores.files.sidechain import list_agents

        return list_agents(self.path(session_id))

    def read_agent(self, session_id: str, agent_id: str) -> Iterator[Entry]:
        from parley.stores.files.sidechain import read_agent_log

        return read_agent_log(self.path(session_id), session_id, agent_id, self._warn)
