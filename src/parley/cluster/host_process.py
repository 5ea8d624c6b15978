"""Run a host: connect, take shards, drain at a signal.

`host NAME is ready` is written to stderr when it takes shards. At SIGTERM or SIGINT it lets running turns finish, hands
its shards over and ends. A second signal ends it at once: other hosts continue when its leases have expired.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from parley.cluster.base import Cluster
from parley.cluster.bridge.host import add_bridge
from parley.cluster.host import Host, HostSettings
from parley.cluster.operations.metrics_server import MetricsServer
from parley.compose.workspace_server import format_address, serve_workspace
from parley.gateway.server import prepare, raise_file_limit, watch_signals
from parley.gateway.server_log import ServerLog


def run_host(connect: Callable[[], Awaitable[Cluster]], prefix: str, settings: HostSettings, log: ServerLog) -> int:
    """Serve until a signal; returns the exit code. Raises ClusterError or SessionError."""
    import uvloop

    raise_file_limit()
    prepare()
    folder = tempfile.mkdtemp(prefix="parley-host-")  # private, and empty: the truth is in the logs
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
        host = Host(cluster, settings, log)
        tokens = await add_bridge(host, prefix)
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
            await tokens.close()
    finally:
        if workspace is not None:
            await workspace.close()
        await cluster.close()
