"""Editors of a gateway: the host of sessions behind `/acp`, and the connection of an editor.

An editor is a client of the session like any other: it needs the same scopes, sees what others do, and its questions
are in the inbox. A session continues when the editor disconnects. The files and terminals of the editor are not used,
because they are those of another machine. On its WebSocket, a frame is one message of the Agent Client Protocol.

See also: `acp/host.py` for the interface.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from parley.acp.agent import AcpAgent
from parley.acp.host import Editor, ListedSession, SessionLink
from parley.acp.prompts import convert_servers, convert_system_prompt
from parley.acp.schema import NewSessionParams, OpenSessionParams, unknown_session
from parley.errors import SessionError, UsageError
from parley.gateway.http.auth import ADMITTED, Admitted
from parley.gateway.http.frames import EXTENSION, FrameSocket
from parley.gateway.http.sockets import read_lines
from parley.gateway.hub import SessionHub
from parley.gateway.index.session_list import SessionQuery
from parley.gateway.live_session import LiveSession, SessionClient
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Scope
from parley.gateway.security.quotas import Unsent
from parley.gateway.session_log.records import OPEN
from parley.gateway.session_options import SessionOptions, SessionRequest, require
from parley.gateway.subscriber import REPLY, Numbered
from parley.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, RpcConnection, RpcError
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions, parse
from parley.protocol.peek import peek
from parley.sdk.errors import CLIConnectionError
from parley.sdk.runtime.transport import Ended

NOT_HISTORY = frozenset({"gateway", "control_request", "control_cancel_request"})
HISTORY_SHOWN = b""
"""Marks the place in the queue of a client; it is not a line."""
FORBIDDEN = -32003
"""The error code of what the token does not allow."""


class HubSessions(Struct, frozen=True):
    hub: SessionHub
    principal: Principal
    warn: Callable[[str], None]
    capabilities: tuple[str, ...] = ("title", "fork", "additionalDirectories", "systemPrompt")

    async def create(self, params: NewSessionParams, editor: Editor) -> SessionLink:
        servers = self._convert_servers(params)
        with refusals():
            folders = [self._find_folder(folder) for folder in params.additional_directories or ()]
            options = msgspec.convert(self._system_prompt(params), SessionOptions)
            wanted = SessionRequest(cwd=self._find_folder(params.cwd), options=options)
            session = self.hub.create(self.principal, wanted, [f"--add-dir={folder}" for folder in folders])
        return self._link(session, servers)

    async def find(self, params: OpenSessionParams, editor: Editor) -> SessionLink:
        servers = self._convert_servers(params)
        with refusals(params.session_id):
            info = self.hub.describe(self.principal, params.session_id)
            self._check_kept(params, info.cwd)
            session = self.hub.get(self.principal, params.session_id)
        return self._link(session, servers, info.title)

    async def fork(self, params: OpenSessionParams, editor: Editor) -> SessionLink:
        servers = self._convert_servers(params)
        with refusals(params.session_id):
            self._check_kept(params, self.hub.describe(self.principal, params.session_id).cwd)
            session = await self.hub.fork(self.principal, params.session_id, None, "")
            title = self.hub.describe(self.principal, session.id).title
        return self._link(session, servers, title)

    async def list(self, cwd: str | None, offset: int, limit: int) -> list[ListedSession]:
        with refusals():
            require(self.principal, Scope.VIEW, "listing sessions")
            query = SessionQuery(limit=limit, offset=offset, cwd="" if cwd is None else resolve_folder(cwd))
            found, _ = self.hub.find_sessions(self.principal, query)
        return [ListedSession(id=info.id, cwd=info.cwd, title=info.title, updated_at=info.used_at) for info in found]

    async def find_title(self, session_id: str, cwd: str) -> str:
        with refusals(session_id):
            return self.hub.describe(self.principal, session_id).title

    async def rename(self, session_id: str, title: str) -> str:
        with refusals(session_id):
            return self.hub.rename(self.principal, session_id, title)

    async def is_open(self, session_id: str) -> bool:
        with refusals(session_id):
            return self.hub.describe(self.principal, session_id).is_loaded

    async def delete(self, session_id: str) -> None:
        with refusals(session_id):
            await self.hub.delete(self.principal, session_id)

    def _link(self, session: LiveSession, servers: Json, title: str = "") -> SessionLink:
        wire = HubWire(session, self.principal, self.hub)
        options = self._options(session.id)
        with refusals(session.id):
            cwd = self.hub.describe(self.principal, session.id).cwd
        return SessionLink(
            id=session.id,
            cwd=cwd,
            title=title,
            wire=wire,
            servers=servers,
            may_bypass=options.skip_permissions or options.allow_skip_permissions,
            read_history=wire.read_history,
            on_shown=wire.show_new,
            is_shared=True,
        )

    def _options(self, session_id: str) -> CliOptions:
        return parse(self.hub.session_argv(session_id)).options

    def _check_kept(self, params: OpenSessionParams, cwd: str) -> None:
        """Raises Refusal if a session that exists would have to be another one."""
        options = self._options(params.session_id)
        problem = ""
        if resolve_folder(params.cwd) != cwd:
            problem = f"the session works in {cwd!r}, and cwd must be that directory"
        elif not set(map(os.path.realpath, params.additional_directories or ())) <= set(options.add_dirs or ()):
            problem = "a session keeps the additionalDirectories that it was created with"
        elif any(getattr(options, name) != text for name, text in self._system_prompt(params).items()):
            problem = "a session keeps the systemPrompt that it was created with"
        if problem:
            raise Refusal("invalid_options", problem)

    def _system_prompt(self, params: NewSessionParams) -> Json:
        """The options that the system prompt of the editor sets. Raises RpcError."""
        given, defaults = params.system_prompt, parse(self.hub.settings.argv).options
        return {} if given is None else convert_system_prompt(given, defaults.append_system_prompt)

    def _convert_servers(self, params: NewSessionParams) -> Json:
        """Raises RpcError."""
        servers = convert_servers(params.mcp_servers)
        if servers:
            with refusals():
                require(self.principal, Scope.APPROVE, "mcpServers")
        return servers

    def _find_folder(self, path: str) -> str:
        """Raises Refusal."""
        if not os.path.isabs(path):
            raise Refusal("invalid_options", f"{path!r} is not the absolute path of a directory")
        return self.hub.find_directory(path, self.principal)


class EditorWire:
    """A client of a session, as the SDK's connection to an engine. A subclass says how it reaches the session.

    Until the history has been shown, only replies pass, so that new messages come after it.
    """

    pid = None

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.last_shown = 0
        """The number of the last line of the history."""
        self._held: list[bytes] | None = []
        """New lines that wait until the history has been shown; None when it has."""
        self._asked: set[str] = set()
        """The questions that were passed on."""

    # How the session is reached.

    async def connect(self) -> int:
        """Become a client; returns the number of the line after which its lines begin. Raises Refusal, SessionError."""
        raise NotImplementedError

    async def take(self) -> list[Numbered]:
        """Wait for lines; empty when the connection has ended."""
        raise NotImplementedError

    def send_back(self, line: bytes) -> None:
        """Put a line of ours behind those that wait to be taken."""
        raise NotImplementedError

    def pages(self) -> AsyncIterator[list[bytes]]:
        """The lines up to `last_shown`, oldest first."""
        raise NotImplementedError

    async def open_questions(self) -> list[tuple[str, Json]]:
        """The ids and the requests of the questions that wait for an answer."""
        raise NotImplementedError

    async def is_open(self, request_id: str) -> bool:
        """Whether a question waits for an answer."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def abandon(self) -> None:
        raise NotImplementedError

    # What an editor sees of it.

    async def open(self) -> None:
        try:
            self.last_shown = await self.connect()
        except (Refusal, SessionError) as exc:
            raise CLIConnectionError(str(exc)) from None

    async def read_history(self) -> AsyncIterator[Sequence[bytes]]:
        """The messages before this client connected. Questions that are still open come later."""
        async for page in self.pages():
            yield [line for line in page if peek(line).type not in NOT_HISTORY]

    def show_new(self) -> None:
        """The history has been shown: from here on, new lines are passed on."""
        self.send_back(HISTORY_SHOWN)

    async def chunks(self) -> AsyncIterator[bytes]:
        while lines := await self.take():
            for number, line in lines:
                for passed in await self._select(number, line):
                    if await self._passes(passed):
                        yield passed + b"\n"

    async def _select(self, number: int | None, line: bytes) -> list[bytes]:
        """The lines that can be passed on after another one has come."""
        if line == HISTORY_SHOWN:
            held, self._held = self._held or [], None
            asked = [
                {"type": "control_request", "request_id": request_id, "request": request}
                for request_id, request in await self.open_questions()
            ]
            return [*map(msgspec.json.encode, asked), *held]
        if self._held is None or number == REPLY:
            return [line]
        self._held.append(line)
        return []

    async def _passes(self, line: bytes) -> bool:
        """Whether the editor gets a line: a question only once, and only if its answer could count."""
        head = peek(line)
        request_id = str(head.request_id)
        if head.type == "control_cancel_request":
            self._asked.discard(request_id)
        if head.type != "control_request":
            return head.type != "gateway"
        if request_id in self._asked or not await self.is_open(request_id):
            return False
        self._asked.add(request_id)
        return self.principal.may(Scope.APPROVE)

    async def flush(self) -> None:
        """Nothing is buffered."""

    async def end_input(self) -> None:
        """The session continues."""

    async def ended(self) -> Ended:
        return Ended()

    async def close(self, busy: bool) -> Ended:
        self.abandon()
        return Ended()


