"""What the console reads of one session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from parley.errors import UsageError
from parley.gateway.http.query import LARGEST, read_number, read_text
from parley.gateway.http.replies import ask_engine, json_response, read_body
from parley.gateway.hub import ASKS_CLIENTS, SessionHub
from parley.gateway.index.tool_calls import RuleSimulation, read_rule
from parley.gateway.live_session import LiveSession
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal
from parley.gateway.session_log.session_log import SessionLog
from parley.gateway.wire.recording import make_recording
from parley.gateway.wire.wire_log import WireLog
from parley.inspector.recording import Record
from parley.inspector.redaction import WireRedactor

MOST_LINES = 2000
PAGE_LINES = 200
PAGE_BYTES = 1024 * 1024
"""How large a page of lines may be. A longer line is a page of its own."""
MOST_FILES = 100
MARGIN = 200
"""How many records before and after a page are searched for parts of secrets."""


T = TypeVar("T")


class SessionHandlers:
    """A part of `Api`."""

    _hub: SessionHub
    _redactor: WireRedactor

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
