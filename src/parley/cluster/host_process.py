"""Run a host: connect, take shards, drain at a signal.

`host NAME is ready` is written to stderr when it takes shards. At SIGTERM or SIGINT it lets running turns finish, hands
its shards over and ends. A second signal ends it at once: other hosts continue when its leases have expired.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from parley.cluster.base import Cluster
from parley.cluster.bridge.host import add_bridge
from parley.cluster.host import Host, HostSettings
from parley.cluster.join import warn_of_exposure
from parley.compose.workspace.server import format_address, serve_workspace
from parley.gateway.reporting import MetricsServer, ServerLog
from parley.gateway.server import prepare, raise_file_limit, watch_signals
from parley.workspace import private_files

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
    import uvloop

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
