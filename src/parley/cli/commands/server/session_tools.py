"""Sessions as MCP tools: start, prompt, answer, read, interrupt, list.

    tools = SessionTools(LocalSessions(options=..., environment=..., warn=...), cwd)
    tools.descriptions                       # for `tools/list`
    await tools.run("session_start", {})     # the result of `tools/call`
    await tools.close()

The client is an editor of the ACP agent in `parley/acp`, joined to it in memory: what a session says are the updates
that editors show, and permission requests, plans and questions are theirs, too. MCP has no requests from the tool to
the person, so a question becomes a part of the result, and `session_answer` answers it. Until then, the call that it is
about does not run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, ClassVar
from uuid import uuid4

import msgspec
from msgspec import Meta

from parley.acp.agent import AcpAgent
from parley.acp.host import LocalSessions
from parley.acp.schema import PROTOCOL_VERSION
from parley.jsonrpc import Method, RpcConnection, RpcError
from parley.protocol.base import Json, Struct, encode_json

MAX_OPEN_SESSIONS = 32
"""How many sessions are in memory. Of those without a turn, the one that was used least recently is closed for another;
it stays on disk."""
PROMPT_CHARS = 1_000_000
LOG_BYTES = 8 * 1024 * 1024
"""How much of what a session said is kept for `session_read`."""
RESULT_BYTES = 256 * 1024
"""How much of it a result has."""
UPDATE_BYTES = 200
"""About what the log needs for an update besides its text."""
MAX_WAIT_SECONDS = 600
INTERRUPT_SECONDS = 30
NOT_SHOWN = ("available_commands_update", "config_option_update", "session_info_update", "usage_update")
"""Updates that tell an editor about its menus."""
CAPABILITIES: Json = {"elicitation": {"form": {}, "url": {}}}
"""Of the editor: it takes questions as forms, and has neither files nor terminals of its own."""

SessionId = Annotated[str, Meta(description="The session, as session_start or session_list named it.", max_length=200)]
Wait = Annotated[
    float,
    Meta(description="Return after this many seconds, even if the turn still runs.", ge=0, le=MAX_WAIT_SECONDS),
]


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the arguments of a tool. The docstring describes the tool to the model."""

    reads_only: ClassVar[bool] = False


class StartArguments(Arguments, frozen=True, kw_only=True):
    """Start a session: a conversation with an agent that works in a directory. Returns its session_id."""

    cwd: Annotated[str, Meta(description="An absolute path (default: the server's directory).", max_length=4096)] = ""


class PromptArguments(Arguments, frozen=True, kw_only=True):
    """Send a prompt to a session and wait for its turn.

    The state is `idle` when the turn has ended, `question` when it needs session_answer, and `running` when
    wait_seconds have passed: continue with session_read. A session that is on disk is resumed.
    """

    session_id: SessionId
    prompt: Annotated[str, Meta(min_length=1, max_length=PROMPT_CHARS)]
    wait_seconds: Wait = 30


class AnswerArguments(Arguments, frozen=True, kw_only=True):
    """Answer a question of a session with one of its options, and wait for the turn as session_prompt does.

    A permission request is a decision of the person: do not allow a call that they did not.
    """

    session_id: SessionId
    question_id: Annotated[str, Meta(max_length=200)]
    option: Annotated[str, Meta(description="The id of one of the question's options.", max_length=200)]
    content: Annotated[Json | None, Meta(description="The values of a form, with the option accept.")] = None
    wait_seconds: Wait = 30


class ReadArguments(Arguments, frozen=True, kw_only=True):
    """Read what a session said after a cursor, its state and its open questions."""

    reads_only = True
    session_id: SessionId
    cursor: Annotated[str, Meta(description="From an earlier result (default: the beginning).", max_length=100)] = ""
    wait_seconds: Wait = 0


class InterruptArguments(Arguments, frozen=True, kw_only=True):
    """Interrupt the turn of a session. Its open questions are withdrawn."""

    session_id: SessionId


class ListArguments(Arguments, frozen=True, kw_only=True):
    """List the sessions on disk, the last used first."""

    reads_only = True
    cwd: Annotated[str, Meta(description="Only the sessions of this directory.", max_length=4096)] = ""
    cursor: Annotated[str, Meta(description="The next_cursor of an earlier result.", max_length=100)] = ""


