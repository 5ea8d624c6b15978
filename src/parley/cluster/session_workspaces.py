"""Where the files of sessions are, and how their engines reach them.

The files of a `local` session are on the host that created it. An engine on another host uses the workspace service of
that host. While it is away, prompts wait for it if the session says so; otherwise turns run, and every tool call that
would touch files fails with the reason. When it is back, engines are started again, with their files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import msgspec

from parley.cluster.base import ClusterRegistry
from parley.cluster.shards import list_hosts
from parley.compose.permissions import AWAY_VARIABLE
from parley.compose.remote import EPOCH_VARIABLE, TOKEN_VARIABLE, is_listening
from parley.gateway.engines import Engine, EngineStart, TaskEngine
from parley.gateway.hub import SessionHub
from parley.gateway.live_session import LiveSession
from parley.protocol.base import Struct
from parley.workspace import private_files
from parley.workspace.remote.address import SessionWorkspace, WorkspaceAway, find_options, read_workspace

AWAY, BACK = "workspace_away", "workspace_back"


class UsedWorkspace(Struct):
    """What the engine of a session was started with."""

    live: LiveSession
    start: EngineStart
    chosen: SessionWorkspace
    epoch: int
    options: list[str] | None
    """None while the host with the files is away."""
    begins: asyncio.Future[EngineStart] | None = None
    """Set if its prompts wait for the host."""


class SessionWorkspaces:
    def __init__(self, registry: ClusterRegistry, host: str, token: str, hub: SessionHub) -> None:
        self._registry = registry
        self._host = host
        self._token = token
        self._hub = hub
        self._addresses: dict[str, str] = {}
        """The workspace services of the hosts that are there."""
        self._used: dict[str, UsedWorkspace] = {}
        """The `local` sessions of other hosts that have an engine here, or were told that their host is away."""
        self._told: WeakKeyDictionary[LiveSession, str] = WeakKeyDictionary()
        """What the clients of a session were told last."""

    def make_engine(self, live: LiveSession, start: EngineStart, chosen: SessionWorkspace, epoch: int) -> Engine:
        """Start an engine on the files of its session."""
        options, reason = self._find_options(chosen, start.cwd)
        used = UsedWorkspace(live, start, chosen, epoch, options)
        if chosen.kind == "local" and chosen.host != self._host:
            self._used[live.id] = used
        if options is not None:
            return TaskEngine(self._with_files(used, options))
        if chosen.wait:
            self._tell(live, AWAY, f"{reason}; until then, prompts wait")
            used.begins = asyncio.get_running_loop().create_future()
            return TaskEngine(start, used.begins)
        self._tell(live, AWAY, reason)
        folder = self._hub.settings.state / "away"  # an empty one: files of this host are not those of the session
        with private_files.open_folder(folder, below=1, make=True):
            pass
        environment = {**start.environment, AWAY_VARIABLE: reason}
        return TaskEngine(msgspec.structs.replace(start, cwd=str(folder), environment=environment))

    def is_waiting(self, live: LiveSession) -> bool:
        """Whether the prompts of a session wait for a host."""
        used = self._used.get(live.id)
        return used is not None and used.live is live and used.begins is not None and used.options is None

    def _find_options(self, chosen: SessionWorkspace, cwd: str) -> tuple[list[str] | None, str]:
        """The options of an engine, or why there are none."""
        try:
            return find_options(chosen, cwd, self._host, self._addresses), ""
        except WorkspaceAway as exc:
            return None, str(exc)

    def _with_files(self, used: UsedWorkspace, options: list[str]) -> EngineStart:
        """What the engine of a session is started with on its files."""
        start, own = used.start, {EPOCH_VARIABLE: str(used.epoch)}
        if self._token and (used.chosen.kind == "local" or TOKEN_VARIABLE not in start.environment):
            own[TOKEN_VARIABLE] = self._token  # a tenant may have a token for a workspace of its own
        environment = {**start.environment, **own} if options else start.environment
        return msgspec.structs.replace(start, argv=(*start.argv, *options), environment=environment)

    # Hosts come and go.

    async def look_for(self, workspace: str | None) -> None:
        """Find out whether the host is there that has the files of a session. Raises ClusterError."""
        if homes := self._find_homes([workspace]):
            await self._look(homes, is_sure=False)

    def _find_homes(self, stored: Iterable[str | None]) -> set[str]:
        found = (chosen.host for chosen in map(read_workspace, stored) if chosen is not None and chosen.kind == "local")
        return set(found) - {self._host}

    async def _look(self, homes: set[str], *, is_sure: bool) -> None:
        """`is_sure`: a host that was there before is still there, if it says so."""
        hosts = await list_hosts(self._registry)
        for home in homes:
            address = hosts[home].workspace if home in hosts else ""
            is_known = is_sure and address == self._addresses.get(home)
            # The row of a host that was killed stays for a while.
            if address and (is_known or await is_listening(address)):
                self._addresses[home] = address
            else:
                self._addresses.pop(home, None)

    async def refresh(self) -> None:
        """Let sessions use the hosts that are back. Raises ClusterError."""
        rows = self._hub.database.rows("SELECT DISTINCT workspace FROM sessions")
        if homes := self._find_homes(row["workspace"] for row in rows):
            await self._look(homes, is_sure=True)
        for session_id, used in list(self._used.items()):
            if self._hub.find_live(session_id) is not used.live:
                del self._used[session_id]
            else:
                await self._update(used)

    async def _update(self, used: UsedWorkspace) -> None:
        live, engine = used.live, used.live.engine
        options, reason = self._find_options(used.chosen, used.start.cwd)
        if options == used.options or (engine is not None and live.is_busy and not self.is_waiting(live)):
            return
        if options is None:
            self._tell(live, AWAY, reason)
        elif used.options is None:
            self._tell(live, BACK, f"the host {used.chosen.host} is back: the session uses its files again")
        if options is not None and used.options is None and used.begins is not None:
            used.options = options
            if not used.begins.done():  # or the engine was closed
                used.begins.set_result(self._with_files(used, options))
            return
        used.options, used.begins = options, None
        if engine is not None:
            await live.unload(engine)  # the next one is started with what is there then

    def _tell(self, live: LiveSession, code: str, text: str) -> None:
        if self._told.get(live) != code:
            self._told[live] = code
            live.publish_notice(code, text)
