"""A host: the gateway's hub without a listener. It owns shards and runs their sessions.

    host = Host(cluster, settings, log)
    host.app            the ASGI application of the hub; requests get to it over the bus
    host.sessions       loads sessions, see `host_sessions.py`
    host.services       what else is done for each shard: append the bridge before `run`
    await host.run(stop, stop_now)

`NEW_SESSION_ID` is set around a request that creates a session: the id that the gateway has chosen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property

import msgspec
from starlette.types import ASGIApp

from parley.cluster.base import Cluster, ClusterError, SessionKey
from parley.cluster.cluster_hub import NEW_SESSION_ID
from parley.cluster.host_info import HostInfo, host_key
from parley.cluster.host_sessions import HostSessions, ShardService
from parley.cluster.session_log.batches import VERSION, NewerVersion
from parley.cluster.session_workspaces import SessionWorkspaces
from parley.cluster.shards import ShardEvents, ShardKeeper, now
from parley.compose.workspace.server import WorkspaceService
from parley.gateway.http.auth import Gate
from parley.gateway.http.routes import Routes
from parley.gateway.hub import HubSettings
from parley.gateway.reporting import ServerLog
from parley.gateway.security.tokens import Tokens
from parley.gateway.server import keep_up, measure_lag
from parley.protocol.base import Struct
from parley.version import __version__
from parley.workspace.private_database import IN_MEMORY
from parley.workspace.remote.address import SessionWorkspace

__all__ = ["NEW_SESSION_ID", "Host", "HostSettings"]

CLOSE_SECONDS = 5.0
FIRST_SECONDS = 1.0
"""The shortest time for which the registry keeps a row."""


class HostSettings(Struct, frozen=True, kw_only=True):
    name: str
    """Unlike that of any other host, also of an earlier process on this machine."""
    hub: HubSettings
    """With an empty state folder: it is a copy of what the logs say."""
    drain_seconds: float = 30
    tenant_quotas: str = ""
    """A TOML file with what each tenant may use; empty for no limits."""
    tenant_secrets: str = ""
    """A folder with the keys of tenants; empty for none."""
    workspace: str = ""
    """The address of the workspace service of this machine, if there is one."""
    workspace_service: WorkspaceService | None = None
    """How to serve the folders of this machine to the other hosts."""
    workspace_token: str = ""
    """What the workspace services of all hosts ask for."""
    default_workspace: SessionWorkspace = SessionWorkspace()
    """Where the files of new sessions are."""
    metrics: tuple[str, int] | None = None
    """Where probes and Prometheus find it: address and port."""


class Host:
    def __init__(
        self, cluster: Cluster, settings: HostSettings, log: ServerLog, clock: Callable[[], float] = now
    ) -> None:
        """`clock` measures leases. Raises SessionError."""
        self.cluster = cluster
        self.settings = settings
        self.name = settings.name
        self.log = log
        self.shards = ShardKeeper(cluster.ownership, cluster.registry, settings.name, clock)
        self.sessions = HostSessions(cluster, settings.name, self.shards, settings.hub, log)
        self.sessions.on_unreadable = self._on_unreadable
        self.hub = self.sessions.hub
        denied = [word for server in cluster.servers for word in ("--disallowed-tools", f"WebFetch(domain:{server})")]
        self.hub.engine_argv = (*self.hub.engine_argv, *denied)
        self.hub.default_workspace = msgspec.structs.replace(settings.default_workspace, host=settings.name)
        self.workspaces = self.hub.workspaces = SessionWorkspaces(
            cluster.registry, settings.name, settings.workspace_token, self.hub
        )
        self.gate = Gate(Tokens(IN_MEMORY, None), is_open=True)
        """Everybody on the bus is the administrator, unless the bridge replaces it."""
        self.services: list[ShardService] = []
        self._unreadable: dict[SessionKey, str] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    @cached_property
    def app(self) -> ASGIApp:
        """The application of the hub, with the gate as it is at the first use."""
        return Routes(self.gate, self.hub).app()

    async def run(self, stop: asyncio.Event, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop` is set, then drain."""
        work = asyncio.create_task(self._work())
        waiting = asyncio.create_task(stop.wait())
        on_ready()
        try:
            await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            self.log.note("draining", seconds=self.settings.drain_seconds)
            await self.shards.drain(self.settings.drain_seconds)
        finally:
            waiting.cancel()
            work.cancel()
            await asyncio.wait([work], timeout=CLOSE_SECONDS)
            await self.close()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.shards.run(self._events()))
            group.create_task(keep_up(self.sessions.evict_idle, "unload idle sessions", self.log))
            group.create_task(keep_up(self.sessions.summaries.write_changed, "list the sessions", self.log))
            group.create_task(keep_up(self.sessions.settle_takeovers, "settle what was taken over", self.log))
            group.create_task(keep_up(self.sessions.load_due, "continue what was interrupted", self.log))
            group.create_task(keep_up(self.workspaces.refresh, "look for the files of sessions", self.log))
            group.create_task(keep_up(self.hub.expire_questions, "expire questions", self.log))
            group.create_task(measure_lag(self.hub.metrics))

    async def close(self) -> None:
        """End at once. What is in the log is what counts."""
        self.hub.stopped.set()
        for service in self.services:
            await service.close()
        with suppress(ClusterError):
            await self.cluster.registry.delete(host_key(self.name))
        await self.sessions.close()

    # Shards.

    def _events(self) -> ShardEvents:
        return ShardEvents(
            acquired=self._on_acquired,
            lost=self._on_lost,
            release=self._release,
            is_busy=self.sessions.is_busy,
            announce=self._announce,
            warn=self.log.warn,
        )

    async def _on_acquired(self, shard: int) -> None:
        for service in self.services:
            await service.serve(shard)
        await self.sessions.load_interrupted(shard)
        await self.sessions.look_through(shard)

    def _on_lost(self, shard: int) -> None:
        self.sessions.lose(shard)
        task = asyncio.ensure_future(self._leave(shard))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, shard: int) -> None:
        for service in self.services:
            with suppress(ClusterError):
                await service.leave(shard)

    async def _release(self, shard: int) -> None:
        await self._leave(shard)
        await self.sessions.release(shard)

    def _on_unreadable(self, key: SessionKey, error: ClusterError) -> None:
        if key not in self._unreadable:
            self.log.warn(f"the session {key.session} is left alone: {error}")
        self._unreadable[key] = str(error)
        if isinstance(error, NewerVersion):
            self.shards.unreadable.add(key.shard(self.shards.count))

    async def _announce(self) -> None:
        ttl_seconds = max(self.cluster.ownership.ttl_seconds, FIRST_SECONDS)
        await self.cluster.registry.put(host_key(self.name), msgspec.json.encode(self.describe()), ttl_seconds)

    def render_metrics(self) -> bytes:
        """The figures of this host, for Prometheus."""
        info = self.describe()
        return self.hub.metrics.render(
            [
                ("parley_host_shards", "Shards owned.", len(info.shards)),
                ("parley_host_waiting_writes", "Sessions that wait for the log.", info.waiting_writes),
                ("parley_host_draining", "Whether the host gives its shards up.", info.is_draining),
                ("parley_host_unreadable_sessions", "Sessions that only a newer host can run.", len(info.unreadable)),
                *self.hub.gauges(),
            ]
        )

    def describe(self) -> HostInfo:
        """What the registry says of this host."""
        loaded = [self.hub.find_live(hosted.key.session) for hosted in self.sessions]
        return HostInfo(
            name=self.name,
            life=self.sessions.life,
            version=__version__,
            records=VERSION,
            shards=self.shards.owned(),
            sessions=len(self.sessions),
            turns=sum(live is not None and live.state != "idle" for live in loaded),
            lag_seconds=self.hub.metrics.lag(0.99),
            waiting_writes=sum(hosted.writer.retries > 0 for hosted in self.sessions),
            is_draining=self.shards.is_draining,
            workspace=self.settings.workspace,
            unreadable={key.session: why for key, why in self._unreadable.items()},
            newer_shards=sorted(self.shards.unreadable),
            secret_check=self.cluster.secret.check_value,
            at=time.time(),
        )
