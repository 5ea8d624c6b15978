"""What a gateway asks a host besides the routes of the API. Clients cannot ask for it.

/internal/sessions      the list of sessions, which sessions the host has loaded, and in which others it found the text
/internal/costs         what sessions cost, without and with those that are not loaded
/internal/questions     the open questions, and the same
/internal/acp/METHOD    what the agent of an editor needs: create, find, copy, rename and delete sessions. The agent
                        runs in the gateway, because its sessions may be on several hosts
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.acp.host import Editor, SessionLink
from parley.acp.schema import ClientCapabilities, NewSessionParams, OpenSessionParams
from parley.cluster.resting_sessions import RestingSessions
from parley.gateway.editor_sessions import HubSessions
from parley.gateway.http.console.overview import read_days, read_query
from parley.gateway.http.errors import error_response
from parley.gateway.http.replies import json_response
from parley.gateway.hub import SessionHub
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal
from parley.jsonrpc import RpcConnection, RpcError
from parley.protocol.base import Json, Struct

PATH = "/internal/"
EDITORS = PATH + "acp/"
PRINCIPAL = "parley.principal"
"""The key of an ASGI scope with the principal that the gateway has found."""
REFUSED = 400
NO_EDITOR = Editor(RpcConnection(lambda line: None), ClientCapabilities())
"""Sessions of a hub do not use the files and terminals of the editor."""


class LinkInfo(Struct, frozen=True, kw_only=True):
    """A session for an editor; the gateway connects to it by itself."""

    id: str
    cwd: str
    title: str
    servers: Json
    may_bypass: bool


class CallError(Struct, frozen=True, kw_only=True):
    """Why a call was refused, as the editor is told."""

    code: int
    message: str
    data: Any = None


class HostRoutes:
    """The application of a host with these routes."""

    def __init__(self, app: ASGIApp, hub: SessionHub, resting: RestingSessions) -> None:
        self._app = app
        self._hub = hub
        self._resting = resting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PATH):
            await self._app(scope, receive, send)
            return
        try:
            response = await self._handle(Request(scope, receive), scope[PRINCIPAL])
        except Refusal as refusal:
            response = error_response(refusal)
        await response(scope, receive, send)

    async def _handle(self, request: Request, principal: Principal) -> Response:
        """Raises Refusal."""
        path = request.scope["path"]
        if path.startswith(EDITORS):
            return await self._call(path.removeprefix(EDITORS), principal, await request.body())
        loaded = [row["id"] for row in self._hub.database.rows("SELECT id FROM sessions")]
        if path == f"{PATH}sessions":
            query = read_query(request.query_params)
            found, total = self._hub.find_sessions(principal, query)
            matches = self._resting.search.find(principal, query.search) if query.search else {}
            return json_response({"loaded": loaded, "sessions": found, "total": total, "matches": matches})
        if path == f"{PATH}costs":
            days = read_days(request.query_params)
            self._hub.indexer.index_marked()
            costs = self._hub.indexer.turns.costs(principal, days), self._resting.turns.costs(principal, days)
            budget = {"usd": principal.quotas.usd, "used": self._hub.spending.of(principal.name).usd}
            return json_response({"costs": costs, "budget": budget})
        if path == f"{PATH}questions":
            page = self._hub.questions.list_open(principal, request.query_params.get("session"))
            return json_response({"loaded": loaded, **msgspec.structs.asdict(page)})
        raise Refusal("not_found", f"hosts have no route {path}")

    async def _call(self, method: str, principal: Principal, body: bytes) -> Response:
        try:
            return json_response(await self._serve_editor(method, principal, body))
        except RpcError as exc:
            return json_response(CallError(code=exc.code, message=str(exc), data=exc.data), REFUSED)

    async def _serve_editor(self, method: str, principal: Principal, body: bytes) -> object:
        """Raises RpcError."""
        sessions = HubSessions(self._hub, principal, self._hub.log.warn)
        openers: dict[str, Callable[[Any, Editor], Awaitable[SessionLink]]] = {
            "create": sessions.create,
            "find": sessions.find,
            "fork": sessions.fork,
        }
        if method in openers:
            kind = NewSessionParams if method == "create" else OpenSessionParams
            link = await openers[method](msgspec.json.decode(body, type=kind), NO_EDITOR)
            return LinkInfo(
                id=link.id, cwd=link.cwd, title=link.title, servers=link.servers, may_bypass=link.may_bypass
            )
        return await getattr(sessions, method)(*msgspec.json.decode(body))