class Line(Struct, frozen=True):
    """A message of the agent."""

    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"null")


class UpdateParams(Struct, frozen=True, rename="camel"):
    session_id: str
    update: msgspec.Raw


class UpdateLog:
    """What a session said, numbered. Cursors of another log are refused, because its numbers mean something else."""

    def __init__(self) -> None:
        self._id = uuid4().hex[:12]
        self._updates: deque[bytes] = deque()
        self._bytes = 0
        self.last = 0
        """The number of the last update."""

    def add(self, update: bytes) -> None:
        self._updates.append(update)
        self._bytes += len(update) + UPDATE_BYTES
        self.last += 1
        while self._bytes > LOG_BYTES:
            self._bytes -= len(self._updates.popleft()) + UPDATE_BYTES

    def parse_cursor(self, cursor: str) -> int:
        """Raises ValueError."""
        if not cursor:
            return 0
        id, _, number = cursor.partition("-")
        if id != self._id or not (number.isascii() and number.isdigit() and int(number) <= self.last):
            raise ValueError(f"unknown cursor {cursor!r}; the session was opened anew, so read it without a cursor")
        return int(number)

    def read(self, after: int) -> Json:
        """The updates after a number, as many as a result may have. Parts of a text are joined."""
        first = self.last - len(self._updates)
        number, size = max(after, first), 0
        shown: list[Json] = []
        for line in islice(self._updates, number - first, None):
            if size and size + len(line) > RESULT_BYTES:
                break
            size, number = size + len(line), number + 1
            update = msgspec.json.decode(line)
            if len(line) > RESULT_BYTES:
                update = {key: update[key] for key in ("sessionUpdate", "toolCallId") if key in update}
                update["omitted"] = f"{len(line)} bytes"
            if update["sessionUpdate"] not in NOT_SHOWN and not (shown and join_text(shown[-1], update)):
                shown.append(update)
        lost = {"lost": first - after} if first > after else {}
        return {"updates": shown, "cursor": f"{self._id}-{number}", "has_more": number < self.last, **lost}


def join_text(before: Json, update: Json) -> bool:
    """Add the text of an update to the one before it, if both are parts of the same message."""
    old, new = before.get("content"), update.get("content")
    if not (isinstance(old, dict) and isinstance(new, dict) and old.get("type") == new.get("type") == "text"):
        return False
    if {**before, "content": None} != {**update, "content": None}:
        return False
    before["content"] = {**old, "text": old["text"] + new["text"]}
    return True


class OpenQuestion(Struct, frozen=True):
    shown: Json
    answer: asyncio.Future[Json]


