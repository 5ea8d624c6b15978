"""What file stores share: repair, and the logs of subagents."""

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
    """Translate errors of directory listings to SessionError."""
    try:
        yield
    except private_files.UnsafeFile as exc:
        raise SessionError(exc.strerror) from None
    except OSError as exc:
        raise SessionError(f"cannot access sessions in {exc.filename}: {exc.strerror}") from None


def log_exists(path: Path) -> bool:
    """Whether the log file exists. Raises OSError, and UnsafeFile if the file is not ours."""
    try:
        private_files.stat_file(path, below=BELOW)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class FileStore:
    """Base class of file stores. The subclass knows where its logs are."""

    _leases: Path
    _context: EntryContext
    _warn: Callable[[str], None]

    def path(self, session_id: str) -> str:
        raise NotImplementedError

    def _path_of_existing(self, session_id: str) -> Path:
        """The path of a session's log. Raises UnknownSession."""
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
