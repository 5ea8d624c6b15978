"""The gateway's hub on a host: what it records goes to the log of the cluster, too, and is true when it is there.

The log files in the folder of a host are copies for its own readers. They are filled when a session is loaded and
removed when it is unloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from parley.cluster.session_log.batches import LoadedLog
from parley.cluster.session_workspaces import SessionWorkspaces
from parley.gateway.engines import Engine, EngineStart
from parley.gateway.hub import HubSettings, SessionHub, require_created
from parley.gateway.live_session import LiveSession
from parley.gateway.refusal import Refusal
from parley.gateway.reporting import ServerLog
from parley.gateway.security.access import Principal
from parley.gateway.session_log.records import AnyRecord
from parley.gateway.session_log.session_log import Follower, SessionLog
from parley.stores.base import Store
from parley.workspace.remote.address import SessionWorkspace

if TYPE_CHECKING:
    from parley.cluster.host_sessions import HostSessions
    from parley.cluster.tenants import TenantLimits

NEW_SESSION_ID: ContextVar[str] = ContextVar("new_session_id", default="")
"""The id of the session that the current request creates. Its shard is the one that the request was sent to."""


class ClusterHub(SessionHub):
    continues_turns = True
    engine_argv: tuple[str, ...] = ("--fsync", "turn")  # an effect waits for the log, and so does a result

    def __init__(self, settings: HubSettings, log: ServerLog, places: HostSessions) -> None:
        """Raises SessionError."""
        super().__init__(settings, log)
        self.database.change("PRAGMA synchronous=OFF")  # its file is not used again after a power failure
        self._places = places
        self.limits: TenantLimits | None = None
        """What tenants and tokens may use in the whole cluster."""
        self.find_stopped: Callable[[str], str | None] = lambda session: None
        """Why the engine of a session must not be started, if hosts died of it."""
        self.workspaces: SessionWorkspaces | None = None
        """Where the files of sessions are; None if all hosts have the same."""

    def new_id(self, source: str | None = None) -> str:
        return NEW_SESSION_ID.get() or self._places.new_id(source)

    def prepare_log(self, session_id: str, tenant: str) -> None:
        self._places.begin(session_id, tenant)

    def follow(self, log: SessionLog, records: Sequence[AnyRecord]) -> None:
        place = self._places.find(log.session_id)
        for record in records:
            place.add(record)
        super().follow(log, records)

    def adopt(self, loaded: LoadedLog, session_id: str) -> LiveSession:
        """Fill the log and the rows of a session that another host may have run. Raises SessionError."""
        log = write_log(self.log_path(session_id), loaded, self.follow)
        self.rows.restore(log, is_spent_here=False)
        return self._add_live(log)

    def bury(self, log: SessionLog) -> None:
        log.remove()

    def engine_store(self, session_id: str) -> Store:
        return self._places.find(session_id).store

    def copy_store(self, session_id: str, new_id: str) -> Store:
        return self._places.begin_copy(session_id, new_id)

    def make_engine(self, live: LiveSession, start: EngineStart, chosen: SessionWorkspace | None) -> Engine:
        if self.workspaces is None or chosen is None:
            return super().make_engine(live, start, chosen)
        epoch = self._places.find_epoch(live.id)
        return self.workspaces.make_engine(live, start, chosen, epoch)

    async def fork(self, principal: Principal, session_id: str, uuid: str | None, title: str) -> LiveSession:
        copy = await super().fork(principal, session_id, uuid, title)
        await self._places.find(copy.id).wait_committed()
        return copy

    async def delete(self, principal: Principal, session_id: str) -> None:
        await super().delete(principal, session_id)
        await self._places.on_deleted(session_id)

    def _check_session_quota(self, principal: Principal) -> None:
        if self.limits is None:
            super()._check_session_quota(principal)
        else:
            self.limits.check_session(principal)

    def _admit(self, live: LiveSession, joins_turn: bool) -> None:
        super()._admit(live, joins_turn)
        created = require_created(live.log.state)
        if self.limits is not None:
            self.limits.check_turn(created.tenant, created.creator, live.id, self.find_quotas(created.creator))

    def _load(self, live: LiveSession) -> Engine:
        if reason := self.find_stopped(live.id):
            raise Refusal("hosts_failed", reason)
        return super()._load(live)

    def first_prompt(self, session_id: str) -> str | None:
        """The first prompt of a session that has no result."""
        live = self.find_live(session_id)  # one that is busy is not evicted
        return None if live is None else next(iter(live.log.state.open_prompts), None)

    def stored_bytes(self, session_id: str) -> int:
        """How long the lines of a session are."""
        if not self.log_path(session_id).exists():
            return 0
        with self.open_log(session_id) as log:
            return log.state.line_bytes

    def find_live(self, session_id: str) -> LiveSession | None:
        """The session, if it is in use."""
        return self._sessions.get(session_id)

    def has_work(self, session_id: str) -> bool:
        """Whether a session has a turn that runs or waits to run, or an open question."""
        row = self.database.row(
            "SELECT open_prompts > 0 OR EXISTS (SELECT 1 FROM questions WHERE session=id AND state='open') AS is_busy"
            " FROM sessions WHERE id=?",
            session_id,
        )
        live = self.find_live(session_id)
        return bool(row is not None and row["is_busy"]) or (live is not None and live.state != "idle")

    def drop(self, session_id: str) -> LiveSession | None:
        """Forget a session without a word to anybody: its connections end, its engine says nothing more."""
        live = self._sessions.pop(session_id, None)
        if live is not None:
            self._unloaded += 1
            if live.engine is not None:
                live.engine.silence()
            for client in list(live.clients):
                live.detach(client)
            live.log.close()
        wire = self._wires.pop(session_id, None)
        if wire is not None:
            wire.remove()
        return live


def write_log(path: Path, loaded: LoadedLog, follow: Follower = lambda log, records: None) -> SessionLog:
    """A log file with what the log of the cluster says, without the transcripts. Raises SessionError."""
    path.unlink(missing_ok=True)
    log = SessionLog(path, follow)
    state = msgspec.structs.replace(loaded.state, transcripts={}, commands={})
    log.restore(list(state.records()), *([line] for line in loaded.lines))
    log.state.summary = loaded.state.summary
    return log
