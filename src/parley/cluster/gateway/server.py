"""Run a gateway of a cluster: connect, listen, serve.

`listening on http://HOST:PORT` is written to stderr when it is ready. At SIGTERM or SIGINT it closes its connections,
which clients make again with another gateway, and ends. The sessions do not notice.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import uvicorn

from parley.cluster.base import Cluster
from parley.cluster.bridge.gateway import Dialer
from parley.cluster.cluster_tokens import ClusterTokens
from parley.cluster.gateway.app import ClusterApp
from parley.cluster.gateway.router import Router
from parley.cluster.join import NoCluster, warn_of_exposure
from parley.errors import UsageError
from parley.gateway.http.auth import Gate
from parley.gateway.reporting import ServerLog
from parley.gateway.server import (
    GC_THRESHOLD,
    QuietServer,
    ServerSettings,
    answer_probes,
    apply_config,
    check_certificate,
    describe,
    find_token,
    keep_up,
    listen,
    make_config,
    raise_file_limit,
    reload_settings,
    watch_signals,
)
from parley.gateway.server_config import read_config

FIRST_HOST_SECONDS = 60
FIRST_HOST_POLL_SECONDS = 0.25
Connect = Callable[[], Awaitable[Cluster]]


class ClusterGateway:
    """A gateway in this process."""

    def __init__(self, cluster: Cluster, prefix: str, settings: ServerSettings, token: str | None, log: ServerLog):
        self._settings = settings
        self._log = log
        self.tokens = ClusterTokens(cluster.registry, token, cluster.secret)
        self.gate = Gate(self.tokens, is_open=token is None)
        apply_config(self.gate, settings)
        self._dialer = Dialer(cluster.bus, prefix, cluster.secret)
        self._app = ClusterApp(self.gate, Router(cluster, prefix, self._dialer), self.tokens, log)
        self.config: uvicorn.Config = make_config(settings, self.gate, self._app.app())
        self._server = QuietServer(self.config)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, listener: socket.socket) -> str:
        """Listen; returns the address. Raises ClusterError."""
        await self.tokens.start()
        await self._dialer.start()
        self._tasks = [
            asyncio.create_task(self._server.serve(sockets=[listener])),
            asyncio.create_task(keep_up(self._app.end_expired, "end the connections of expired tokens", self._log)),
        ]
        address = describe(self._settings, listener)
        self._log.say(f"listening on {address}", "listening", address=address)
        return address

    async def wait(self) -> None:
        """Wait until the server has ended by itself."""
        await asyncio.wait(self._tasks[:1])

    def reload(self) -> None:
        try:
            reload_settings(self._settings, self.gate, self.config.ssl)
        except UsageError as exc:
            self._log.say(f"nothing was reloaded: {exc}", "reload", level="error")
        else:
            self._log.say("reloaded", "reload")

    async def stop(self) -> None:
        self._app.stop()
        self._server.should_exit = True
        serving, upkeep = self._tasks
        upkeep.cancel()
        await serving
        with suppress(asyncio.CancelledError):
            await upkeep
        await self._dialer.close()
        await self.tokens.close()


def run_cluster_gateway(connect: Connect, prefix: str, settings: ServerSettings, log: ServerLog) -> int:
    """Serve until a signal; returns the exit code. Raises UsageError, ClusterError."""
    import uvloop

    token = find_token(settings, log)
    read_config(settings.config)
    check_certificate(settings)
    listener = listen(settings.address)
    raise_file_limit()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    try:
        uvloop.run(serve_cluster(connect, prefix, settings, token, log, listener))
    finally:
        listener.close()
        if settings.address.path:
            Path(settings.address.path).unlink(missing_ok=True)
    return 0


async def serve_cluster(
    connect: Connect,
    prefix: str,
    settings: ServerSettings,
    token: str | None,
    log: ServerLog,
    listener: socket.socket,
) -> None:
    """Raises ClusterError."""
    cluster = await connect_in_time(connect, log)
    try:
        warn_of_exposure(cluster, log)
        gateway = ClusterGateway(cluster, prefix, settings, token, log)
        stop = asyncio.Event()
        watch_signals(stop, gateway.reload)
        async with answer_probes(settings, lambda: not stop.is_set()):
            await gateway.start(listener)
            stopped, ended = asyncio.create_task(stop.wait()), asyncio.create_task(gateway.wait())
            await asyncio.wait([stopped, ended], return_when=asyncio.FIRST_COMPLETED)
            await gateway.stop()
    finally:
        await cluster.close()


async def connect_in_time(connect: Connect, log: ServerLog) -> Cluster:
    """Connect; if there is no cluster yet, wait for its first host. Raises ClusterError."""
    deadline = time.monotonic() + FIRST_HOST_SECONDS
    is_reported = False
    while True:
        try:
            return await connect()
        except NoCluster as exc:
            if time.monotonic() > deadline:
                raise
            if not is_reported:
                log.say(f"{exc}; waiting", "waiting")
            is_reported = True
            await asyncio.sleep(FIRST_HOST_POLL_SECONDS)
