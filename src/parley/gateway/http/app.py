"""The handlers of the routes. `routes.py` says which route has which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from parley.gateway.http.api_types import (
    AcceptedPrompt,
    ClientEvents,
    ControlReply,
    CreatedSession,
    CreatedToken,
    Delegation,
    ForkRequest,
    Nothing,
    PromptRequest,
    ServerStatus,
    TokenList,
)
from parley.gateway.http.auth import PEER, Gate
from parley.gateway.http.console.overview import OverviewHandlers
from parley.gateway.http.console.session_views import SessionHandlers
from parley.gateway.http.event_stream import (
    EventStream,
    format_client_event,
    format_event,
    format_line,
    join_events,
)
from parley.gateway.http.query import read_prefix
from parley.gateway.http.replies import ask_engine, json_response, read_as, read_body
from parley.gateway.http.sockets import attach, make_filter, read_cursor, serve_socket, take_turn
from parley.gateway.hub import SessionHub
from parley.gateway.live_session import ENVIRONMENT_REFUSED, LiveSession
from parley.gateway.questions import Question
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal
from parley.gateway.security.quotas import Unsent
from parley.gateway.security.tokens import TokenRequest
from parley.gateway.session_options import SessionRequest
from parley.inspector.redaction import WireRedactor
from parley.protocol.base import Json

MOST_WAITING = 1000
"""How many changed questions may wait for a client that reads slowly."""


class Api(OverviewHandlers, SessionHandlers):
    def __init__(self, gate: Gate, hub: SessionHub, encode_document: Callable[[str], bytes]) -> None:
        """`encode_document` gives `openapi` and `asyncapi`."""
        self._gate = gate
        self._hub = hub
        self._encode_document = encode_document
        self._redactor = WireRedactor(hub.settings.environment)

    async def socket(self, socket: WebSocket) -> None:
        await serve_socket(socket, self._gate, self._hub)

    async def editor(self, socket: WebSocket) -> None:
        from parley.gateway.http.editors import serve_editor

        await serve_editor(socket, self._gate, self._hub)

    # Sessions.

    async def create_session(self, request: Request, principal: Principal) -> Response:
        session = self._hub.create(principal, await read_as(request, SessionRequest, "invalid_options"))
        return self._describe_new(request, principal, session)

    async def fork_session(self, request: Request, principal: Principal) -> Response:
        wanted = await read_as(request, ForkRequest)
        session_id = request.path_params["session_id"]
        session = await self._hub.fork(principal, session_id, wanted.uuid, wanted.title or "")
        return self._describe_new(request, principal, session)

    def _describe_new(self, request: Request, principal: Principal, session: LiveSession) -> Response:
        url = request.url_for("socket", session_id=session.id)
        url = url.replace(scheme="wss" if request.url.scheme == "https" else "ws", path=read_prefix(request) + url.path)
        info = self._hub.describe(principal, session.id)
        made = CreatedSession(session_id=session.id, ws_url=str(url), work_dir=info.cwd)
        return json_response(made, 201)

    async def get_session(self, request: Request, principal: Principal) -> Response:
        return json_response(self._hub.describe(principal, request.path_params["session_id"]))

    async def delete_session(self, request: Request, principal: Principal) -> Response:
        await self._hub.delete(principal, request.path_params["session_id"])
        return Response(status_code=204)

    async def send_prompt(self, request: Request, principal: Principal) -> Response:
        body = await read_as(request, PromptRequest)
        message: Json = {"type": "user", "message": {"role": "user", "content": body.content}}
        if body.uuid:
            message["uuid"] = body.uuid
        taken = self._session(request, principal).prompt(principal, msgspec.json.encode(message))
        return json_response(AcceptedPrompt(uuid=taken.uuid, after=taken.after), 202)

    async def send_request(self, request: Request, principal: Principal) -> Response:
        body = await read_body(request)
        return json_response(
            ControlReply(response=await ask_engine(self._session(request, principal), principal, body))
        )

    async def stream_events(self, request: Request, principal: Principal) -> Response:
        """Server-sent events: the lines of a session after `?after=N` or `Last-Event-ID`."""
        session = self._session(request, principal)
        query = request.query_params
        last = request.headers.get("last-event-id")
        if last is not None:
            query = type(query)({**query, "after": last})
        client = attach(type(query)({**query, "numbered": "true"}), session, principal, self._hub)

        def close() -> None:
            session.detach(client)

        async def take() -> list[bytes]:
            return join_events(map(format_line, await client.subscriber.take()))

        return EventStream(take, close, self._hub.stopped, client.subscriber.cursor)

    async def stream_client_events(self, request: Request, principal: Principal) -> Response:
        """The same for the official browser client."""
        session = self._session(request, principal)
        after = request.headers.get("last-event-id") or request.query_params.get("from_sequence_num") or "0"
        query = QueryParams({**request.query_params, "after": after})
        client = session.attach_stream(
            principal, read_cursor(query, session.id) or 0, make_filter(query, session, self._hub)
        )

        async def take() -> list[bytes]:
            return join_events(map(format_client_event, await client.subscriber.take()))

        def close() -> None:
            session.detach(client)

        return EventStream(take, close, self._hub.stopped)

    async def post_client_events(self, request: Request, principal: Principal) -> Response:
        events = (await read_as(request, ClientEvents)).events
        if any(event.payload.get("type") == "update_environment_variables" for event in events):
            raise Refusal("invalid_line", ENVIRONMENT_REFUSED)
        session = self._session(request, principal)
        for event in events:
            await take_turn(request)
            session.receive_posted(principal, msgspec.json.encode(event.payload))
        return json_response(Nothing(), 202)

    # Questions.

    async def list_questions(self, request: Request, principal: Principal) -> Response:
        return json_response(self._hub.questions.list_open(principal, request.query_params.get("session")))

    async def watch_questions(self, request: Request, principal: Principal) -> Response:
        """Server-sent events: the open questions, then every question that is asked or decided."""
        questions = self._hub.questions
        waiting = dict.fromkeys(questions.list_open_ids(principal))
        """Only their ids: a question may be long."""
        most, came = len(waiting) + MOST_WAITING, asyncio.Event()
        unsent = Unsent(self._hub.connections.use_of(principal))

        def listen(question: Question) -> None:
            if self._hub.may_see(principal, question.session) and len(waiting) <= most:
                waiting[question.session, question.request_id] = None
                came.set()

        async def take() -> list[bytes]:
            unsent.set(0)
            while len(waiting) < most:
                if not waiting:
                    came.clear()
                    await came.wait()
                await unsent.use.take_turn()
                await unsent.use.wait_room()
                question = questions.find(*(first := next(iter(waiting))))
                del waiting[first]
                if question is not None:  # its session may be deleted
                    event = format_event(msgspec.json.encode(question))
                    unsent.set(len(event))
                    return [event]
            return []  # the reader is too slow: it connects again and gets the questions that are open

        def close() -> None:
            questions.listeners.remove(listen)
            unsent.set(0)

        questions.listeners.append(listen)
        return EventStream(take, close, self._hub.stopped)

    async def get_question(self, request: Request, principal: Principal) -> Response:
        session, request_id = self._session(request, principal), request.path_params["request_id"]
        question = self._hub.questions.find(session.id, request_id)
        if question is None:
            raise Refusal("unknown_question", f"the session has no question {request_id!r}")
        return json_response(question)

    async def answer_question(self, request: Request, principal: Principal) -> Response:
        body = await read_body(request)
        session, request_id = self._session(request, principal), request.path_params["request_id"]
        response = {"subtype": "success", "request_id": request_id, "response": body}
        session.answer(principal, request_id, msgspec.json.encode({"type": "control_response", "response": response}))
        return json_response(self._hub.questions.find(session.id, request_id))

    async def delegate_question(self, request: Request, principal: Principal) -> Response:
        name = (await read_as(request, Delegation)).to
        session, request_id = self._session(request, principal), request.path_params["request_id"]
        if not self._hub.questions.delegate(session.log, request_id, name):
            raise Refusal("unknown_question", f"the session has no open question {request_id!r}")
        return json_response(self._hub.questions.find(session.id, request_id))

    # Tokens.

    async def list_tokens(self, request: Request, principal: Principal) -> Response:
        return json_response(TokenList(tokens=self._gate.tokens.list()))

    async def create_token(self, request: Request, principal: Principal) -> Response:
        wanted = await read_as(request, TokenRequest)
        self._hub.audit.write("create_token", principal, name=wanted.name, scopes=wanted.scopes)
        made = CreatedToken(name=wanted.name, token=self._gate.tokens.create(wanted))
        return json_response(made, 201)

    async def revoke_token(self, request: Request, principal: Principal) -> Response:
        self._hub.audit.write("revoke_token", principal, name=request.path_params["name"])
        self._gate.connections.spare(request.scope.get(PEER))
        if not self._gate.tokens.revoke(request.path_params["name"]):
            raise Refusal("unknown_token", f"there is no token {request.path_params['name']!r}")
        self._gate.connections.end_invalid()
        return Response(status_code=204)

    # The server itself.

    async def health(self, request: Request) -> Response:
        return json_response(ServerStatus(status="ok"))

    async def ready(self, request: Request) -> Response:
        draining = self._hub.is_draining
        return json_response(ServerStatus(status="draining" if draining else "ready"), 503 if draining else 200)

    async def show_openapi(self, request: Request) -> Response:
        return await self._show_document("openapi")

    async def show_asyncapi(self, request: Request) -> Response:
        return await self._show_document("asyncapi")

    async def _show_document(self, name: str) -> Response:
        return Response(await asyncio.to_thread(self._encode_document, name), media_type="application/json")

    async def show_metrics(self, request: Request, principal: Principal) -> Response:
        page = self._hub.metrics.render(self._hub.gauges())
        return Response(page, media_type="text/plain; version=0.0.4")
