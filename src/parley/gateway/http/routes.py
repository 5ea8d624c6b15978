"""What a route is, and the application that is made from routes.

A row says who may use a route, what it takes and what it gives. The check of scopes and the documents of the API
(`documents.py`) are made from the same rows. `app.py` has the routes, each at its handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from parley.errors import SessionError, UsageError
from parley.gateway.http.auth import ADMITTED, Gate
from parley.gateway.http.replies import PacedReplies, ReplyHeaders, error_response
from parley.gateway.http.sockets import admit, refuse
from parley.gateway.http.static_files import StaticFiles
from parley.gateway.refusal import Refusal
from parley.gateway.reporting import RequestLog, ServerLog
from parley.gateway.security.access import Principal, Scope
from parley.gateway.session_options import require
from parley.protocol.base import Struct

CORS_HEADERS = ("Authorization", "Content-Type", "Last-Event-ID")
"""The headers that pages of other origins may send."""
CORS_SECONDS = 600
"""How long a browser remembers that an origin is allowed."""

JSON = "application/json"
EVENTS = "text/event-stream"
TEXT = "text/plain"
JSON_LINES = "application/jsonl"

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Response]])


class Parameter(Struct, frozen=True):
    """A parameter of the URL, or a header."""

    name: str
    description: str
    type: Any = str
    place: str = "query"


class Endpoint(Struct, frozen=True, kw_only=True):
    """A route."""

    method: str
    path: str
    handler: Callable[..., Awaitable[Response]]
    """A method of `Api`."""
    scope: Scope | None = None
    """What every request needs; None if that depends on the request."""
    takes: Any = None
    """The class of the body."""
    gives: Any = None
    """The class of the reply; None for none."""
    status: int = 200
    media: str = JSON
    parameters: tuple[Parameter, ...] = ()
    is_open: bool = False
    """Whether it needs no token."""
    others: tuple[int, ...] = ()
    """Further statuses that have the same body."""

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").partition("\n")[0].removesuffix(".")


class RouteTable:
    """The routes, in the order in which they are looked at.

    `@route.get(path, GIVES, ...)` adds the decorated handler. The first line of its docstring describes it to clients.
    """

    def __init__(self) -> None:
        self.rows: list[Endpoint] = []
        self.get = partial(self._add, "GET")
        self.post = partial(self._add, "POST")
        self.delete = partial(self._add, "DELETE")

    def _add(
        self, method: str, path: str, gives: Any = None, *parameters: Parameter, **more: Any
    ) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self.rows.append(
                Endpoint(method=method, path=path, handler=handler, gives=gives, parameters=parameters, **more)
            )
            return handler

        return add

    def by_path(self) -> dict[str, dict[str, Endpoint]]:
        """The rows of each path by their method."""
        found: dict[str, dict[str, Endpoint]] = {}
        for row in self.rows:
            found.setdefault(row.path, {})[row.method] = row
        return found


class SocketEndpoint(Struct, frozen=True, kw_only=True):
    """A WebSocket. Its client needs the scope 'view'."""

    path: str
    name: str
    """The method of the server that opens it."""
    summary: str
    use: str
    """What its client does, for refusals."""


SOCKETS = (
    SocketEndpoint(path="/ws", name="socket", summary="A new session", use="reading a session"),
    SocketEndpoint(path="/sessions/{session_id}/ws", name="socket", summary="A session", use="reading a session"),
    SocketEndpoint(path="/acp", name="editor", summary="An editor", use="/acp"),
)


class RouteServer:
    """Lets requests in and passes them to their handlers. A gateway of a cluster passes most of them on (`answer`)."""

    def __init__(self, gate: Gate, log: ServerLog) -> None:
        self.gate = gate
        self.log = log

    def app(self, table: RouteTable) -> Starlette:
        routes: list[BaseRoute] = [
            *(WebSocketRoute(row.path, partial(self._serve_socket, row), name=row.name) for row in SOCKETS),
            *(Route(path, partial(self._serve, rows), methods=list(rows)) for path, rows in table.by_path().items()),
            *StaticFiles(self.gate).routes(),
        ]
        app = Starlette(
            routes=routes,
            exception_handlers={HTTPException: refuse_route, Exception: report_fault},
            middleware=[
                Middleware(RequestLog, self.log),
                Middleware(ReplyHeaders),
                Middleware(Cors, self.gate),
                Middleware(PacedReplies, self.gate),
            ],
        )
        app.router.redirect_slashes = False  # it would redirect to whatever host name the request has
        return app

    async def _serve(self, rows: dict[str, Endpoint], request: Request) -> Response:
        row = rows["GET" if request.method == "HEAD" else request.method]
        if row.is_open:
            return await row.handler(self, request)
        try:
            principal = self.gate.require(request)
            if (admitted := request.scope.get(ADMITTED)) is not None:
                await admitted.use.take_turn()
                admitted.check_current()
            if row.scope is not None:
                require(principal, row.scope, f"{row.method} {row.path}")
            return await self.answer(row, request, principal)
        except (Refusal, SessionError, UsageError) as exc:
            return error_response(self.explain(exc))

    async def _serve_socket(self, row: SocketEndpoint, socket: WebSocket) -> None:
        """Serve one connection until either end closes it."""
        principal = await admit(socket, self.gate)
        if principal is None:
            return
        try:
            require(principal, Scope.VIEW, row.use)
            work = await getattr(self, row.name)(socket, principal)
        except (Refusal, SessionError, UsageError) as exc:
            await refuse(socket, RouteServer.explain(self, exc))  # not counted among refused requests
            return
        await work

    async def answer(self, row: Endpoint, request: Request, principal: Principal) -> Response:
        """Raises Refusal, SessionError, UsageError."""
        return await row.handler(self, request, principal)

    def explain(self, exc: Exception) -> Refusal:
        """What a client is told of an error."""
        return exc if isinstance(exc, Refusal) else Refusal("storage_error", str(exc))

    async def socket(self, socket: WebSocket, principal: Principal) -> Coroutine[Any, Any, None]:
        """Open the session of a client; the result serves it. Raises Refusal, SessionError, UsageError."""
        raise NotImplementedError

    async def editor(self, socket: WebSocket, principal: Principal) -> Coroutine[Any, Any, None]:
        """The same for an editor."""
        raise NotImplementedError


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
