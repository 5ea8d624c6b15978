"""The routes of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from parley.errors import SessionError, UsageError
from parley.gateway.access import Principal, Scope
from parley.gateway.http.auth import Gate
from parley.gateway.http.errors import error_response
from parley.gateway.http.event_stream import (
    EventStream,
    format_client_event,
    format_event,
    read_client_events,
)
from parley.gateway.http.sockets import attach, make_filter, read_cursor, serve_socket
from parley.gateway.hub import SessionHub
from parley.gateway.live_session import LiveSession
from parley.gateway.questions import Question
from parley.gateway.refusal import Refusal
from parley.gateway.session_options import require
from parley.gateway.tokens import TokenRequest
from parley.protocol.base import Json

BODY_BYTES = 64 * 1024 * 1024
"""The longest body of a request."""

CORS_HEADERS = ("Authorization", "Content-Type", "Last-Event-ID")
"""The headers that pages of other origins may send."""
CORS_SECONDS = 600
"""How long a browser remembers that an origin is allowed."""

Handler = Callable[[Request, Principal], Awaitable[Response]]


class Api:
    """The handlers of the routes."""

    def __init__(self, gate: Gate, hub: SessionHub) -> None:
        self._gate = gate
        self._hub = hub

    def app(self) -> Starlette:
        return Starlette(
            exception_handlers={HTTPException: refuse_route},
            routes=[
                WebSocketRoute("/ws", self.socket),
                WebSocketRoute("/acp", self.editor),
                WebSocketRoute("/sessions/{session_id}/ws", self.socket),
                self._route("GET", "/sessions", self.list_sessions),
                self._route("POST", "/sessions", self.create_session),
                self._route("GET", "/sessions/{session_id}", self.get_session),
                self._route("DELETE", "/sessions/{session_id}", self.delete_session),
                self._route("POST", "/sessions/{session_id}/fork", self.fork_session),
                self._route("POST", "/sessions/{session_id}/prompts", self.send_prompt),
                self._route("POST", "/sessions/{session_id}/control", self.send_request),
                self._route("GET", "/sessions/{session_id}/events", self.stream_events),
                self._route("GET", "/v1/code/sessions/{session_id}/events/stream", self.stream_client_events),
                self._route("POST", "/v1/code/sessions/{session_id}/events", self.post_client_events),
                self._route("GET", "/questions", self.list_questions),
                self._route("GET", "/questions/events", self.watch_questions),
                self._route("GET", "/questions/{session_id}/{request_id}", self.get_question),
                self._route("POST", "/questions/{session_id}/{request_id}/answer", self.answer_question),
                self._route("POST", "/questions/{session_id}/{request_id}/delegate", self.delegate_question),
                self._route("GET", "/tokens", self.list_tokens),
                self._route("POST", "/tokens", self.create_token),
                self._route("DELETE", "/tokens/{name}", self.revoke_token),
                Route("/healthz", self.health),
                Route("/readyz", self.ready),
                self._route("GET", "/metrics", self.show_metrics),
            ],
            middleware=[cors(self._gate.origins)],
        )

    def _route(self, method: str, path: str, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                return await handler(request, self._gate.require(request))
            except Refusal as refusal:
                self._hub.metrics.count("parley_refusals_total", code=refusal.code)
                return error_response(refusal)
            except (SessionError, UsageError) as exc:
                return error_response(Refusal("storage_error", str(exc)))

        return Route(path, endpoint, methods=[method])

    async def socket(self, socket: WebSocket) -> None:
        await serve_socket(socket, self._gate, self._hub)

    async def editor(self, socket: WebSocket) -> None:
        from parley.gateway.http.editors import serve_editor

        await serve_editor(socket, self._gate, self._hub)

    # Sessions.

    async def list_sessions(self, request: Request, principal: Principal) -> Response:
        require(principal, Scope.VIEW, "listing sessions")
        return json_response({"sessions": self._hub.list_sessions(principal)})

    async def create_session(self, request: Request, principal: Principal) -> Response:
        session = self._hub.create(principal, await read_body(request))
        return self._describe_new(request, principal, session)

    async def fork_session(self, request: Request, principal: Principal) -> Response:
        body = await read_body(request)
        uuid, title = body.get("uuid"), body.get("title") or ""
        if not isinstance(uuid, str | None) or not isinstance(title, str):
            raise Refusal("invalid_body", "`uuid` must be the id of a message or null, and `title` a text")
        session = await self._hub.fork(principal, request.path_params["session_id"], uuid, title)
        return self._describe_new(request, principal, session)

    def _describe_new(self, request: Request, principal: Principal, session: LiveSession) -> Response:
        url = request.url_for("socket", session_id=session.id)
        scheme = "wss" if request.url.scheme == "https" else "ws"
        info = self._hub.describe(principal, session.id)
        return json_response(
            {"session_id": session.id, "ws_url": str(url.replace(scheme=scheme)), "work_dir": info.cwd}, 201
        )

    async def get_session(self, request: Request, principal: Principal) -> Response:
        require(principal, Scope.VIEW, "reading a session")
        return json_response(self._hub.describe(principal, request.path_params["session_id"]))

    async def delete_session(self, request: Request, principal: Principal) -> Response:
        await self._hub.delete(principal, request.path_params["session_id"])
        return Response(status_code=204)

    async def send_prompt(self, request: Request, principal: Principal) -> Response:
        body = await read_body(request)
        if "content" not in body:
            raise Refusal("invalid_body", "the body needs the field `content`: a string, or a list of content blocks")
        message: Json = {"type": "user", "message": {"role": "user", "content": body["content"]}}
        if body.get("uuid"):
            message["uuid"] = body["uuid"]
        uuid = self._session(request, principal).prompt(principal, msgspec.json.encode(message))
        return json_response({"uuid": uuid}, 202)

    async def send_request(self, request: Request, principal: Principal) -> Response:
        body = await read_body(request)
        reply = await self._session(request, principal).request(principal, body)
        response = msgspec.json.decode(reply)["response"]
        if response["subtype"] == "error":
            raise Refusal(str(response.get("error_code") or "failed"), str(response.get("error")))
        return json_response({"response": response.get("response")})

    async def stream_events(self, request: Request, principal: Principal) -> Response:
        """Server-sent events: the lines of a session after `?after=N` or `Last-Event-ID`."""
        require(principal, Scope.VIEW, "reading a session")
        session = self._session(request, principal)
        query = request.query_params
        last = request.headers.get("last-event-id")
        if last is not None:
            query = type(query)({**query, "after": last})
        client = attach(type(query)({**query, "numbered": "true"}), session, principal, self._hub)

        def close() -> None:
            session.detach(client)

        async def take() -> bytes:
            return b"".join(format_event(line, number) for number, line in await client.subscriber.take())

        return EventStream(take, close)

    async def stream_client_events(self, request: Request, principal: Principal) -> Response:
        """The same for the official browser client."""
        require(principal, Scope.VIEW, "reading a session")
        session = self._session(request, principal)
        after = request.headers.get("last-event-id") or request.query_params.get("from_sequence_num") or "0"
        query = QueryParams({**request.query_params, "after": after})
        client = session.attach_stream(
            principal, read_cursor(query, session.id) or 0, make_filter(query, session, self._hub)
        )

        async def take() -> bytes:
            return b"".join(map(format_client_event, await client.subscriber.take()))

        def close() -> None:
            session.detach(client)

        return EventStream(take, close)

    async def post_client_events(self, request: Request, principal: Principal) -> Response:
        session = self._session(request, principal)
        try:
            lines = read_client_events(await read_body(request))
        except ValueError as exc:
            raise Refusal("invalid_body", str(exc)) from None
        for line in lines:
            session.receive(session.stream_client(principal), line)
        return json_response({}, 202)

    # Questions.

    async def list_questions(self, request: Request, principal: Principal) -> Response:
        require(principal, Scope.VIEW, "reading questions")
        found = self._hub.questions.list_open(principal, request.query_params.get("session"))
        return json_response({"questions": found})

    async def watch_questions(self, request: Request, principal: Principal) -> Response:
        """Server-sent events: the open questions, then every question that is asked or decided."""
        require(principal, Scope.VIEW, "reading questions")
        queue: asyncio.Queue[Question] = asyncio.Queue()
        for question in self._hub.questions.list_open(principal):
            queue.put_nowait(question)

        def listen(question: Question) -> None:
            if self._hub.may_see(principal, question.session):
                queue.put_nowait(question)

        async def take() -> bytes:
            return format_event(msgspec.json.encode(await queue.get()))

        self._hub.questions.listeners.append(listen)
        return EventStream(take, lambda: self._hub.questions.listeners.remove(listen))

    async def get_question(self, request: Request, principal: Principal) -> Response:
        require(principal, Scope.VIEW, "reading questions")
        session, request_id = self._session(request, principal), request.path_params["request_id"]
        question = self._hub.questions.find(session.id, request_id)
        if question is None:
            raise Refusal("unknown_question", f"the session has no question {request_id!r}")
        return json_response(question)

    async def answer_question(self, request: Request, principal: Principal) -> Response:
        session, request_id = self._session(request, principal), request.path_params["request_id"]
        body = await read_body(request)
        response = {"subtype": "success", "request_id": request_id, "response": body}
        session.answer(principal, request_id, msgspec.json.encode({"type": "control_response", "response": response}))
        return json_response(self._hub.questions.find(session.id, request_id))

    async def delegate_question(self, request: Request, principal: Principal) -> Response:
        require(principal, Scope.APPROVE, "delegating a question")
        session, request_id = self._session(request, principal), request.path_params["request_id"]
        name = (await read_body(request)).get("to")
        if not isinstance(name, str) or not name:
            raise Refusal("invalid_body", "the body needs the field `to`: the name of a token")
        if not self._hub.questions.delegate(session.id, request_id, name):
            raise Refusal("unknown_question", f"the session has no open question {request_id!r}")
        return json_response(self._hub.questions.find(session.id, request_id))

    # Tokens.

    async def list_tokens(self, request: Request, principal: Principal) -> Response:
        require(principal, Scope.ADMIN, "listing tokens")
        return json_response({"tokens": self._gate.tokens.list()})

    async def create_token(self, request: Request, principal: Principal) -> Response:
        require(principal, Scope.ADMIN, "creating a token")
        try:
            wanted = msgspec.convert(await read_body(request), TokenRequest)
        except msgspec.ValidationError as exc:
            raise Refusal("invalid_body", str(exc)) from None
        self._hub.audit.write("create_token", principal, name=wanted.name, scopes=wanted.scopes)
        return json_response({"name": wanted.name, "token": self._gate.tokens.create(wanted)}, 201)

    async def revoke_token(self, request: Request, principal: Principal) -> Response:
        require(principal, Scope.ADMIN, "revoking a token")
        self._hub.audit.write("revoke_token", principal, name=request.path_params["name"])
        if not self._gate.tokens.revoke(request.path_params["name"]):
            raise Refusal("unknown_token", f"there is no token {request.path_params['name']!r}")
        return Response(status_code=204)

    # The server itself.

    async def health(self, request: Request) -> Response:
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        draining = self._hub.is_draining
        return json_response({"status": "draining" if draining else "ready"}, 503 if draining else 200)

    async def show_metrics(self, request: Request, principal: Principal) -> Response:
        require(principal, Scope.ADMIN, "reading metrics")
        page = self._hub.metrics.render(self._hub.gauges())
        return Response(page, media_type="text/plain; version=0.0.4")

    def _session(self, request: Request, principal: Principal) -> LiveSession:
        return self._hub.get(principal, request.path_params["session_id"])


def cors(origins: frozenset[str]) -> Middleware:
    """Lets pages of other origins call the API. They send their token themselves: no cookie is ever accepted."""
    return Middleware(
        CORSMiddleware,
        allow_origins=sorted(origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=CORS_HEADERS,
        max_age=CORS_SECONDS,
    )


async def refuse_route(request: Request, exc: Exception) -> Response:
    """The reply to a path or method that does not exist."""
    assert isinstance(exc, HTTPException)
    code = "method_not_allowed" if exc.status_code == 405 else "not_found"
    return error_response(Refusal(code, f"there is no route {request.method} {request.url.path}"))


def json_response(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def read_body(request: Request) -> Json:
    """The JSON object of a request; empty without a body. Raises Refusal."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            raise Refusal("too_large", f"the request body is longer than {BODY_BYTES} bytes")
    if not body.strip():
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Refusal("invalid_body", f"the request body is not JSON: {exc}") from None
    if not isinstance(found, dict):
        raise Refusal("invalid_body", "the request body must be a JSON object")
    return found