class OpenSession:
    """A session in memory."""

    def __init__(self, id: str, cwd: str) -> None:
        self.id = id
        self.cwd = cwd
        self.log = UpdateLog()
        self.questions: dict[str, OpenQuestion] = {}
        self.turn: asyncio.Task[None] | None = None
        self.outcome: Json = {}
        """How the last turn ended."""
        self.is_open = False
        self.opening = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def state(self) -> str:
        if self.questions:
            return "question"
        return "idle" if self.turn is None or self.turn.done() else "running"

    def report_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, seconds: float, while_in: tuple[str, ...] = ("running",)) -> None:
        """Wait until the turn has ended or asks something. It continues if the caller is cancelled."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.state in while_in:
                    await self._changed.wait()

    def describe(self, after: int) -> Json:
        state = self.state
        return {
            "session_id": self.id,
            "state": state,
            **({} if state != "idle" else self.outcome),
            "questions": [question.shown for question in self.questions.values()],
            **self.log.read(after),
        }


class SessionTools:
    def __init__(self, host: LocalSessions, cwd: str) -> None:
        self._host = host
        self._cwd = cwd
        self._sessions: dict[str, OpenSession] = {}
        """The last used one is the last."""
        self._starting = asyncio.Lock()
        self._is_initialized = False
        self._agent_end = RpcConnection(self._receive, lambda: asyncio.sleep(0))
        self._client = RpcConnection(self._agent_end.receive)
        self._client.methods = {
            "session/request_permission": Method(Json, self._ask_permission),
            "elicitation/create": Method(Json, self._ask_form),
        }
        self._agent = AcpAgent(self._agent_end, host)
        self._tools: dict[str, tuple[type[Arguments], Callable[[Any], Awaitable[Json]]]] = {
            "session_start": (StartArguments, self._start),
            "session_prompt": (PromptArguments, self._prompt),
            "session_answer": (AnswerArguments, self._answer),
            "session_read": (ReadArguments, self._read),
            "session_interrupt": (InterruptArguments, self._interrupt),
            "session_list": (ListArguments, self._list),
        }
        self.descriptions: list[Json] = [
            {
                "name": name,
                "description": " ".join((arguments.__doc__ or "").split()),
                "inputSchema": build_schema(arguments),
                "annotations": {"readOnlyHint": arguments.reads_only},
            }
            for name, (arguments, _) in self._tools.items()
        ]

    async def run(self, name: str, arguments: Json) -> Json:
        """Return the result of `tools/call`."""
        wanted, act = self._tools[name]
        try:
            found = await act(msgspec.convert(arguments, wanted))
        except (RpcError, ValueError) as exc:  # a ValidationError is a ValueError
            return {"content": [{"type": "text", "text": str(exc)}], "isError": True}
        text = encode_json(found).decode()
        return {"content": [{"type": "text", "text": text}], "structuredContent": found, "isError": False}

    async def close(self) -> None:
        """End all sessions. Their turns are interrupted."""
        await self._agent.close()
        self._client.disconnect()
        turns = [session.turn for session in self._sessions.values() if session.turn is not None]
        await asyncio.gather(*turns, return_exceptions=True)
        await self._client.close()

    # The tools.

    async def _start(self, given: StartArguments) -> Json:
        async with self._starting:
            await self._make_room(MAX_OPEN_SESSIONS - 1)
            cwd = given.cwd or self._cwd
            made = await self._request("session/new", {"cwd": cwd, "mcpServers": []})
            session = self._sessions[made["sessionId"]] = OpenSession(made["sessionId"], cwd)
            session.is_open = True
        return session.describe(0)

    async def _prompt(self, given: PromptArguments) -> Json:
        session = await self._open(given.session_id)
        if session.state == "idle" and "error" in session.outcome:  # its engine may have ended
            session.is_open, session.outcome = False, {}
            session = await self._open(given.session_id)
        if session.state != "idle":
            raise ValueError("the session has a turn already; read it, answer its questions or interrupt it")
        after = session.log.last
        session.turn = asyncio.create_task(self._run_turn(session, given.prompt))
        await session.wait(given.wait_seconds)
        return session.describe(after)

    async def _answer(self, given: AnswerArguments) -> Json:
        session = await self._open(given.session_id)
        question = session.questions.get(given.question_id)
        if question is None or question.answer.done():
            raise ValueError(f"the session has no open question {given.question_id!r}")
        options = [option["id"] for option in question.shown["options"]]
        if given.option not in options:
            raise ValueError(f"unknown option {given.option!r} (choose from {', '.join(options)})")
        if question.shown["kind"] == "permission":
            answer: Json = {"outcome": {"outcome": "selected", "optionId": given.option}}
        else:
            answer = {"action": given.option, **({} if given.content is None else {"content": given.content})}
        after = session.log.last
        del session.questions[given.question_id]
        question.answer.set_result(answer)
        await session.wait(given.wait_seconds)
        return session.describe(after)

    async def _read(self, given: ReadArguments) -> Json:
        session = await self._open(given.session_id)
        after = session.log.parse_cursor(given.cursor)
        await session.wait(given.wait_seconds)
        return session.describe(after)

    async def _interrupt(self, given: InterruptArguments) -> Json:
        session = await self._open(given.session_id)
        after = session.log.last
        if session.state != "idle":
            await self._request("session/cancel", {"sessionId": session.id})
            await session.wait(INTERRUPT_SECONDS, ("running", "question"))
        return session.describe(after)

    async def _list(self, given: ListArguments) -> Json:
        found = await self._request("session/list", {"cwd": given.cwd or None, "cursor": given.cursor or None})
        listed = [
            {
                "session_id": each["sessionId"],
                "cwd": each["cwd"],
                "title": each["title"],
                "updated_at": each["updatedAt"],
                "state": self._sessions[each["sessionId"]].state if each["sessionId"] in self._sessions else "saved",
            }
            for each in found["sessions"]
        ]
        return {"sessions": listed, "next_cursor": found.get("nextCursor")}

    # Sessions.

    async def _open(self, session_id: str) -> OpenSession:
        """A session, resumed from disk if it is not in memory. Raises RpcError or ValueError."""
        if session_id not in self._sessions:
            cwd = await self._host.find_directory(session_id) or self._cwd
            self._sessions.setdefault(session_id, OpenSession(session_id, cwd))
        session = self._sessions[session_id] = self._sessions.pop(session_id)
        async with session.opening:
            if not session.is_open:
                self._sessions[session_id] = session  # before it is loaded, because its history comes
                session.log = UpdateLog()
                try:
                    await self._make_room(MAX_OPEN_SESSIONS)
                    params = {"sessionId": session_id, "cwd": session.cwd, "mcpServers": []}
                    await self._request("session/load", params)
                except BaseException:
                    self._sessions.pop(session_id, None)
                    raise
                session.is_open = True
        return session

    async def _make_room(self, most: int) -> None:
        """Raises RpcError or ValueError."""
        while len(self._sessions) > most:
            idle = (each for each in self._sessions.values() if each.is_open and each.state == "idle")
            if (oldest := next(idle, None)) is None:
                raise ValueError(f"{MAX_OPEN_SESSIONS} sessions have a turn that runs; wait for one or interrupt it")
            del self._sessions[oldest.id]
            await self._request("session/close", {"sessionId": oldest.id})

    async def _run_turn(self, session: OpenSession, prompt: str) -> None:
        params = {"sessionId": session.id, "prompt": [{"type": "text", "text": prompt}]}
        try:
            result = await self._request("session/prompt", params)
            session.outcome = {"stop_reason": result["stopReason"]}
        except (RpcError, ConnectionError) as exc:
            session.outcome = {"stop_reason": "error", "error": str(exc)}
        finally:
            # The task is not done before it returns.
            asyncio.get_running_loop().call_soon(session.report_change)

    # The connection to the agent.

    async def _request(self, method: str, params: Json) -> Any:
        """Raises RpcError or ConnectionError."""
        if not self._is_initialized:
            self._is_initialized = True
            wanted = {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": CAPABILITIES}
            await self._client.request("initialize", wanted)
        return await self._client.request(method, params)

    def _receive(self, line: bytes) -> None:
        """A message of the agent. Updates are taken at once: as handlers of their own they would have no limit."""
        message = msgspec.json.decode(line, type=Line)
        if message.method != "session/update":
            self._client.receive(line)
            return
        params = msgspec.json.decode(message.params, type=UpdateParams)
        if (session := self._sessions.get(params.session_id)) is not None:
            session.log.add(bytes(params.update))

    async def _ask_permission(self, params: Json) -> Json:
        options = [
            {"id": option["optionId"], "kind": option["kind"], "name": option["name"]} for option in params["options"]
        ]
        return await self._ask(params, {"kind": "permission", "tool_call": params["toolCall"], "options": options})

    async def _ask_form(self, params: Json) -> Json:
        options = [{"id": name} for name in ("accept", "decline", "cancel")]
        about = {key: value for key, value in params.items() if key not in ("sessionId", "mode")}
        return await self._ask(params, {"kind": params["mode"], **about, "options": options})

    async def _ask(self, params: Json, shown: Json) -> Json:
        """The answer of the client. Cancelled if the engine withdraws the question."""
        session, id = self._sessions[params["sessionId"]], str(uuid4())
        question = OpenQuestion({"id": id, **shown}, asyncio.get_running_loop().create_future())
        session.questions[id] = question
        session.report_change()
        try:
            return await question.answer
        finally:
            session.questions.pop(id, None)
            session.report_change()


def build_schema(arguments: type[Arguments]) -> Json:
    """The schema of a tool's input."""
    _, parts = msgspec.json.schema_components([arguments])
    schema: Json = parts[arguments.__name__]
    del schema["title"], schema["description"]  # the tool has it
    return schema
