"""A host: the gateway's hub without a listener. It owns shards and runs their sessions.

    host = ClusterHost(cluster, prefix, settings, log)
    host.sessions       loads sessions, see `host_sessions.py`
    host.bridge         passes the requests of gateways to the application of the hub, see `bridge/host.py`
    await host.run(stop, on_ready)

`run_host` runs one in this process. `host NAME is ready` is written to stderr when it takes shards. At SIGTERM or
SIGINT it lets running turns finish, hands its shards over and ends. A second signal ends it at once: other hosts
continue when its leases have expired.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import uvloop

from parley.cluster.base import Cluster, ClusterError
from parley.cluster.bridge.host import BridgeHost
from parley.cluster.cluster_tokens import ClusterTokens
from parley.cluster.host_sessions import HostSessions
from parley.cluster.join import warn_of_exposure
from parley.cluster.session_log import VERSION
from parley.cluster.session_workspaces import SessionWorkspaces
from parley.cluster.shards import HostInfo, ShardEvents, ShardKeeper, host_key, now
from parley.cluster.tenants import ClusterSpending, TenantLimits, TenantSecrets, read_tenant_quotas
from parley.compose.remote import WorkspaceService, format_address, serve_workspace
from parley.gateway.hub import HubSettings
from parley.gateway.reporting import MetricsServer, ServerLog
from parley.gateway.server import keep_up, measure_lag, prepare, raise_file_limit, watch_signals
from parley.protocol.base import Struct
from parley.version import __version__
from parley.workspace import private_files
from parley.workspace.remote.address import SessionWorkspace

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


class ClusterHost:
    def __init__(
        self, cluster: Cluster, prefix: str, settings: HostSettings, log: ServerLog, clock: Callable[[], float] = now
    ) -> None:
        """`clock` measures leases. Raises SessionError, UsageError."""
        self.cluster = cluster
        self.settings = settings
        self.name = settings.name
        self.log = log
        self.shards = ShardKeeper(cluster.ownership, cluster.registry, settings.name, clock)
        self.sessions = HostSessions(cluster, settings.name, self.shards, settings.hub, log)
        self.hub = self.sessions.hub
        denied = [word for server in cluster.servers for word in ("--disallowed-tools", f"WebFetch(domain:{server})")]
        self.sessions.engine_argv = (*self.sessions.engine_argv, *denied)
        self.sessions.default_workspace = msgspec.structs.replace(settings.default_workspace, host=settings.name)
        self.workspaces = self.sessions.workspaces = SessionWorkspaces(
            cluster.registry, settings.name, settings.workspace_token, self.hub
        )
        if settings.tenant_secrets:
            self.hub.find_secrets = TenantSecrets(Path(settings.tenant_secrets)).find
        self._tokens = ClusterTokens(cluster.registry, None, cluster.secret)
        self.hub.find_quotas = self._tokens.find_quotas
        self.hub.find_roots = self._tokens.find_roots
        self._spending = ClusterSpending(self.hub.spending, self.hub.database, cluster.registry, self.name)
        quotas = read_tenant_quotas(settings.tenant_quotas)
        self._limits = self.sessions.limits = TenantLimits(cluster.registry, quotas, self._spending, self.hub.database)
        self.bridge = BridgeHost(cluster, prefix, self.name, self.sessions, self._tokens, self._limits)
        self._leaving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Let the gateways of the cluster reach the host. Raises ClusterError."""
        await self._tokens.start()
        await self._spending.start()
        await self.bridge.start()

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
        await self.bridge.close()
        with suppress(ClusterError):
            await self.cluster.registry.delete(host_key(self.name))
        await self.sessions.close()
        self._limits.close()
        await self._spending.close()
        await self._tokens.close()

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
        await self.bridge.serve(shard)
        await self.sessions.load_interrupted(shard)
        await self.sessions.look_through(shard)

    def _on_lost(self, shard: int) -> None:
        self.sessions.lose(shard)
        task = asyncio.ensure_future(self.bridge.leave(shard))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _release(self, shard: int) -> None:
        await self.bridge.leave(shard)
        await self.sessions.release(shard)

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
            unreadable={key.session: why for key, why in self.sessions.unreadable.items()},
            newer_shards=sorted(self.shards.unreadable),
            secret_check=self.cluster.secret.check_value,
            at=time.time(),
        )


FOLDER_PREFIX = "parley-host-"
LEFTOVER_SECONDS = 60
"""A younger folder may be that of a host that is starting."""


def remove_leftovers(parent: Path) -> None:
    """Delete the folders of hosts that were killed. A host that runs holds a lock on its own."""
    for folder in parent.glob(f"{FOLDER_PREFIX}*"):
        try:
            status = folder.lstat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < LEFTOVER_SECONDS:
                continue
            with open(folder / "lock", "rb") as lock:
                if private_files.lock(lock.fileno(), timeout_seconds=0):
                    shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # another host has removed it
            continue


def run_host(connect: Callable[[], Awaitable[Cluster]], prefix: str, settings: HostSettings, log: ServerLog) -> int:
    """Serve until a signal; returns the exit code. Raises ClusterError or SessionError."""
    raise_file_limit()
    prepare()
    remove_leftovers(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX)  # private, and empty: the truth is in the logs
    hub = msgspec.structs.replace(settings.hub, state=Path(folder))
    try:
        uvloop.run(serve_host(connect, prefix, msgspec.structs.replace(settings, hub=hub), log))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


async def serve_host(
    connect: Callable[[], Awaitable[Cluster]], prefix: str, settings: HostSettings, log: ServerLog
) -> None:
    """Raises ClusterError or SessionError."""
    cluster = await connect()
    workspace = None
    try:
        warn_of_exposure(cluster, log)
        if settings.workspace_service is not None:
            hub = settings.hub
            workspace = await serve_workspace(
                settings.workspace_service.address,
                hub.root,
                settings.workspace_token,
                hub.environment,
                certificate=settings.workspace_service.certificate,
                log=log.warn,
            )
            settings = msgspec.structs.replace(settings, workspace=format_address(workspace.address))
        host = ClusterHost(cluster, prefix, settings, log)
        await host.start()
        stop = asyncio.Event()
        watch_signals(stop, lambda: None)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        metrics = MetricsServer(host.render_metrics, lambda: bool(host.shards.owned()))
        if settings.metrics is not None:
            await metrics.start(*settings.metrics)
        try:
            await host.run(stop, lambda: log.say(f"host {host.name} is ready", "ready", host=host.name))
        finally:
            await metrics.close()
    finally:
        if workspace is not None:
            await workspace.close()
        await cluster.close()
