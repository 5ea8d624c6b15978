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

from parley.cluster.base import Cluster, ClusterError, Registry
from parley.cluster.bridge.host import add_bridge
from parley.cluster.host import Host, HostSettings
from parley.gateway.server import prepare, raise_file_limit, watch_signals
from parley.gateway.server_log import ServerLog

SHARDS_KEY = "config.shards"


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
    try:
        await agree_on_shards(cluster.registry, cluster.ownership.shards)
        host = Host(cluster, settings, log)
        tokens = await add_bridge(host, prefix)
        stop = asyncio.Event()
        watch_signals(stop, lambda: None)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        try:
            await host.run(stop, lambda: log.say(f"host {host.name} is ready", "ready", host=host.name))
        finally:
            await tokens.close()
    finally:
        await cluster.close()


async def agree_on_shards(registry: Registry, shards: int) -> None:
    """The first host of a cluster sets the number of shards. Raises ClusterError if it is another."""
    await registry.update(SHARDS_KEY, str(shards).encode(), 0)
    row = await registry.get(SHARDS_KEY)
    if row is None or row.value != str(shards).encode():
        found = "0" if row is None else row.value.decode()
        raise ClusterError(f"the cluster has {found} shards, but this host was started with {shards}; see --shards")