class HubWire(EditorWire):
    """A client of a session of the hub."""

    def __init__(self, session: LiveSession, principal: Principal, hub: SessionHub) -> None:
        super().__init__(principal)
        self._session = session
        self._questions = hub.questions
        self._client: SessionClient | None = None

    async def connect(self) -> int:
        self._client = self._session.attach(self.principal, self._session.log.last, lambda line: True)
        return self._client.subscriber.cursor

    async def take(self) -> list[Numbered]:
        return [] if self._client is None else await self._client.subscriber.take()

    def send_back(self, line: bytes) -> None:
        assert self._client is not None
        self._client.subscriber.send(line)

    async def pages(self) -> AsyncIterator[list[bytes]]:
        number = 0
        # Not in a thread, because the session may be deleted, which closes its file.
        while number < self.last_shown and self._client in self._session.clients:
            lines = self._session.log.read(number)
            yield [line for number, line in lines if number <= self.last_shown]
            number = lines[-1][0] if lines else self.last_shown
            await asyncio.sleep(0)  # others wait for the loop

    async def open_questions(self) -> list[tuple[str, Json]]:
        open_ids = self._questions.list_open_ids(self.principal, self._session.id)
        found = [self._questions.find(session, request_id) for session, request_id in open_ids]
        return [(question.request_id, question.request) for question in found if question is not None]

    async def is_open(self, request_id: str) -> bool:
        question = self._questions.find(self._session.id, request_id)
        return question is not None and question.state == OPEN

    def write(self, data: bytes) -> None:
        assert self._client is not None
        self._session.receive(self._client, data)

    def abandon(self) -> None:
        if self._client is not None:
            self._session.detach(self._client)


