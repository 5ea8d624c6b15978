"""The list of sessions: what it shows, how it is filtered, and who watches it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from sqlite3 import Row
from typing import TYPE_CHECKING, Any

import msgspec

from parley.gateway.security.access import Principal, Scope
from parley.protocol.base import UNSET, Json, Struct, UnsetType
from parley.workspace.remote.address import SessionWorkspace, read_workspace

if TYPE_CHECKING:
    from parley.gateway.live_session import LiveSession

SELECT_SESSIONS = (
    "SELECT *, (SELECT count(*) FROM questions WHERE session=id AND questions.state='open') AS open_questions"
    " FROM sessions"
)


STATE = (
    "CASE coalesce((SELECT value FROM json_each(?) WHERE key=sessions.id),"
    " CASE WHEN EXISTS (SELECT 1 FROM questions WHERE session=sessions.id AND questions.state='open')"
    " THEN 'requires_action' ELSE 'idle' END)"
    " WHEN 'running' THEN 'running' WHEN 'requires_action' THEN 'requires_action'"
    " ELSE CASE WHEN last_error IS NULL THEN 'idle' ELSE 'failed' END END"
)
"""The state of a session, as `describe_session` tells it. The parameter has the states of those that are loaded."""
LARGEST_PAGE = 1000
"""How many sessions a client gets at most at a time."""


class SessionInfo(Struct, frozen=True, kw_only=True):
    """A session in a list."""

    id: str
    cwd: str
    title: str
    """The start of the first prompt if no title was given."""
    state: str
    """`idle`, `running`, `requires_action`, or `failed`: idle after a turn that failed."""
    is_loaded: bool
    clients: int
    open_questions: int
    last_line: int | None
    """The number of the last line; None if the session is not loaded."""
    created_at: float
    used_at: float
    model: str | None
    permission_mode: str | None
    cost_usd: float
    turns: int
    last_error: str | None
    """Why the last turn failed."""
    preview: str
    """The start of what the model said last."""
    workspace: SessionWorkspace | UnsetType = UNSET
    """Where its files are, if they are not simply on the server."""
    match: str | UnsetType = UNSET
    """Where a search found what it looked for."""
    is_elsewhere: bool | UnsetType = UNSET
    """True if another process runs it: it can be watched, and taken over."""


class SessionQuery(Struct, frozen=True, kw_only=True):
    """Which sessions a list has."""

    search: str = ""
    states: frozenset[str] = frozenset()
    limit: int = LARGEST_PAGE
    offset: int = 0
    cwd: str = ""
    """Only those of this directory."""

    def condition(
        self, principal: Principal, found: Mapping[str, str], running: Mapping[str, str]
    ) -> tuple[str, list[object]]:
        """The SQL of a condition, and its parameters.

        `found`: the sessions in which the text was said. `running`: the states of those that are loaded.
        """
        parts, values = ["1"], list[object]()
        if not principal.may(Scope.ADMIN):
            parts, values = ["tenant=?"], [principal.tenant]
        if self.cwd:
            parts.append("cwd=?")
            values.append(self.cwd)
        if text := self.search.casefold():
            parts.append("(id IN (SELECT value FROM json_each(?)) OR instr(casefold(title || char(10) || cwd), ?))")
            values += [msgspec.json.encode(list(found)).decode(), text]
        if self.states:
            parts.append(f"{STATE} IN (SELECT value FROM json_each(?))")
            values += [msgspec.json.encode(running).decode(), msgspec.json.encode(sorted(self.states)).decode()]
        return " AND ".join(parts), values


def describe_session(
    row: Row, live: LiveSession | None, match: str | None = None, *, is_elsewhere: bool = False
) -> SessionInfo:
    """`row`: of SELECT_SESSIONS."""
    is_loaded = live is not None and live.engine is not None
    state = "requires_action" if row["open_questions"] else "idle"
    if live is not None and is_loaded:
        state = live.state
    if state == "idle" and row["last_error"] is not None:
        state = "failed"
    made: Json = {
        "state": state,
        "is_loaded": is_loaded,
        "clients": 0 if live is None else len(live.clients),
        "last_line": None if live is None else live.log.last,
        "workspace": read_workspace(row["workspace"]) or UNSET,
        "match": UNSET if match is None else match,
        "is_elsewhere": is_elsewhere or UNSET,
    }
    return SessionInfo(**made, **{name: row[name] for name in SessionInfo.__struct_fields__ if name not in made})


class Watcher:
    """A client that watches the list. Of a session that changes often, only the newest state waits."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self._waiting: dict[str, bytes] = {}
        self._wake = asyncio.Event()

    def offer(self, session_id: str, event: bytes) -> None:
        self._waiting[session_id] = event
        self._wake.set()

    async def take(self) -> list[bytes]:
        """Wait for events."""
        await self._wake.wait()
        self._wake.clear()
        waiting, self._waiting = self._waiting, {}
        return list(waiting.values())


class SessionListEvents:
    """Tells watchers which sessions have changed."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []

    @property
    def has_watchers(self) -> bool:
        return bool(self._watchers)

    def watch(self, principal: Principal) -> Watcher:
        watcher = Watcher(principal)
        self._watchers.append(watcher)
        return watcher

    def end(self, watcher: Watcher) -> None:
        self._watchers.remove(watcher)

    def report(self, tenant: str, info: SessionInfo) -> None:
        self._send(tenant, info.id, {"type": "session", "session": info})

    def report_deleted(self, tenant: str, session_id: str) -> None:
        self._send(tenant, session_id, {"type": "deleted", "id": session_id})

    def _send(self, tenant: str, session_id: str, event: Any) -> None:
        data = msgspec.json.encode(event)
        for watcher in self._watchers:
            if watcher.principal.may_see(tenant):
                watcher.offer(session_id, data)
