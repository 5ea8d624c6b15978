"""The handlers of the routes, one method each. `routes.py` says which route has which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache, partial
from typing import TypeVar

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from parley.errors import UsageError
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
from parley.gateway.http.event_stream import (
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
from parley.gateway.http.sockets import attach, make_filter, read_cursor, serve_socket, take_turn
from parley.gateway.hub import ASKS_CLIENTS, SessionHub
from parley.gateway.index.session_list import LARGEST_PAGE, SessionQuery
from parley.gateway.index.tool_calls import RuleSimulation, read_rule
from parley.gateway.live_session import ENVIRONMENT_REFUSED, LiveSession
from parley.gateway.questions import Question
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal
from parley.gateway.security.quotas import Unsent
from parley.gateway.security.tokens import TokenRequest
from parley.gateway.session_log.session_log import SessionLog
from parley.gateway.session_options import SessionRequest
from parley.gateway.wire_log import WireLog, make_recording
from parley.inspector.recording import Record
from parley.inspector.redaction import WireRedactor
from parley.protocol.base import Json

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


class Api:
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

    # What the console shows.

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

    async def list_lines(self, request: Request, principal: Principal) -> Response:
        """The stored lines before a number, by default the newest; or the lines around a message."""
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

    async def list_prompts(self, request: Request, principal: Principal) -> Response:
        session = self._session(request, principal)
        await self._hub.indexer.catch_up(session.id)
        return json_response(self._hub.indexer.search.prompts(session.id))

    async def list_turns(self, request: Request, principal: Principal) -> Response:
        session = self._session(request, principal)
        await self._hub.indexer.catch_up(session.id)
        return json_response(self._hub.indexer.turns.of_session(session.id))

    async def list_files(self, request: Request, principal: Principal) -> Response:
        """Completes a path in the working directory."""
        query = request.query_params
        limit = read_number(query, "limit", 20, MOST_FILES)
        asked = {"subtype": "file_suggestions", "query": read_text(query, "query")}
        found = await ask_engine(self._session(request, principal), principal, asked)
        return json_response({"files": [one["path"] for one in found["suggestions"][:limit]]})

    async def show_rewind(self, request: Request, principal: Principal) -> Response:
        """What a rewind of the files to a message would change."""
        asked = {"user_message_id": read_text(request.query_params, "uuid"), "dry_run": True, "diffs": True}
        session = self._session(request, principal)
        found = await ask_engine(session, principal, {"subtype": "rewind_files", **asked})
        return json_response({"files": found["diffs"]})

    async def list_wire(self, request: Request, principal: Principal) -> Response:
        """What the session and its engine said to each other after a number."""
        query = request.query_params
        wire = self._wire(request, principal)
        limit = max(1, read_number(query, "limit", PAGE_LINES, MOST_LINES))
        after = read_number(query, "after", 0, code="invalid_cursor")
        last = wire.last()

        def make() -> bytes:
            return msgspec.json.encode({"lines": read_wire(wire, self._redactor, after, limit), "last": last})

        return Response(await self._work(request, principal, make), media_type="application/json")

    async def download_recording(self, request: Request, principal: Principal) -> Response:
        """The same as a conversation that a test can play."""
        wire = self._wire(request, principal)
        session_id = request.path_params["session_id"]
        info = self._hub.describe(principal, session_id)
        argv = (*self._hub.session_argv(session_id), *ASKS_CLIENTS)

        def make() -> bytes:
            records = self._redactor.redact(wire.read(0, LARGEST, LARGEST))
            return make_recording(info.cwd, argv, records)

        headers = {"Content-Disposition": f'attachment; filename="{session_id}.talk"'}
        made = await self._work(request, principal, make)
        return Response(made, headers=headers, media_type="text/plain; charset=utf-8")

    async def simulate_rule(self, request: Request, principal: Principal) -> Response:
        """What a rule would have decided about past calls, for a person who is about to add it."""
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
        wire = self._hub.wire(self._session(request, principal).id)
        if wire is None:
            raise Refusal("no_wire_log", "the server was started with --no-wire-log")
        wire.flush()
        return wire

    def _session(self, request: Request, principal: Principal) -> LiveSession:
        """To be called after the body was read: a session may be unloaded while a client sends one slowly."""
        return self._hub.get(principal, request.path_params["session_id"])


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
