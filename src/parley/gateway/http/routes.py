"""The routes of the gateway, one row each, and the application that is made from them.

A row says who may use a route, what it takes and what it gives. The check of scopes and the documents of the API
(`documents.py`) are made from the same rows, and a gateway of a cluster serves them, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import groupby
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp

from parley.errors import SessionError, UsageError
from parley.gateway.http.api_types import (
    AcceptedPrompt,
    ClientEvents,
    ControlReply,
    ControlRequestBody,
    CostReport,
    CreatedSession,
    CreatedToken,
    Delegation,
    FileNames,
    ForkRequest,
    FoundSessions,
    LinePage,
    Nothing,
    PromptRequest,
    RewindPreview,
    RuleReport,
    RuleRequest,
    SentPrompt,
    ServerStatus,
    TokenHolder,
    TokenList,
    TurnFigures,
    WirePage,
)
from parley.gateway.http.app import Api
from parley.gateway.http.auth import ADMITTED, Gate
from parley.gateway.http.replies import PacedReplies, ReplyHeaders, error_response
from parley.gateway.http.static_files import StaticFiles
from parley.gateway.hub import SessionHub
from parley.gateway.index.session_list import SessionInfo
from parley.gateway.questions import Question, QuestionList
from parley.gateway.refusal import Refusal
from parley.gateway.reporting import RequestLog
from parley.gateway.security.access import Principal, Scope
from parley.gateway.security.tokens import TokenRequest
from parley.gateway.session_options import SessionRequest, require
from parley.protocol.base import Json, Struct

CORS_HEADERS = ("Authorization", "Content-Type", "Last-Event-ID")
"""The headers that pages of other origins may send."""
CORS_SECONDS = 600
"""How long a browser remembers that an origin is allowed."""

JSON = "application/json"
EVENTS = "text/event-stream"
TEXT = "text/plain"


class Parameter(Struct, frozen=True):
    """A parameter of the URL, or a header."""

    name: str
    description: str
    type: Any = str
    place: str = "query"


class Endpoint(Struct, frozen=True, kw_only=True):
    """A route that needs a token."""

    method: str
    path: str
    handler: Callable[[Any, Request, Principal], Awaitable[Response]]
    """A method of `Api`."""
    summary: str
    scope: Scope | None = None
    """What every request needs; None if that depends on the request."""
    takes: Any = None
    """The class of the body."""
    gives: Any = None
    """The class of the reply; None for none."""
    status: int = 200
    media: str = JSON
    parameters: tuple[Parameter, ...] = ()


class OpenEndpoint(Struct, frozen=True, kw_only=True):
    """A GET that needs no token."""

    path: str
    handler: Callable[[Any, Request], Awaitable[Response]]
    summary: str
    gives: Any
    others: tuple[int, ...] = ()
    """Further statuses that have the same body."""


class SocketEndpoint(Struct, frozen=True, kw_only=True):
    """A WebSocket."""

    path: str
    name: str
    handler: Callable[..., Awaitable[None]]
    summary: str


AFTER = Parameter("after", "Only the lines after this one: its number, or SESSION:NUMBER.")
LAST_EVENT = Parameter("Last-Event-ID", "The same, as browsers send it when they connect again.", place="header")
PARTIAL = Parameter("partial", "With stream events, the parts of a message that is being written.", bool)
LIMIT = Parameter("limit", "How many at most.", int)

LIST_SESSIONS = Endpoint(
    method="GET",
    path="/sessions",
    handler=Api.list_sessions,
    summary="The sessions of your tenant, the last used first",
    scope=Scope.VIEW,
    gives=FoundSessions,
    parameters=(
        Parameter("search", "Only those with these words in the title, the folder, a prompt or an answer."),
        Parameter("state", "Only those in one of these states, separated by commas."),
        LIMIT,
        Parameter("offset", "How many to leave out.", int),
    ),
)
CONSOLE_ENDPOINTS = (
    Endpoint(method="GET", path="/me", handler=Api.show_principal, summary="What the token may do", gives=TokenHolder),
    Endpoint(method="GET", path="/schema.json", handler=Api.show_schema, summary="The schema of a line", gives=Json),
    Endpoint(
        method="GET",
        path="/costs",
        handler=Api.show_costs,
        summary="What the sessions of your tenant cost",
        scope=Scope.VIEW,
        gives=CostReport,
        parameters=(Parameter("days", "Of how many days, today included (UTC).", int),),
    ),
    Endpoint(
        method="GET",
        path="/sessions/events",
        handler=Api.watch_sessions,
        summary="Sessions that change or are deleted, as server-sent events",
        scope=Scope.VIEW,
        gives=str,
        media=EVENTS,
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/lines",
        handler=Api.list_lines,
        summary="Stored lines with their times, by default the newest",
        scope=Scope.VIEW,
        gives=LinePage,
        parameters=(
            Parameter("before", "Only the lines before this number.", int),
            Parameter("around_uuid", "The lines around the message with this id."),
            LIMIT,
        ),
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/index",
        handler=Api.list_prompts,
        summary="The prompts of a session, oldest first",
        scope=Scope.VIEW,
        gives=list[SentPrompt],
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/turns",
        handler=Api.list_turns,
        summary="The turns of a session, oldest first",
        scope=Scope.VIEW,
        gives=list[TurnFigures],
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/files",
        handler=Api.list_files,
        summary="Files in the working directory that match a query",
        scope=Scope.PROMPT,
        gives=FileNames,
        parameters=(Parameter("query", "A part of the path."), LIMIT),
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/rewind",
        handler=Api.show_rewind,
        summary="What a rewind of the files to a message would change",
        scope=Scope.PROMPT,
        gives=RewindPreview,
        parameters=(Parameter("uuid", "The id of the prompt."),),
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/wire",
        handler=Api.list_wire,
        summary="The lines between the session and its engine, without secrets",
        scope=Scope.APPROVE,
        gives=WirePage,
        parameters=(Parameter("after", "Only the lines after this number.", int), LIMIT),
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/wire/recording",
        handler=Api.download_recording,
        summary="The same as a conversation that a test can play",
        scope=Scope.APPROVE,
        gives=str,
        media=TEXT,
    ),
    Endpoint(
        method="POST",
        path="/questions/{session_id}/{request_id}/simulate",
        handler=Api.simulate_rule,
        summary="What a permission rule would have decided about past calls",
        scope=Scope.APPROVE,
        takes=RuleRequest,
        gives=RuleReport,
    ),
)

SOCKETS = (
    SocketEndpoint(path="/ws", name="socket", handler=Api.socket, summary="A new session"),
    SocketEndpoint(path="/sessions/{session_id}/ws", name="socket", handler=Api.socket, summary="A session"),
    SocketEndpoint(path="/acp", name="editor", handler=Api.editor, summary="An editor"),
)
OPEN_ENDPOINTS = (
    OpenEndpoint(path="/healthz", handler=Api.health, summary="Whether the process lives", gives=ServerStatus),
    OpenEndpoint(
        path="/readyz",
        handler=Api.ready,
        summary="Whether the server takes new sessions",
        gives=ServerStatus,
        others=(503,),
    ),
    OpenEndpoint(path="/openapi.json", handler=Api.show_openapi, summary="This document", gives=Json),
    OpenEndpoint(path="/asyncapi.json", handler=Api.show_asyncapi, summary="The frames and events", gives=Json),
)
ENDPOINTS = (
    *CONSOLE_ENDPOINTS,  # before the others: `events` is not a session
    LIST_SESSIONS,
    Endpoint(
        method="POST",
        path="/sessions",
        handler=Api.create_session,
        summary="Create a session",
        scope=Scope.CREATE,
        takes=SessionRequest,
        gives=CreatedSession,
        status=201,
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}",
        handler=Api.get_session,
        summary="One session",
        scope=Scope.VIEW,
        gives=SessionInfo,
    ),
    Endpoint(
        method="DELETE",
        path="/sessions/{session_id}",
        handler=Api.delete_session,
        summary="Stop a session and remove it from the gateway; its transcript stays",
        scope=Scope.CREATE,
        status=204,
    ),
    Endpoint(
        method="POST",
        path="/sessions/{session_id}/fork",
        handler=Api.fork_session,
        summary="Copy a session up to a message",
        scope=Scope.CREATE,
        takes=ForkRequest,
        gives=CreatedSession,
        status=201,
    ),
    Endpoint(
        method="POST",
        path="/sessions/{session_id}/prompts",
        handler=Api.send_prompt,
        summary="Send a prompt",
        scope=Scope.PROMPT,
        takes=PromptRequest,
        gives=AcceptedPrompt,
        status=202,
    ),
    Endpoint(
        method="POST",
        path="/sessions/{session_id}/control",
        handler=Api.send_request,
        summary="Send a control request and wait for the reply; the scope depends on the request",
        takes=ControlRequestBody,
        gives=ControlReply,
    ),
    Endpoint(
        method="GET",
        path="/sessions/{session_id}/events",
        handler=Api.stream_events,
        summary="The lines of a session as server-sent events",
        scope=Scope.VIEW,
        gives=str,
        media=EVENTS,
        parameters=(AFTER, LAST_EVENT, PARTIAL),
    ),
    Endpoint(
        method="GET",
        path="/v1/code/sessions/{session_id}/events/stream",
        handler=Api.stream_client_events,
        summary="The same in the envelopes of the official browser client",
        scope=Scope.VIEW,
        gives=str,
        media=EVENTS,
        parameters=(Parameter("from_sequence_num", "Only the lines after this number."), LAST_EVENT, PARTIAL),
    ),
    Endpoint(
        method="POST",
        path="/v1/code/sessions/{session_id}/events",
        handler=Api.post_client_events,
        summary="Lines of the official browser client; what else is needed depends on the line",
        scope=Scope.VIEW,
        takes=ClientEvents,
        gives=Nothing,
        status=202,
    ),
    Endpoint(
        method="GET",
        path="/questions",
        handler=Api.list_questions,
        summary="The open questions, oldest first, as many as fit on a page",
        scope=Scope.VIEW,
        gives=QuestionList,
        parameters=(Parameter("session", "Only the questions of this session."),),
    ),
    Endpoint(
        method="GET",
        path="/questions/events",
        handler=Api.watch_questions,
        summary="The open questions, then every one that is asked or decided, as server-sent events",
        scope=Scope.VIEW,
        gives=str,
        media=EVENTS,
    ),
    Endpoint(
        method="GET",
        path="/questions/{session_id}/{request_id}",
        handler=Api.get_question,
        summary="One question",
        scope=Scope.VIEW,
        gives=Question,
    ),
    Endpoint(
        method="POST",
        path="/questions/{session_id}/{request_id}/answer",
        handler=Api.answer_question,
        summary="Decide a question with the answer of the wire protocol; the first answer counts",
        scope=Scope.APPROVE,
        takes=Json,
        gives=Question,
    ),
    Endpoint(
        method="POST",
        path="/questions/{session_id}/{request_id}/delegate",
        handler=Api.delegate_question,
        summary="Leave a question to the holder of a token",
        scope=Scope.APPROVE,
        takes=Delegation,
        gives=Question,
    ),
    Endpoint(
        method="GET",
        path="/tokens",
        handler=Api.list_tokens,
        summary="All tokens, without their secrets",
        scope=Scope.ADMIN,
        gives=TokenList,
    ),
    Endpoint(
        method="POST",
        path="/tokens",
        handler=Api.create_token,
        summary="Create a token; the reply is the only place that shows it",
        scope=Scope.ADMIN,
        takes=TokenRequest,
        gives=CreatedToken,
        status=201,
    ),
    Endpoint(
        method="DELETE",
        path="/tokens/{name}",
        handler=Api.revoke_token,
        summary="Revoke a token",
        scope=Scope.ADMIN,
        status=204,
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        handler=Api.show_metrics,
        summary="Figures for Prometheus",
        scope=Scope.ADMIN,
        gives=str,
        media=TEXT,
    ),
)
"""The routes that need a token; those of one path are together."""


def encode_document(name: str) -> bytes:
    """The description of these routes as `openapi` or `asyncapi`, made at its first use."""
    from parley.gateway.http.documents import encode_asyncapi, encode_openapi

    return encode_openapi() if name == "openapi" else encode_asyncapi()


class Routes:
    """The routes with their handlers."""

    def __init__(self, gate: Gate, hub: SessionHub) -> None:
        self._gate = gate
        self._hub = hub
        self._api = Api(gate, hub, encode_document)

    def app(self) -> Starlette:
        api = self._api
        routes: list[BaseRoute] = [
            *(WebSocketRoute(row.path, partial(row.handler, api), name=row.name) for row in SOCKETS),
            *(self._route(path, list(rows)) for path, rows in groupby(ENDPOINTS, lambda row: row.path)),
            *(Route(row.path, partial(row.handler, api)) for row in OPEN_ENDPOINTS),
            *StaticFiles(self._gate).routes(),
        ]
        app = Starlette(
            routes=routes,
            exception_handlers={HTTPException: refuse_route, Exception: report_fault},
            middleware=[
                Middleware(RequestLog, self._hub.log),
                Middleware(ReplyHeaders),
                Middleware(Cors, self._gate),
                Middleware(PacedReplies, self._gate),
            ],
        )
        app.router.redirect_slashes = False  # it would redirect to whatever host name the request has
        return app

    def _route(self, path: str, rows: list[Endpoint]) -> Route:
        """The route of a path, with one row per method."""
        by_method = {row.method: row for row in rows}

        async def endpoint(request: Request) -> Response:
            row = by_method["GET" if request.method == "HEAD" else request.method]
            try:
                principal = self._gate.require(request)
                if (admitted := request.scope.get(ADMITTED)) is not None:
                    await admitted.use.take_turn()
                    admitted.check_current()
                if row.scope is not None:
                    require(principal, row.scope, f"{row.method} {path}")
                return await row.handler(self._api, request, principal)
            except Refusal as refusal:
                self._hub.metrics.count("parley_refusals_total", code=refusal.code)
                return error_response(refusal)
            except (SessionError, UsageError) as exc:
                return error_response(Refusal("storage_error", str(exc)))

        return Route(path, endpoint, methods=list(by_method))


class Cors(CORSMiddleware):
    """Lets pages of other origins call the API. They send their token themselves: no cookie is ever accepted."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        super().__init__(app, allow_methods=["GET", "POST", "DELETE"], allow_headers=CORS_HEADERS, max_age=CORS_SECONDS)
        self._gate = gate

    def is_allowed_origin(self, origin: str) -> bool:
        return origin in self._gate.origins


async def refuse_route(request: Request, exc: Exception) -> Response:
    """The reply to a path or method that does not exist."""
    assert isinstance(exc, HTTPException)
    code = "method_not_allowed" if exc.status_code == 405 else "not_found"
    return error_response(Refusal(code, f"there is no route {request.method} {request.url.path}"), exc.headers)


async def report_fault(request: Request, exc: Exception) -> Response:
    """The reply to a request that met a fault of the server. The server logs it."""
    return error_response(Refusal("internal_error", "a fault of the server, which its log describes"))
