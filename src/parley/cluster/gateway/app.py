"""The application of a gateway of a cluster: the routes of `gateway/http/routes.py`, served by hosts.

The gateway checks who sends a request and whether the token allows it. `merge.py` says which host serves which route.
`LocalRoutes` are those that the gateway serves by itself: tokens, documents, and how it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from uuid import uuid4

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from parley.cluster.base import ClusterError, SessionKey
from parley.cluster.bridge.messages import OpenStream
from parley.cluster.cluster_tokens import ClusterTokens
from parley.cluster.gateway.events import make_response, relay_events, relay_merged_events
from parley.cluster.gateway.merge import CREATE, FORK, LOCAL, RULES, Merge, MergedEvents, merge
from parley.cluster.gateway.router import Router, select_headers, unreachable
from parley.cluster.gateway.sockets import serve_socket
from parley.gateway.http.api_types import CreatedToken, ServerStatus, TokenList
from parley.gateway.http.app import encode_schema
from parley.gateway.http.auth import PEER, Gate
from parley.gateway.http.replies import PacedReplies, ReplyHeaders, error_response, json_response, read_as, receive_body
from parley.gateway.http.routes import (
    ENDPOINTS,
    EVENTS,
    OPEN_ENDPOINTS,
    SOCKETS,
    Cors,
    Endpoint,
    encode_document,
    refuse_route,
    report_fault,
)
from parley.gateway.http.static_files import StaticFiles
from parley.gateway.refusal import Refusal
from parley.gateway.reporting import RequestLog, ServerLog
from parley.gateway.security.access import Principal
from parley.gateway.security.quotas import OpenConnections
from parley.gateway.security.tokens import TokenRequest
from parley.gateway.session_options import require

PROBE_SECONDS = 2.0


class ClusterApp:
    def __init__(self, gate: Gate, router: Router, tokens: ClusterTokens, log: ServerLog) -> None:
        self._gate = gate
        self._router = router
        self._tokens = tokens
        self._log = log
        self._local = LocalRoutes(router, tokens, gate.connections)
        tokens.on_change = gate.connections.end_invalid
        self._connections: dict[asyncio.Task[None], str] = {}
        """The connections that are open, with the names of their tokens."""

    def app(self) -> Starlette:
        routes: list[BaseRoute] = [
            *(WebSocketRoute(row.path, getattr(self, f"_serve_{row.name}")) for row in SOCKETS),
            *(self._route(path, list(rows)) for path, rows in groupby(ENDPOINTS, lambda row: row.path)),
            *(Route(row.path, getattr(self._local, row.handler.__name__)) for row in OPEN_ENDPOINTS),
            *StaticFiles(self._gate).routes(),
        ]
        app = Starlette(
            routes=routes,
            exception_handlers={HTTPException: refuse_route, Exception: report_fault},
            middleware=[
                Middleware(RequestLog, self._log),
                Middleware(ReplyHeaders),
                Middleware(Cors, self._gate),
                Middleware(PacedReplies, self._gate),
            ],
        )
        app.router.redirect_slashes = False
        return app

    # Connections.

    async def _serve_socket(self, socket: WebSocket) -> None:
        await serve_socket(socket, self._gate, self._router, self._register)

    async def _serve_editor(self, socket: WebSocket) -> None:
        from parley.cluster.gateway.editors import serve_editor

        await serve_editor(socket, self._gate, self._router, self._register, self._log.warn)

    @contextmanager
    def _register(self, principal: Principal, task: asyncio.Task[None]) -> Iterator[None]:
        self._connections[task] = principal.name
        try:
            yield
        finally:
            del self._connections[task]

    async def end_expired(self) -> None:
        """End the connections of tokens that are not valid any more."""
        self._gate.connections.end_invalid()

    def stop(self) -> None:
        """End all connections; clients connect again, to another gateway."""
        self._local.is_stopping = True
        for task in self._connections:
            task.cancel()

    # Requests.

    def _route(self, path: str, rows: list[Endpoint]) -> Route:
        """The route of a path, with one row per method."""
        by_method = {row.method: row for row in rows}

        async def endpoint(request: Request) -> Response:
            row = by_method["GET" if request.method == "HEAD" else request.method]
            try:
                principal = self._gate.require(request)
                if row.scope is not None:
                    require(principal, row.scope, f"{row.method} {path}")
                return await self._handle(row, request, principal)
            except Refusal as refusal:
                return error_response(refusal)
            except ClusterError as exc:
                return error_response(unreachable(exc))

        return Route(path, endpoint, methods=list(by_method))

    async def _handle(self, row: Endpoint, request: Request, principal: Principal) -> Response:
        """Raises Refusal, ClusterError."""
        name = row.handler.__name__
        match rule := RULES[name]:
            case _ if rule == LOCAL:
                handler = getattr(self._local, name)
                return await handler(request, principal)  # type: ignore[no-any-return]
            case Merge():
                return make_response(
                    await merge(self._router, rule, make_open(request, principal), request.query_params)
                )
            case MergedEvents():
                return await relay_merged_events(self._router, self._tokens, make_open(request, principal))
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


def make_open(request: Request, principal: Principal, key: SessionKey | None = None, new: str = "") -> OpenStream:
    """A request as hosts get it."""
    return OpenStream(
        stream="",
        inbox="",
        command=uuid4().hex,
        principal=principal,
        kind="http",
        method=request.method,
        scheme=request.url.scheme,
        path=request.scope["path"],
        query=request.scope["query_string"],
        headers=select_headers(request.scope["headers"]),
        key=key,
        new_session=new,
    )


class LocalRoutes:
    """Its methods have the names of those of `Api`."""

    def __init__(self, router: Router, tokens: ClusterTokens, connections: OpenConnections) -> None:
        self._router = router
        self._tokens = tokens
        self._connections = connections
        self.is_stopping = False

    # Without a token.

    async def health(self, request: Request) -> Response:
        return json_response(ServerStatus(status="ok"))

    async def ready(self, request: Request) -> Response:
        """Whether the gateway reaches the cluster."""
        if self.is_stopping:
            return json_response(ServerStatus(status="draining"), 503)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._router.cluster.registry.get("config.cluster")
        except (ClusterError, TimeoutError):
            return json_response(ServerStatus(status="no connection to the cluster"), 503)
        return json_response(ServerStatus(status="ready"))

    async def show_openapi(self, request: Request) -> Response:
        return await self._show_document("openapi")

    async def show_asyncapi(self, request: Request) -> Response:
        return await self._show_document("asyncapi")

    async def _show_document(self, name: str) -> Response:
        return Response(await asyncio.to_thread(encode_document, name), media_type="application/json")

    # With a token.

    async def show_principal(self, request: Request, principal: Principal) -> Response:
        scopes = sorted(principal.scopes)
        return json_response({"name": principal.name, "tenant": principal.tenant, "scopes": scopes})

    async def show_schema(self, request: Request, principal: Principal) -> Response:
        return Response(await asyncio.to_thread(encode_schema), media_type="application/json")

    async def list_tokens(self, request: Request, principal: Principal) -> Response:
        return json_response(TokenList(tokens=self._tokens.list()))

    async def create_token(self, request: Request, principal: Principal) -> Response:
        wanted = await read_as(request, TokenRequest)
        made = CreatedToken(name=wanted.name, token=await self._tokens.add(wanted))
        return json_response(made, 201)

    async def revoke_token(self, request: Request, principal: Principal) -> Response:
        name = request.path_params["name"]
        self._connections.spare(request.scope.get(PEER))
        if not await self._tokens.remove(name):
            raise Refusal("unknown_token", f"there is no token {name!r}")
        return Response(status_code=204)
