"""The routes that a gateway of a cluster serves by itself: tokens, documents, and how it is."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from parley.cluster.base import ClusterError
from parley.cluster.cluster_tokens import ClusterTokens
from parley.cluster.gateway.router import Router
from parley.gateway.http.api_types import CreatedToken, ServerStatus, TokenList
from parley.gateway.http.auth import PEER
from parley.gateway.http.console.overview import encode_schema
from parley.gateway.http.replies import json_response, read_as
from parley.gateway.http.routes import encode_document
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal
from parley.gateway.security.quotas import OpenConnections
from parley.gateway.security.tokens import TokenRequest

PROBE_SECONDS = 2.0


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
