"""What stores have in common that keep a session's log as lines in a file: its mending, and its agents' logs."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.errors import SessionError
from parley.protocol.base import Json
from parley.stores.base import Agent, Entry, Mended
from parley.stores.files.entry_codec import Context
from parley.stores.files.lease import take
from parley.stores.files.transcript import BELOW, Transcript
from parley.workspace import private_files


@contextmanager
def looking() -> Iterator[None]:
    """A folder that we may not look into is told as a session's error."""
    try:
        yield
    except OSError as flaw:
        raise SessionError(f"sessions cannot be looked for at {flaw.filename}: {flaw.strerror}") from None


def is_there(path: Path) -> bool:
    """Whether a session has its log here. Raises OSError, Unsafe for what is no file of ours."""
    try:
        private_files.look(path, below=BELOW)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class Files:
    """A part of such a store: where its logs lie, the store itself says."""

    _leases: Path
    _context: Context
    _complain: Callable[[str], None]

    def path(self, session_id: str) -> str:
        raise NotImplementedError

    def _known(self, session_id: str) -> Path:
        """Where the log of a session is. Raises UnknownSession."""
        raise NotImplementedError

    def repair(self, session_id: str) -> Mended | None:
        from parley.stores.files.repair import mend

        path = self._known(session_id)
        with take(self._leases / session_id, session_id):
            return mend(path, session_id)

    def agent_log(self, session_id: str, agent_id: str, meta: Json | None) -> Transcript:
        from parley.stores.files.sidechain import opened

        return opened(self.path(session_id), session_id, agent_id, meta, self._context, self._complain)

    def agents(self, session_id: str) -> builtins.list[Agent]:
        from parley.stores.files.sidechain import beside

        return beside(self.path(session_id))

    def read_agent(self, session_id: str, agent_id: str) -> Iterator[Entry]:
        from parley.stores.files.sidechain import read

        return read(self.path(session_id), session_id, agent_id, self._complain)
