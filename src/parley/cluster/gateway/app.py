"""A gateway of a cluster: the routes of `gateway/http/app.py`, most of them served by hosts.

The gateway checks who sends a request and whether the token allows it. `merge.py` says which host serves which route.
`listening on http://HOST:PORT` is written to stderr when it is ready. At SIGTERM or SIGINT it closes its connections,
which clients make again with another gateway, and ends. The sessions do not notice.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from parley.acp.agent import AcpAgent
from parley.cluster.base import Cluster, ClusterError, LogKey
from parley.cluster.bridge.gateway import Dialer
from parley.cluster.bridge.messages import OpenStream, SocketClosed
from parley.cluster.cluster_tokens import ClusterTokens
from parley.cluster.gateway.editors import ClusterEditorSessions
from parley.cluster.gateway.events import make_response, relay_events, relay_merged_events
from parley.cluster.gateway.merge import CREATE, FORK, LOCAL, Merge, find_rule, merge
from parley.cluster.gateway.merge import EVENTS as MERGED_EVENTS
from parley.cluster.gateway.router import Router, select_headers, unreachable
from parley.cluster.gateway.sockets import RESTART, close, find_target, relay
from parley.cluster.join import NoCluster, warn_of_exposure
from parley.gateway.editor_sessions import relay_editor
from parley.gateway.http.app import ServerApi, route
from parley.gateway.http.auth import Gate
from parley.gateway.http.replies import receive_body
from parley.gateway.http.routes import EVENTS, Endpoint
from parley.gateway.refusal import Refusal
from parley.gateway.reporting import ServerLog
from parley.gateway.security.access import Principal
from parley.gateway.server import (
    GatewayServer,
    ServerSettings,
    answer_probes,
    collect_less,
    listen_and_serve,
    watch_signals,
)

PROBE_SECONDS = 2.0


class ClusterApi(ServerApi):
    """The sessions of the hosts of a cluster."""

    def __init__(self, gate: Gate, router: Router, log: ServerLog) -> None:
        super().__init__(gate, log)
        self._router = router
        self._is_stopping = False
        self._connections: set[asyncio.Task[None]] = set()
        """The WebSockets that are open."""

    async def find_problem(self) -> str:
        """Whether the gateway does not reach the cluster."""
        if self._is_stopping:
            return "draining"
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._router.cluster.registry.get("config.cluster")
        except (ClusterError, TimeoutError):
            return "no connection to the cluster"
        return ""

    def explain(self, exc: Exception) -> Refusal:
        return super().explain(unreachable(exc) if isinstance(exc, ClusterError) else exc)

    # Connections.

    async def socket(self, socket: WebSocket, principal: Principal) -> Coroutine[Any, Any, None]:
        target = await find_target(socket, self._router, principal)
        return self._run_until_stopped(socket, relay(socket, self._router, target))

    async def editor(self, socket: WebSocket, principal: Principal) -> Coroutine[Any, Any, None]:
        sessions = ClusterEditorSessions(self._router, principal, self.log.warn)
        work = relay_editor(socket, lambda connection: AcpAgent(connection, sessions))
        return self._run_until_stopped(socket, work)

    async def _run_until_stopped(self, socket: WebSocket, work: Coroutine[Any, Any, None]) -> None:
        """If the gateway ends the connection, tell the client that it may connect again."""
        task = asyncio.create_task(work)
        self._connections.add(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            self._connections.discard(task)
        if task.cancelled():
            await close(socket, SocketClosed(RESTART, ""))
        else:
            task.result()

    def stop(self) -> None:
        """End all connections; clients connect again, to another gateway."""
        self._is_stopping = True
        for task in self._connections:
            task.cancel()

    # Requests.

    async def answer(self, row: Endpoint, request: Request, principal: Principal) -> Response:
        match rule := find_rule(row):
            case Merge():
                opened = make_open(request, principal)
                return make_response(await merge(self._router, rule, opened, request.query_params))
            case _ if rule == MERGED_EVENTS:
                return await relay_merged_events(self._router, self.gate.tokens, make_open(request, principal))
            case _ if rule == LOCAL:
                return await super().answer(row, request, principal)
        new = ""
        if rule == CREATE:
            key = self._router.new_session(principal)
            new = key.session
        else:
            key = await self._router.find_key(principal, request.path_params["session_id"])
            if rule == FORK:
                new = self._router.new_session(principal, beside=key.session).session
        opened = make_open(request, principal, key, new)
        if row.media == EVENTS:
            return await relay_events(self._router, opened)
        body = bytes(await receive_body(request))
        return make_response(await self._router.call(msgspec.structs.replace(opened, body=body)))


def make_open(request: Request, principal: Principal, key: LogKey | None = None, new: str = "") -> OpenStream:
    """A request as hosts get it."""
    return OpenStream(
        principal=principal,
        method=request.method,
        scheme=request.url.scheme,
        path=request.scope["path"],
        query=request.scope["query_string"],
        headers=select_headers(request.scope["headers"]),
        key=key,
        new_session=new,
    )


FIRST_HOST_SECONDS = 60
FIRST_HOST_POLL_SECONDS = 0.25
Connect = Callable[[], Awaitable[Cluster]]


class ClusterGateway:
    """A gateway in this process."""

    def __init__(
        self, cluster: Cluster, prefix: str, settings: ServerSettings, token: str | None, log: ServerLog
    ) -> None:
        self._tokens = ClusterTokens(cluster.registry, token, cluster.secret)
        self._dialer = Dialer(cluster.bus, prefix, cluster.secret)
        gate = Gate(self._tokens, is_open=token is None)
        self._api = ClusterApi(gate, Router(cluster, prefix, self._dialer), log)
        self.server = GatewayServer(settings, gate, self._api.app(route), log)

    async def start(self, listener: socket.socket) -> str:
        """Listen; returns the address. Raises ClusterError."""
        await self._tokens.start()
        await self._dialer.start()
        return await self.server.start(listener)

    async def stop(self) -> None:
        self._api.stop()
        await self.server.stop()
        await self._dialer.close()
        await self._tokens.close()


def run_cluster_gateway(connect: Connect, prefix: str, settings: ServerSettings, log: ServerLog) -> int:
    """Serve until a signal; returns the exit code. Raises UsageError, ClusterError."""

    async def serve(listener: socket.socket, token: str | None) -> None:
        cluster = await connect_in_time(connect, log)
        try:
            warn_of_exposure(cluster, log)
            gateway = ClusterGateway(cluster, prefix, settings, token, log)
            stop = asyncio.Event()
            watch_signals(stop, gateway.server.reload)
            async with answer_probes(settings, lambda: not stop.is_set()):
                await gateway.start(listener)
                await gateway.server.wait(stop)
                await gateway.stop()
        finally:
            await cluster.close()

    return listen_and_serve(settings, log, serve, collect_less)


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
