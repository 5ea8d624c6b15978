"""Where the files of sessions are, and how their engines reach them.

The files of a `local` session are on the host that created it. An engine on another host uses the workspace service of
that host. While it is away, prompts wait for it if the session says so; otherwise turns run, and every tool call that
would touch files fails with the reason. When it is back, engines are started again, with their files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from parley.cluster.base import Registry
from parley.cluster.host_info import list_hosts
from parley.compose.permissions import AWAY_VARIABLE
from parley.compose.workspace.remote import EPOCH_VARIABLE, TOKEN_VARIABLE
from parley.compose.workspace.server import is_listening
from parley.gateway.engines import Engine, EngineStart, EngineTask
from parley.gateway.live_session import LiveSession
from parley.protocol.base import Struct
from parley.workspace import private_files
from parley.workspace.remote.address import SessionWorkspace, WorkspaceAway, find_options, read_workspace

if TYPE_CHECKING:
    from parley.cluster.cluster_hub import ClusterHub

AWAY, BACK = "workspace_away", "workspace_back"


class UsedWorkspace(Struct):
    """What the engine of a session was started with."""

    live: LiveSession
    start: EngineStart
    chosen: SessionWorkspace
    epoch: int
    options: list[str] | None
    """None while the host with the files is away."""
    waiting: WaitingEngine | None = None


class SessionWorkspaces:
    def __init__(self, registry: Registry, host: str, token: str, hub: ClusterHub) -> None:
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
            return self._start(used, options)
        if chosen.wait:
            self._tell(live, AWAY, f"{reason}; until then, prompts wait")
            used.waiting = WaitingEngine(start)
            return used.waiting
        self._tell(live, AWAY, reason)
        folder = self._hub.settings.state / "away"  # an empty one: files of this host are not those of the session
        with private_files.open_folder(folder, below=1, make=True):
            pass
        environment = {**start.environment, AWAY_VARIABLE: reason}
        return EngineTask(msgspec.structs.replace(start, cwd=str(folder), environment=environment))

    def is_waiting(self, live: LiveSession) -> bool:
        """Whether the prompts of a session wait for a host."""
        used = self._used.get(live.id)
        return used is not None and used.live is live and used.waiting is not None and used.options is None

    def _find_options(self, chosen: SessionWorkspace, cwd: str) -> tuple[list[str] | None, str]:
        """The options of an engine, or why there are none."""
        try:
            return find_options(chosen, cwd, self._host, self._addresses), ""
        except WorkspaceAway as exc:
            return None, str(exc)

    def _start(self, used: UsedWorkspace, options: list[str]) -> Engine:
        start, own = used.start, {EPOCH_VARIABLE: str(used.epoch)}
        if self._token and (used.chosen.kind == "local" or TOKEN_VARIABLE not in start.environment):
            own[TOKEN_VARIABLE] = self._token  # a tenant may have a token for a workspace of its own
        environment = {**start.environment, **own} if options else start.environment
        return EngineTask(msgspec.structs.replace(start, argv=(*start.argv, *options), environment=environment))

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
        if options is not None and used.options is None and used.waiting is not None:
            used.options = options
            used.waiting.begin(self._start(used, options))
            return
        used.options, used.waiting = options, None
        if engine is not None:
            await live.unload(engine)  # the next one is started with what is there then

    def _tell(self, live: LiveSession, code: str, text: str) -> None:
        if self._told.get(live) != code:
            self._told[live] = code
            live.publish_notice(code, text)


class WaitingEngine:
    """Keeps what is written until there is an engine to read it."""

    def __init__(self, start: EngineStart) -> None:
        self._on_end = start.on_end
        self._early: list[bytes] = []
        self._engine: Engine | None = None
        self._is_ended = False

    def begin(self, engine: Engine) -> None:
        self._engine = engine
        for data in self._early:
            engine.write(data)

    def write(self, data: bytes) -> None:
        if self._engine is None:
            self._early.append(data)
        else:
            self._engine.write(data)

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()
        elif not self._is_ended:
            self._is_ended = True
            self._on_end("")

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.stop()

    async def kill(self) -> None:
        self.silence()
        if self._engine is not None:
            await self._engine.kill()

    def silence(self) -> None:
        self._is_ended = True
        if self._engine is not None:
            self._engine.silence()
