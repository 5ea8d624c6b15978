"""The routes of the gateway and their handlers. A gateway of a cluster serves the same ones (`ServerApi`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import cache, partial
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from parley.acp.agent import AcpAgent
from parley.errors import UsageError
from parley.gateway.editor_sessions import HubSessions, relay_editor
from parley.gateway.engines import STREAM
from parley.gateway.http.api_types import (
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
from parley.gateway.http.auth import PEER, Gate
from parley.gateway.http.event_stream import (
    Event,
    EventStream,
    format_client_event,
    format_event,
    format_line,
    join_events,
)
from parley.gateway.http.replies import (
    LARGEST,
    ask_engine,
    json_response,
    read_as,
    read_body,
    read_number,
    read_prefix,
    read_text,
)
from parley.gateway.http.routes import EVENTS, JSON_LINES, TEXT, Parameter, RouteServer, RouteTable
from parley.gateway.http.sockets import attach, make_filter, open_session, read_cursor, relay, take_turn
from parley.gateway.hub import ASKS_CLIENTS, SessionHub
from parley.gateway.index.session_list import LARGEST_PAGE, SessionInfo, SessionQuery
from parley.gateway.index.tool_calls import RuleSimulation, read_rule
from parley.gateway.live_session import ENVIRONMENT_REFUSED, AcceptedPrompt, LiveSession, SessionClient
from parley.gateway.questions import Question, QuestionList
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Scope
from parley.gateway.security.quotas import Unsent
from parley.gateway.security.tokens import TokenRequest
from parley.gateway.session_log.session_log import SessionLog
from parley.gateway.session_options import SessionRequest
from parley.gateway.subscriber import Numbered
from parley.gateway.transcript import read_requests
from parley.gateway.wire_log import WireLog
from parley.protocol.base import Json
from parley.protocol.schema import build_schema
from parley.stores.request_usage import RequestUsage
from parley.stores.wire_recording import Record, WireHeader, encode_recording
from parley.stores.wire_redaction import WireRedactor, clean_command
from parley.version import __version__

MOST_WAITING = 1000
"""How many changed questions may wait for a client that reads slowly."""
STATES = frozenset({"idle", "running", "requires_action", "failed"})
MOST_DAYS = 3660
MOST_LINES = 2000
PAGE_LINES = 200
PAGE_BYTES = 1024 * 1024
"""How large a page of lines may be. A longer line is a page of its own."""
MOST_FILES = 100
MARGIN = 200
"""How many records before and after a page are searched for parts of secrets."""

T = TypeVar("T")

AFTER = Parameter("after", "Only the lines after this one: its number, or SESSION:NUMBER.")
BEFORE = Parameter("before", "Only the lines before this number.", int)
AROUND = Parameter("around_uuid", "The lines around the message with this id.")
LAST_EVENT = Parameter("Last-Event-ID", "The same, as browsers send it when they connect again.", place="header")
PARTIAL = Parameter("partial", "With stream events, the parts of a message that is being written.", bool)
LIMIT = Parameter("limit", "How many at most.", int)
SEARCH = Parameter("search", "Only those with these words in the title, the folder, a prompt or an answer.")
STATE = Parameter("state", "Only those in one of these states, separated by commas.")
DAYS = Parameter("days", "Of how many days, today included (UTC).", int)
route = RouteTable()


class ServerApi(RouteServer):
    """What every gateway serves by itself: tokens, documents, and how it is."""

    def audit(self, act: str, principal: Principal, **details: Any) -> None:
        """Record an act before it has an effect. Raises SessionError."""

    async def find_problem(self) -> str:
        """Why no new session should come; empty if it may."""
        return ""

    # Without a token.

    @route.get("/healthz", ServerStatus, is_open=True)
    async def health(self, request: Request) -> Response:
        """Whether the process lives."""
        return json_response(ServerStatus(status="ok"))

    @route.get("/readyz", ServerStatus, is_open=True, others=(503,))
    async def ready(self, request: Request) -> Response:
        """Whether the server takes new sessions."""
        problem = await self.find_problem()
        return json_response(ServerStatus(status=problem or "ready"), 503 if problem else 200)

    @route.get("/openapi.json", Json, is_open=True)
    async def show_openapi(self, request: Request) -> Response:
        """This document."""
        return await show_document("build_openapi")

    @route.get("/asyncapi.json", Json, is_open=True)
    async def show_asyncapi(self, request: Request) -> Response:
        """The frames and events."""
        return await show_document("build_asyncapi")

    # With one.

    @route.get("/me", TokenHolder)
    async def show_principal(self, request: Request, principal: Principal) -> Response:
        """What the token may do."""
        scopes = sorted(principal.scopes)
        return json_response({"name": principal.name, "tenant": principal.tenant, "scopes": scopes})

    @route.get("/schema.json", Json)
    async def show_schema(self, request: Request, principal: Principal) -> Response:
        """The schema of a line."""
        return Response(await asyncio.to_thread(encode_schema), media_type="application/json")

    @route.get("/tokens", TokenList, scope=Scope.ADMIN)
    async def list_tokens(self, request: Request, principal: Principal) -> Response:
        """All tokens, without their secrets."""
        return json_response(TokenList(tokens=self.gate.tokens.list()))

    @route.post("/tokens", CreatedToken, scope=Scope.ADMIN, takes=TokenRequest, status=201)
    async def create_token(self, request: Request, principal: Principal) -> Response:
        """Create a token; the reply is the only place that shows it."""
        wanted = await read_as(request, TokenRequest)
        self.audit("create_token", principal, name=wanted.name, scopes=wanted.scopes)
        made = CreatedToken(name=wanted.name, token=await self.gate.tokens.add(wanted))
        return json_response(made, 201)

    @route.delete("/tokens/{name}", scope=Scope.ADMIN, status=204)
    async def revoke_token(self, request: Request, principal: Principal) -> Response:
        """Revoke a token."""
        name = request.path_params["name"]
        self.audit("revoke_token", principal, name=name)
        self.gate.connections.spare(request.scope.get(PEER))
        if not await self.gate.tokens.remove(name):
            raise Refusal("unknown_token", f"there is no token {name!r}")
        return Response(status_code=204)


class Api(ServerApi):
    """The sessions of a hub in this process."""

    def __init__(self, gate: Gate, hub: SessionHub) -> None:
        super().__init__(gate, hub.log)
        self._hub = hub
        self._redactor = WireRedactor(hub.settings.environment)

    def explain(self, exc: Exception) -> Refusal:
        if isinstance(exc, Refusal):
            self._hub.metrics.count("parley_refusals_total", code=exc.code)
        return super().explain(exc)

    def audit(self, act: str, principal: Principal, **details: Any) -> None:
        self._hub.audit.write(act, principal, **details)

    async def find_problem(self) -> str:
        return "draining" if self._hub.is_draining else ""

    async def socket(self, socket: WebSocket, principal: Principal) -> Coroutine[Any, Any, None]:
        session = open_session(socket, self._hub, principal)
        return relay(socket, session, attach(socket.query_params, session, principal, self._hub))

    async def editor(self, socket: WebSocket, principal: Principal) -> Coroutine[Any, Any, None]:
        self._hub.check_draining()
        self._hub.audit.write("acp", principal)
        sessions = HubSessions(self._hub, principal, self._hub.log.warn)
        return relay_editor(socket, lambda connection: AcpAgent(connection, sessions))

    # Sessions.

    @route.post("/sessions", CreatedSession, scope=Scope.CREATE, takes=SessionRequest, status=201)
    async def create_session(self, request: Request, principal: Principal) -> Response:
        """Create a session."""
        session = self._hub.create(principal, await read_as(request, SessionRequest, "invalid_options"))
        return self._describe_new(request, principal, session)

    @route.post("/sessions/{session_id}/fork", CreatedSession, scope=Scope.CREATE, takes=ForkRequest, status=201)
    async def fork_session(self, request: Request, principal: Principal) -> Response:
        """Copy a session up to a message."""
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

    @route.get("/sessions/events", str, scope=Scope.VIEW, media=EVENTS)
    async def watch_sessions(self, request: Request, principal: Principal) -> Response:
        """Sessions that change or are deleted, as server-sent events."""
        watcher = self._hub.events.watch(principal)

        async def take() -> list[bytes]:
            return [b"".join(map(format_event, await watcher.take()))]

        return EventStream(take, lambda: self._hub.events.end(watcher), self._hub.stopped)

    @route.get("/sessions/{session_id}", SessionInfo, scope=Scope.VIEW)
    async def get_session(self, request: Request, principal: Principal) -> Response:
        """One session."""
        return json_response(self._hub.describe(principal, request.path_params["session_id"]))

    @route.delete("/sessions/{session_id}", scope=Scope.CREATE, status=204)
    async def delete_session(self, request: Request, principal: Principal) -> Response:
        """Stop a session and remove it from the gateway; its transcript stays."""
        await self._hub.delete(principal, request.path_params["session_id"])
        return Response(status_code=204)

    @route.post("/sessions/{session_id}/take", SessionInfo, scope=Scope.PROMPT)
    async def take_session(self, request: Request, principal: Principal) -> Response:
        """Let the session run here, also if another process runs it, which can then no longer write."""
        self._hub.take(principal, request.path_params["session_id"])
        return json_response(self._hub.describe(principal, request.path_params["session_id"]))

    @route.post("/sessions/{session_id}/release", SessionInfo, scope=Scope.PROMPT)
    async def release_session(self, request: Request, principal: Principal) -> Response:
        """End the engine of an idle session, so that another process can continue it."""
        await self._hub.release(principal, request.path_params["session_id"])
        return json_response(self._hub.describe(principal, request.path_params["session_id"]))

    @route.post("/sessions/{session_id}/prompts", AcceptedPrompt, scope=Scope.PROMPT, takes=PromptRequest, status=202)
    async def send_prompt(self, request: Request, principal: Principal) -> Response:
        """Send a prompt."""
        body = await read_as(request, PromptRequest)
        message: Json = {"type": "user", "message": {"role": "user", "content": body.content}}
        if body.uuid:
            message["uuid"] = body.uuid
        return json_response(self._session(request, principal).prompt(principal, msgspec.json.encode(message)), 202)

    @route.post("/sessions/{session_id}/control", ControlReply, takes=ControlRequestBody)
    async def send_request(self, request: Request, principal: Principal) -> Response:
        """Send a control request and wait for the reply; the scope depends on the request."""
        body = await read_body(request)
        return json_response(
            ControlReply(response=await ask_engine(self._session(request, principal), principal, body))
        )

    @route.get("/sessions/{session_id}/events", str, AFTER, LAST_EVENT, PARTIAL, scope=Scope.VIEW, media=EVENTS)
    async def stream_events(self, request: Request, principal: Principal) -> Response:
        """The lines of a session as server-sent events."""
        session = self._session(request, principal)
        query = request.query_params
        last = request.headers.get("last-event-id")
        if last is not None:
            query = type(query)({**query, "after": last})
        client = attach(type(query)({**query, "numbered": "true"}), session, principal, self._hub)
        return self._stream(session, client, format_line, client.subscriber.cursor)

    def _stream(
        self,
        session: LiveSession,
        client: SessionClient,
        format_one: Callable[[Numbered], Event],
        cursor: int | None = None,
    ) -> EventStream:
        """The lines of a session for a client, until it disconnects."""

        async def take() -> list[bytes]:
            return join_events(map(format_one, await client.subscriber.take()))

        return EventStream(take, partial(session.detach, client), self._hub.stopped, cursor)

    @route.get(
        "/v1/code/sessions/{session_id}/events/stream",
        str,
        Parameter("from_sequence_num", "Only the lines after this number."),
        LAST_EVENT,
        PARTIAL,
        scope=Scope.VIEW,
        media=EVENTS,
    )
    async def stream_client_events(self, request: Request, principal: Principal) -> Response:
        """The same in the envelopes of the official browser client."""
        session = self._session(request, principal)
        after = request.headers.get("last-event-id") or request.query_params.get("from_sequence_num") or "0"
        query = QueryParams({**request.query_params, "after": after})
        wants = make_filter(query, session, self._hub)
        client = session.attach_stream(principal, read_cursor(query, session.id) or 0, wants)
        return self._stream(session, client, format_client_event)

    @route.post("/v1/code/sessions/{session_id}/events", Nothing, scope=Scope.VIEW, takes=ClientEvents, status=202)
    async def post_client_events(self, request: Request, principal: Principal) -> Response:
        """Lines of the official browser client; what else is needed depends on the line."""
        events = (await read_as(request, ClientEvents)).events
        if any(event.payload.get("type") == "update_environment_variables" for event in events):
            raise Refusal("invalid_line", ENVIRONMENT_REFUSED)
        session = self._session(request, principal)
        for event in events:
            await take_turn(request)
            session.receive_posted(principal, msgspec.json.encode(event.payload))
        return json_response(Nothing(), 202)

    # Questions.

    @route.get(
        "/questions", QuestionList, Parameter("session", "Only the questions of this session."), scope=Scope.VIEW
    )
    async def list_questions(self, request: Request, principal: Principal) -> Response:
        """The open questions, oldest first, as many as fit on a page."""
        return json_response(self._hub.questions.list_open(principal, request.query_params.get("session")))

    @route.get("/questions/events", str, scope=Scope.VIEW, media=EVENTS)
    async def watch_questions(self, request: Request, principal: Principal) -> Response:
        """The open questions, then every one that is asked or decided, as server-sent events."""
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

    @route.get("/questions/{session_id}/{request_id}", Question, scope=Scope.VIEW)
    async def get_question(self, request: Request, principal: Principal) -> Response:
        """One question."""
        session, request_id = self._session(request, principal), request.path_params["request_id"]
        question = self._hub.questions.find(session.id, request_id)
        if question is None:
            raise Refusal("unknown_question", f"the session has no question {request_id!r}")
        return json_response(question)

    @route.post("/questions/{session_id}/{request_id}/answer", Question, scope=Scope.APPROVE, takes=Json)
    async def answer_question(self, request: Request, principal: Principal) -> Response:
        """Decide a question with the answer of the wire protocol; the first answer counts."""
        body = await read_body(request)
        session, request_id = self._session(request, principal), request.path_params["request_id"]
        response = {"subtype": "success", "request_id": request_id, "response": body}
        session.answer(principal, request_id, msgspec.json.encode({"type": "control_response", "response": response}))
        return json_response(self._hub.questions.find(session.id, request_id))

    @route.post("/questions/{session_id}/{request_id}/delegate", Question, scope=Scope.APPROVE, takes=Delegation)
    async def delegate_question(self, request: Request, principal: Principal) -> Response:
        """Leave a question to the holder of a token."""
        name = (await read_as(request, Delegation)).to
        session, request_id = self._session(request, principal), request.path_params["request_id"]
        if not self._hub.questions.delegate(session.log, request_id, name):
            raise Refusal("unknown_question", f"the session has no open question {request_id!r}")
        return json_response(self._hub.questions.find(session.id, request_id))

    @route.get("/metrics", str, scope=Scope.ADMIN, media=TEXT)
    async def show_metrics(self, request: Request, principal: Principal) -> Response:
        """Figures for Prometheus."""
        page = self._hub.metrics.render(self._hub.gauges())
        return Response(page, media_type="text/plain; version=0.0.4")

    # What the console shows.

    @route.get(
        "/sessions",
        FoundSessions,
        SEARCH,
        STATE,
        LIMIT,
        Parameter("offset", "How many to leave out.", int),
        scope=Scope.VIEW,
    )
    async def list_sessions(self, request: Request, principal: Principal) -> Response:
        """The sessions of your tenant, the last used first."""
        query = read_query(request.query_params)
        limited = msgspec.structs.replace(query, limit=min(query.limit, LARGEST_PAGE))
        found, total = self._hub.find_sessions(principal, limited)
        return json_response({"sessions": found, "total": total})

    @route.get("/costs", CostReport, DAYS, scope=Scope.VIEW)
    async def show_costs(self, request: Request, principal: Principal) -> Response:
        """What the sessions of your tenant cost."""
        days = read_number(request.query_params, "days", 30, MOST_DAYS)
        self._hub.indexer.index_marked()
        used = self._hub.spending.of(principal.name)
        budget = {"usd": principal.quotas.usd, "used": used.usd}
        return json_response({**self._hub.indexer.turns.costs(principal, days), "budget": budget})

    @route.get("/sessions/{session_id}/lines", LinePage, BEFORE, AROUND, LIMIT, scope=Scope.VIEW)
    async def list_lines(self, request: Request, principal: Principal) -> Response:
        """Stored lines with their times, by default the newest."""
        session = self._session(request, principal)
        query = request.query_params
        limit = max(1, read_number(query, "limit", PAGE_LINES, MOST_LINES))
        before = read_number(query, "before", LARGEST, code="invalid_cursor")
        if uuid := read_text(query, "around_uuid"):
            number = await self._find_message(request, principal, session.log, uuid)
            if number is None:
                raise Refusal("unknown_message", f"the session has no message {uuid!r:.100}")
            before = number + limit // 2 + 1
        return Response(encode_page(session.log, before, limit), media_type="application/json")

    @route.get("/sessions/{session_id}/index", list[SentPrompt], scope=Scope.VIEW)
    async def list_prompts(self, request: Request, principal: Principal) -> Response:
        """The prompts of a session, oldest first."""
        session = self._session(request, principal)
        await self._hub.indexer.catch_up(session.id)
        return json_response(self._hub.indexer.search.prompts(session.id))

    @route.get("/sessions/{session_id}/turns", list[TurnFigures], scope=Scope.VIEW)
    async def list_turns(self, request: Request, principal: Principal) -> Response:
        """The turns of a session, oldest first."""
        session = self._session(request, principal)
        await self._hub.indexer.catch_up(session.id)
        return json_response(self._hub.indexer.turns.of_session(session.id))

    @route.get("/sessions/{session_id}/requests", list[RequestUsage], scope=Scope.VIEW)
    async def list_model_requests(self, request: Request, principal: Principal) -> Response:
        """What each request to a model read from the prompt cache, wrote to it and missed, oldest first."""
        session = self._session(request, principal)
        stores = self._hub.open_stores(session, self._hub.storage.engine_store(session.id))
        return json_response(await self._work(request, principal, partial(read_requests, stores, session.engine_id)))

    @route.get(
        "/sessions/{session_id}/files", FileNames, Parameter("query", "A part of the path."), LIMIT, scope=Scope.PROMPT
    )
    async def list_files(self, request: Request, principal: Principal) -> Response:
        """Files in the working directory that match a query."""
        query = request.query_params
        limit = read_number(query, "limit", 20, MOST_FILES)
        asked = {"subtype": "file_suggestions", "query": read_text(query, "query")}
        found = await ask_engine(self._session(request, principal), principal, asked)
        return json_response({"files": [one["path"] for one in found["suggestions"][:limit]]})

    @route.get(
        "/sessions/{session_id}/rewind", RewindPreview, Parameter("uuid", "The id of the prompt."), scope=Scope.PROMPT
    )
    async def show_rewind(self, request: Request, principal: Principal) -> Response:
        """What a rewind of the files to a message would change."""
        asked = {"user_message_id": read_text(request.query_params, "uuid"), "dry_run": True, "diffs": True}
        session = self._session(request, principal)
        found = await ask_engine(session, principal, {"subtype": "rewind_files", **asked})
        return json_response({"files": found["diffs"]})

    @route.get(
        "/sessions/{session_id}/wire",
        WirePage,
        Parameter("after", "Only the lines after this number.", int),
        LIMIT,
        scope=Scope.APPROVE,
    )
    async def list_wire(self, request: Request, principal: Principal) -> Response:
        """The lines between the session and its engine, without secrets."""
        query = request.query_params
        wire = self._wire(request, principal)
        limit = max(1, read_number(query, "limit", PAGE_LINES, MOST_LINES))
        after = read_number(query, "after", 0, code="invalid_cursor")
        last = wire.last()

        def make() -> bytes:
            return msgspec.json.encode({"lines": read_wire(wire, self._redactor, after, limit), "last": last})

        return Response(await self._work(request, principal, make), media_type="application/json")

    @route.get("/sessions/{session_id}/wire/recording", str, scope=Scope.APPROVE, media=JSON_LINES)
    async def download_recording(self, request: Request, principal: Principal) -> Response:
        """The same as a recording that `parley replay` plays."""
        wire = self._wire(request, principal)
        session_id = request.path_params["session_id"]
        cwd = self._hub.describe(principal, session_id).cwd
        argv = ("parley", *STREAM, *self._hub.session_argv(session_id), *ASKS_CLIENTS)
        command = tuple(clean_command(argv, self._redactor.redact_text))

        def make() -> bytes:
            records = self._redactor.redact(wire.read(0, LARGEST, LARGEST))
            return encode_recording(WireHeader(command=command, cwd=cwd, recorder=f"parley {__version__}"), records)

        headers = {"Content-Disposition": f'attachment; filename="{session_id}.jsonl"'}
        return Response(await self._work(request, principal, make), headers=headers, media_type=JSON_LINES)

    @route.post("/questions/{session_id}/{request_id}/simulate", RuleReport, scope=Scope.APPROVE, takes=RuleRequest)
    async def simulate_rule(self, request: Request, principal: Principal) -> Response:
        """What a permission rule would have decided about past calls."""
        body = await read_body(request)
        session, request_id = self._session(request, principal), request.path_params["request_id"]
        if self._hub.questions.find(session.id, request_id) is None:
            raise Refusal("unknown_question", f"the session has not asked {request_id!r}")
        settings = self._hub.settings
        try:
            rule, behavior = read_rule(body)
        except UsageError as exc:
            raise Refusal("invalid_body", str(exc)) from None
        simulation = RuleSimulation(rule, behavior, settings.argv, settings.environment)
        self._hub.indexer.index_marked()
        calls = self._hub.indexer.tool_calls.newest(principal)
        return json_response(await self._work(request, principal, partial(simulation.run, calls)))

    async def _find_message(self, request: Request, principal: Principal, log: SessionLog, uuid: str) -> int | None:
        """The number of a message. Raises Refusal, SessionError."""
        number: int | None = None
        start: int | None = 0
        while number is None and start is not None:
            number, start = await self._work(request, principal, partial(log.find, uuid, start))
        return number

    async def _work(self, request: Request, principal: Principal, work: Callable[[], T]) -> T:
        """Work in a thread, when it is the turn of the tenant. Raises Refusal if the client is gone by then."""
        return await self._hub.threads.run(principal.tenant, work, request.is_disconnected)

    def _wire(self, request: Request, principal: Principal) -> WireLog:
        """Raises Refusal."""
        wire = self._session(request, principal).wire
        if not wire.is_kept:
            raise Refusal("no_wire_log", "the server was started with --no-wire-log")
        wire.flush()
        return wire

    def _session(self, request: Request, principal: Principal) -> LiveSession:
        """To be called after the body was read: a session may be unloaded while a client sends one slowly."""
        return self._hub.get(principal, request.path_params["session_id"])


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


async def show_document(build: str) -> Response:
    from parley.gateway.http import documents

    encoded = await asyncio.to_thread(documents.encode, getattr(documents, build))
    return Response(encoded, media_type="application/json")


@cache
def encode_schema() -> bytes:
    return msgspec.json.encode(build_schema())


def read_wire(wire: WireLog, redactor: WireRedactor, after: int, limit: int) -> list[Record]:
    """A page of records. A secret may start on the page before, or end on the next."""
    records = redactor.redact(wire.read(after - MARGIN, limit + 2 * MARGIN, PAGE_BYTES))
    return [record for record in records if record[0] > after][:limit]


def encode_page(log: SessionLog, before: int, limit: int) -> bytes:
    """Lines are not decoded: they are JSON already. Raises SessionError."""
    lines = log.read_before(before, limit, PAGE_BYTES)
    first, last = (lines[0].number, lines[-1].number) if lines else (0, 0)
    rows = [[line.number, line.at, msgspec.Raw(line.data)] for line in lines]
    return msgspec.json.encode({"lines": rows, "first": first, "last": last})
