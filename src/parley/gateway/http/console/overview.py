"""What the console shows of all sessions: the list, its changes, costs, and who is asking."""

from __future__ import annotations

import asyncio
from functools import cache

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from parley.gateway.http.event_stream import EventStream, format_event
from parley.gateway.http.query import read_number, read_text
from parley.gateway.http.replies import json_response
from parley.gateway.hub import SessionHub
from parley.gateway.index.session_list import LARGEST_PAGE, SessionQuery
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal

STATES = frozenset({"idle", "running", "requires_action", "failed"})
MOST_DAYS = 3660


class OverviewHandlers:
    """A part of `Api`."""

    _hub: SessionHub

    async def list_sessions(self, request: Request, principal: Principal) -> Response:
        query = read_query(request.query_params)
        limited = msgspec.structs.replace(query, limit=min(query.limit, LARGEST_PAGE))
        found, total = self._hub.find_sessions(principal, limited)
        return json_response({"sessions": found, "total": total})

    async def watch_sessions(self, request: Request, principal: Principal) -> Response:
        """Server-sent events: sessions that change or are deleted."""
        watcher = self._hub.events.watch(principal)

        async def take() -> list[bytes]:
            return [b"".join(map(format_event, await watcher.take()))]

        return EventStream(take, lambda: self._hub.events.end(watcher), self._hub.stopped)

    async def show_costs(self, request: Request, principal: Principal) -> Response:
        days = read_days(request.query_params)
        self._hub.indexer.index_marked()
        used = self._hub.spending.of(principal.name)
        budget = {"usd": principal.quotas.usd, "used": used.usd}
        return json_response({**self._hub.indexer.turns.costs(principal, days), "budget": budget})

    async def show_principal(self, request: Request, principal: Principal) -> Response:
        scopes = sorted(principal.scopes)
        return json_response({"name": principal.name, "tenant": principal.tenant, "scopes": scopes})

    async def show_schema(self, request: Request, principal: Principal) -> Response:
        return Response(await asyncio.to_thread(encode_schema), media_type="application/json")


def read_days(query: QueryParams) -> int:
    """How many days of costs are wanted. Raises Refusal."""
    return read_number(query, "days", 30, MOST_DAYS)


def read_query(query: QueryParams) -> SessionQuery:
    """Raises Refusal."""
    states = frozenset(filter(None, query.get("state", "").split(",")))
    if unknown := states - STATES:
        known = ", ".join(sorted(STATES))
        raise Refusal("invalid_query", f"state {min(unknown)!r:.50} is unknown (choose from {known})")
    return SessionQuery(
        search=read_text(query, "search").strip(),
        states=states,
        limit=read_number(query, "limit", LARGEST_PAGE),
        offset=read_number(query, "offset", 0),
    )


@cache
def encode_schema() -> bytes:
    from parley.protocol.schema import build_schema

    return msgspec.json.encode(build_schema())
