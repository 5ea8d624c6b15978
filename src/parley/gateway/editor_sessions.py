"""The sessions of a gateway, as editors reach them: the host behind `/acp`.

An editor is a client of the session like any other: it needs the same scopes, sees what others do, and its questions
are in the inbox. A session continues when the editor disconnects. The files and terminals of the editor are not used,
because they are those of another machine.

See also: `acp/host.py` for the interface, `http/editors.py` for the connection.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from parley.acp.host import Editor, SessionLink, SessionSummary
from parley.acp.prompts import convert_servers, convert_system_prompt
from parley.acp.schema import NewSessionParams, OpenSessionParams, unknown_session
from parley.errors import SessionError, UsageError
from parley.gateway.hub import SessionHub
from parley.gateway.index.session_list import SessionQuery
from parley.gateway.live_session import Client, LiveSession
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Scope
from parley.gateway.session_log.state import OPEN
from parley.gateway.session_options import SessionOptions, SessionRequest, require
from parley.gateway.subscriber import REPLY
from parley.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions, parse
from parley.sdk.runtime.transport import Ended

GATEWAY = b'{"type":"gateway"'
QUESTION = b'{"type":"control_request"'
WITHDRAWN = b'{"type":"control_cancel_request"'
HISTORY_SHOWN = b""
"""Marks the place in the queue of a client; it is not a line."""
FORBIDDEN = -32003
"""The error code of what the token does not allow."""


class _Ids(msgspec.Struct):
    request_id: Any = ""


_ids = msgspec.json.Decoder(_Ids)


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

    async def list(self, cwd: str | None, offset: int, limit: int) -> list[SessionSummary]:
        with refusals():
            require(self.principal, Scope.VIEW, "listing sessions")
            query = SessionQuery(limit=limit, offset=offset, cwd="" if cwd is None else resolve_folder(cwd))
            found, _ = self.hub.find_sessions(self.principal, query)
        return [SessionSummary(id=info.id, cwd=info.cwd, title=info.title, updated_at=info.used_at) for info in found]

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


class HubWire:
    """A client of a session of the hub, as the SDK's connection to an engine.

    Until the history has been shown, only replies pass, so that new messages come after it.
    """

    pid = None

    def __init__(self, session: LiveSession, principal: Principal, hub: SessionHub) -> None:
        self._session = session
        self._principal = principal
        self._hub = hub
        self._client: Client | None = None
        self._last_shown = 0
        """The number of the last line of the history."""
        self._held: list[bytes] | None = []
        """New lines that wait until the history has been shown; None when it has."""
        self._asked: set[object] = set()
        """The questions that were passed on."""

    async def open(self) -> None:
        from parley.sdk.errors import CLIConnectionError

        try:
            last = self._session.log.last
            self._client = self._session.attach(self._principal, last, lambda line: not line.startswith(GATEWAY))
        except (Refusal, SessionError) as exc:
            raise CLIConnectionError(str(exc)) from None
        self._last_shown = self._client.subscriber.cursor

    async def read_history(self) -> AsyncIterator[Sequence[bytes]]:
        """The messages before this client connected. Questions that are still open come later."""
        number = 0
        # Not in a thread, because the session may be deleted, which closes its file.
        while number < self._last_shown and self._client in self._session.clients:
            lines = self._session.log.read(number)
            yield [
                line
                for number, line in lines
                if number <= self._last_shown and not line.startswith((GATEWAY, QUESTION, WITHDRAWN))
            ]
            number = lines[-1][0] if lines else self._last_shown
            await asyncio.sleep(0)  # others wait for the loop

    def show_new(self) -> None:
        """The history has been shown: from here on, new lines are passed on."""
        assert self._client is not None
        self._client.subscriber.send(HISTORY_SHOWN)

    async def chunks(self) -> AsyncIterator[bytes]:
        assert self._client is not None
        while lines := await self._client.subscriber.take():
            for number, line in lines:
                for passed in self._take(number, line):
                    if self._passes(passed):
                        yield passed + b"\n"

    def _take(self, number: int | None, line: bytes) -> Iterator[bytes]:
        """The lines that can be passed on after another one has come."""
        if line == HISTORY_SHOWN:
            held, self._held = self._held or (), None
            yield from self._open_questions()
            yield from held
        elif self._held is None or number == REPLY:
            yield line
        else:
            self._held.append(line)

    def _open_questions(self) -> Iterator[bytes]:
        questions = self._hub.questions
        for session, request_id in questions.list_open_ids(self._principal, self._session.id):
            if (found := questions.find(session, request_id)) is not None:
                asked = {"type": "control_request", "request_id": request_id, "request": found.request}
                yield msgspec.json.encode(asked)

    def _passes(self, line: bytes) -> bool:
        """Whether the editor gets a line: a question only once, and only if its answer could count."""
        if line.startswith(QUESTION):
            request_id = str(_ids.decode(line).request_id)
            question = self._hub.questions.find(self._session.id, request_id)
            if question is None or question.state != OPEN or request_id in self._asked:
                return False
            self._asked.add(request_id)
            return self._principal.may(Scope.APPROVE)
        if line.startswith(WITHDRAWN):
            self._asked.discard(str(_ids.decode(line).request_id))
        return True

    def write(self, data: bytes) -> None:
        assert self._client is not None
        self._session.receive(self._client, data)

    async def flush(self) -> None:
        """Nothing is buffered."""

    async def end_input(self) -> None:
        """The session continues."""

    async def ended(self) -> Ended:
        return Ended()

    async def close(self, busy: bool) -> Ended:
        self.abandon()
        return Ended()

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
