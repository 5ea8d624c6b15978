"""The gateway's hub on a host: its files are a copy of what the log of each session says."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

from parley.cluster.session_log.engine_store import EngineStore
from parley.cluster.session_log.records import AnyRecord, LineRecord
from parley.cluster.session_workspaces import SessionWorkspaces
from parley.gateway.engines import Engine, EngineStart
from parley.gateway.hub import HubSettings, SessionHub
from parley.gateway.line_log import TIME, TIMES, LineLog
from parley.gateway.live_session import LiveSession
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Quotas
from parley.gateway.server_log import ServerLog
from parley.stores.base import Store
from parley.workspace.remote.address import SessionWorkspace

NEW_SESSION_ID: ContextVar[str] = ContextVar("new_session_id", default="")
"""The id of the session that the current request creates. Its shard is the one that the request was sent to."""


class Place(Protocol):
    """Where the hub keeps a session: a `HostedSession`."""

    store: EngineStore

    def add(self, record: AnyRecord) -> int: ...

    async def wait_committed(self) -> None: ...


class Places(Protocol):
    """The sessions that the host has loaded: `HostSessions`."""

    def find(self, session_id: str) -> Place:
        """Raises SessionError if the host does not have it."""

    def new_id(self, source: str | None) -> str: ...

    def begin_copy(self, session_id: str, new_id: str) -> Store: ...

    async def on_deleted(self, session_id: str) -> None: ...

    def find_epoch(self, session_id: str) -> int:
        """Of the lease under which a session is run. Raises SessionError."""


class HostLimits(Protocol):
    """What the hub asks of `TenantLimits`."""

    def check_session(self, principal: Principal) -> None:
        """Raises Refusal."""

    def check_turn(self, tenant: str, creator: str, session: str, of_token: Quotas) -> None:
        """Raises Refusal."""


class ClusterHub(SessionHub):
    continues_turns = True
    engine_argv: tuple[str, ...] = ("--fsync", "turn")  # an effect waits for the log, and so does a result

    def __init__(self, settings: HubSettings, log: ServerLog, places: Places) -> None:
        """Raises SessionError."""
        super().__init__(settings, log)
        self.database.change("PRAGMA synchronous=OFF")  # its file is not used again after a power failure
        self._places = places
        self.limits: HostLimits | None = None
        """What tenants and tokens may use in the whole cluster."""
        self.find_stopped: Callable[[str], str | None] = lambda session: None
        """Why the engine of a session must not be started, if hosts died of it."""
        self.workspaces: SessionWorkspaces | None = None
        """Where the files of sessions are; None if all hosts have the same."""

    def new_id(self, source: str | None = None) -> str:
        return NEW_SESSION_ID.get() or self._places.new_id(source)

    def open_line_log(self, session_id: str, path: Path) -> LineLog:
        return RecordedLineLog(path, self._places.find(session_id))

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
        row = self.database.row("SELECT tenant, creator FROM sessions WHERE id=?", live.id)
        if self.limits is not None and row is not None:
            self.limits.check_turn(row["tenant"], row["creator"], live.id, self.find_quotas(row["creator"]))

    def _load(self, live: LiveSession) -> Engine:
        if reason := self.find_stopped(live.id):
            raise Refusal("hosts_failed", reason)
        return super()._load(live)

    def first_prompt(self, session_id: str) -> str | None:
        """The first prompt of a session that has no result."""
        row = self.database.row(
            "SELECT uuid FROM prompts WHERE session=? AND line IS NOT NULL ORDER BY rowid LIMIT 1", session_id
        )
        return None if row is None else str(row["uuid"])

    def stored_bytes(self, session_id: str) -> int:
        """How long the lines of a session are."""
        try:
            return self.line_path(session_id).stat().st_size
        except OSError:
            return 0

    def line_path(self, session_id: str) -> Path:
        return self._log_path(session_id)

    def find_live(self, session_id: str) -> LiveSession | None:
        """The session, if it is in use."""
        return self._sessions.get(session_id)

    def has_work(self, session_id: str) -> bool:
        """Whether a session has a turn that runs or waits to run, or an open question."""
        row = self.database.row(
            "SELECT EXISTS (SELECT 1 FROM prompts WHERE session=? AND line IS NOT NULL)"
            " OR EXISTS (SELECT 1 FROM questions WHERE session=? AND state='open') AS found",
            *(session_id, session_id),
        )
        live = self.find_live(session_id)
        return bool(row is not None and row["found"]) or (live is not None and live.state != "idle")

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


class RecordedLineLog(LineLog):
    """Lines that are in the log of the session, too."""

    def __init__(self, path: Path, place: Place) -> None:
        super().__init__(path)
        self._place = place

    def append(self, line: bytes) -> int:
        number = super().append(line)
        self._place.add(LineRecord(number=number, at=time.time(), data=line))
        return number


def write_lines(path: Path, lines: list[LineRecord]) -> None:
    """Restore the lines of a session."""
    path.write_bytes(b"".join(line.data + b"\n" for line in lines))
    path.with_suffix(TIMES).write_bytes(b"".join(TIME.pack(line.at) for line in lines))


def read_lines(path: Path) -> list[LineRecord]:
    """The lines of a session with their times."""
    log = LineLog(path)
    try:
        found: list[LineRecord] = []
        while lines := log.read(len(found)):
            times = log.times(lines[0][0], lines[-1][0])
            found += [
                LineRecord(number=number, at=at or 0.0, data=line)
                for (number, line), at in zip(lines, times, strict=True)
            ]
        return found
    finally:
        log.close()
