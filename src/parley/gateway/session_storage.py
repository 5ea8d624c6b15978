"""Where the sessions of a hub are kept, and who else decides about them.

A hub on one machine keeps them in its own files, and no other process has them: `SessionStorage` as is. A host of a
cluster is a hub with another one (`parley/cluster/host_sessions.py`), which writes what is recorded to the log of the
cluster, too. All the rest of a hub is the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from parley.gateway.engines import Engine, EngineStart
from parley.gateway.security.access import Principal, Quotas
from parley.gateway.session_log.records import AnyRecord, CreatedRecord
from parley.gateway.session_log.session_log import SessionLog
from parley.stores.base import Store
from parley.workspace.remote.address import SessionWorkspace

if TYPE_CHECKING:
    from parley.gateway.live_session import LiveSession


class SessionStorage:
    is_shared = False
    """Whether other hosts continue the sessions. Then a turn that was interrupted continues when its session is loaded,
    and does not fail; and the files of this hub are copies."""
    engine_argv: tuple[str, ...] = ()
    """Options of every engine, whatever those of its session say."""
    default_workspace: SessionWorkspace | None = None
    """Where the files of new sessions are; None for here, and nowhere else."""

    def new_id(self, source: str | None = None) -> str:
        """The id of a new session. `source`: the session that it is a copy of."""
        return str(uuid4())

    def begin(self, session_id: str, tenant: str) -> None:
        """The log of a new session is about to begin. Raises SessionError."""

    def add(self, log: SessionLog, records: Sequence[AnyRecord]) -> None:
        """Something was recorded in the log of a session. Raises SessionError."""

    def check_session(self, principal: Principal) -> None:
        """Raises Refusal if a principal may not create another session, although those of this hub allow it."""

    def check_turn(self, live: LiveSession, created: CreatedRecord, quotas: Quotas) -> None:
        """Raises Refusal if a session may not ask a model now, although the others of this hub allow it."""

    def check_load(self, session_id: str) -> None:
        """Raises Refusal if the engine of a session must not be started."""

    def engine_store(self, session_id: str) -> Store | None:
        """Where the engine of a session keeps its transcripts; None for where its options say."""
        return None

    def begin_copy(self, session_id: str, new_id: str) -> Store | None:
        """Where the transcript of a copy is kept; None for where the options of the session say."""
        return None

    def make_engine(self, live: LiveSession, start: EngineStart, chosen: SessionWorkspace) -> Engine | None:
        """Start an engine on the files of its session; None if the hub does it."""
        return None

    async def wait_stored(self, session_id: str) -> None:
        """Wait until everything that was recorded is where the next host finds it. Raises SessionError."""

    async def on_deleted(self, session_id: str) -> None:
        """A session was deleted. Raises SessionError."""