def resolve_folder(given: str) -> str:
    """A folder as sessions name it: without symbolic links."""
    return os.path.realpath(given)


@contextmanager
def refusals(session_id: str = "") -> Iterator[None]:
    """Report refusals of the gateway to the editor. Raises RpcError."""
    try:
        yield
    except Refusal as refusal:
        if refusal.code == "unknown_session":
            raise unknown_session(session_id) from None
        code = FORBIDDEN if refusal.code == "forbidden" else INVALID_PARAMS
        raise RpcError(code, str(refusal), {"code": refusal.code}) from None
    except (SessionError, UsageError) as exc:
        raise RpcError(INTERNAL_ERROR, str(exc)) from None


MAX_WAITING_BYTES = 16 * 1024 * 1024
"""How much may wait for a slow client. One that is slower is disconnected; it can load its sessions again."""
DRAINED_BYTES = 256 * 1024
"""How much may wait when the next message of the client is handled, or more of a history is read."""


async def relay_editor(socket: WebSocket, make_agent: Callable[[RpcConnection], AcpAgent]) -> None:
    """Pass messages between an editor and its agent in both directions."""
    waiting: deque[bytes] = deque()
    waiting_bytes = 0
    changed = asyncio.Condition()

    def write(line: bytes) -> None:
        nonlocal waiting_bytes
        waiting.append(line)
        waiting_bytes += len(line)
        if waiting_bytes > MAX_WAITING_BYTES or unsent.is_refused(waiting_bytes):
            reader.cancel()
        unsent.set(waiting_bytes)
        came.set()

    async def wait_written() -> None:
        """Wait until little waits for the editor."""
        async with changed:
            await changed.wait_for(lambda: waiting_bytes < DRAINED_BYTES)

    async def write_messages() -> None:
        nonlocal waiting_bytes
        with suppress(ClientDisconnected):
            while True:
                while not waiting:
                    came.clear()
                    await came.wait()
                line = waiting.popleft()
                await frames.write_message(line.rstrip(b"\n"))
                waiting_bytes -= len(line)
                unsent.set(waiting_bytes)
                async with changed:
                    changed.notify_all()

    async def read_messages() -> None:
        with suppress(WebSocketDisconnect):
            async for line, refusal in read_lines(socket):
                error = None if refusal is None else RpcError(INVALID_REQUEST, str(refusal), {"code": refusal.code})
                connection.receive(line, error)
                await wait_written()

    came = asyncio.Event()
    frames: FrameSocket = socket.scope["extensions"][EXTENSION]["socket"]
    admitted: Admitted = socket.scope[ADMITTED]
    unsent = Unsent(admitted.use)
    connection = RpcConnection(write, wait_written)
    agent = make_agent(connection)
    reader, writer = asyncio.create_task(read_messages()), asyncio.create_task(write_messages())
    try:
        await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
    finally:
        reader.cancel()
        writer.cancel()
        await asyncio.gather(reader, writer, return_exceptions=True)
        await agent.close()
        unsent.set(0)
