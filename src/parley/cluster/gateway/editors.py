"""An editor on a WebSocket of the gateway: the Agent Client Protocol. Its sessions may be on several hosts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import msgspec
from starlette.datastructures import QueryParams
from starlette.websockets import WebSocket

from parley.acp.agent import AcpAgent
from parley.acp.host import Editor, SessionLink, SessionSummary
from parley.acp.schema import NewSessionParams, OpenSessionParams
from parley.cluster.base import SessionKey
from parley.cluster.bridge.host import EDITORS, CallError, LinkInfo
from parley.cluster.bridge.messages import OpenStream
from parley.cluster.gateway.merge import LIST_SESSIONS, merge
from parley.cluster.gateway.router import Router
from parley.cluster.gateway.sockets import Register, SessionConnection, Target, close_restarting
from parley.gateway.editor_sessions import GATEWAY, HISTORY_SHOWN, QUESTION, WITHDRAWN
from parley.gateway.http.auth import Gate
from parley.gateway.http.editors import relay_editor
from parley.gateway.http.sockets import admit, refuse
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Scope
from parley.gateway.session_log.state import OPEN
from parley.gateway.session_options import require
from parley.gateway.subscriber import REPLY, Numbered
from parley.jsonrpc import INTERNAL_ERROR, RpcError
from parley.protocol.base import Json, Struct
from parley.sdk.runtime.transport import Ended

OK = 200
PAGE_LINES = 2000
CONNECTION = {"numbered": "true", "partial": "true"}


class _Ids(msgspec.Struct):
    request_id: Any = ""


class _Page(msgspec.Struct):
    lines: list[tuple[int, float | None, msgspec.Raw]]
    first: int


_ids = msgspec.json.Decoder(_Ids)
_pages = msgspec.json.Decoder(_Page)


async def serve_editor(
    socket: WebSocket, gate: Gate, router: Router, register: Register, warn: Callable[[str], None]
) -> None:
    """Serve one connection until either end closes it."""
    principal = await admit(socket, gate)
    if principal is None:
        return
    try:
        require(principal, Scope.VIEW, "/acp")
    except Refusal as refusal:
        await refuse(socket, refusal)
        return
    sessions = ClusterEditorSessions(router, principal, warn)
    task = asyncio.create_task(relay_editor(socket, lambda connection: AcpAgent(connection, sessions)))
    try:
        with register(principal, task):
            await asyncio.wait([task])
    finally:
        task.cancel()
    await close_restarting(socket, task)


class ClusterEditorSessions(Struct, frozen=True):
    """The sessions of a cluster, as editors reach them."""

    router: Router
    principal: Principal
    warn: Callable[[str], None]
    capabilities: tuple[str, ...] = ("title", "fork", "additionalDirectories", "systemPrompt")

    async def create(self, params: NewSessionParams, editor: Editor) -> SessionLink:
        key = self.router.new_session(self.principal)
        return self._link(await self._open("create", key, params, key.session), key)

    async def find(self, params: OpenSessionParams, editor: Editor) -> SessionLink:
        key = await self._key(params.session_id)
        return self._link(await self._open("find", key, params), key)

    async def fork(self, params: OpenSessionParams, editor: Editor) -> SessionLink:
        source = await self._key(params.session_id)
        copy = self.router.new_session(self.principal, beside=source.session)
        link = await self._open("fork", source, params, copy.session)
        return self._link(link, SessionKey(source.tenant, copy.session))

    async def list(self, cwd: str | None, offset: int, limit: int) -> list[SessionSummary]:
        try:
            require(self.principal, Scope.VIEW, "listing sessions")
            opened = make_call(self.principal, None, "/sessions", "GET")
            reply = await merge(self.router, LIST_SESSIONS, opened, QueryParams())
        except Refusal as refusal:
            raise as_rpc_error(refusal) from None
        listed = [
            SessionSummary(id=row["id"], cwd=row["cwd"], title=row["title"], updated_at=row["used_at"])
            for row in msgspec.json.decode(reply.body)["sessions"]
            if cwd is None or is_same_path(cwd, row["cwd"])
        ]
        return listed[offset : offset + limit]

    async def find_title(self, session_id: str, cwd: str) -> str:
        return str(await self._call("find_title", await self._key(session_id), [session_id, cwd]))

    async def rename(self, session_id: str, title: str) -> str:
        return str(await self._call("rename", await self._key(session_id), [session_id, title], method="POST"))

    async def is_open(self, session_id: str) -> bool:
        return bool(await self._call("is_open", await self._key(session_id), [session_id]))

    async def delete(self, session_id: str) -> None:
        await self._call("delete", await self._key(session_id), [session_id], method="POST")

    async def _key(self, session_id: str) -> SessionKey:
        try:
            return await self.router.find_key(self.principal, session_id)
        except Refusal as refusal:
            raise as_rpc_error(refusal) from None

    async def _open(self, name: str, key: SessionKey, params: NewSessionParams, new: str = "") -> LinkInfo:
        method = "GET" if name == "find" else "POST"
        return msgspec.convert(await self._call(name, key, params, method=method, new=new), LinkInfo)

    async def _call(self, name: str, key: SessionKey, params: Any, method: str = "GET", new: str = "") -> Any:
        """Raises RpcError."""
        opened = make_call(self.principal, key, f"{EDITORS}{name}", method)
        opened = msgspec.structs.replace(opened, body=msgspec.json.encode(params), new_session=new)
        try:
            reply = await self.router.call(opened)
        except Refusal as refusal:
            raise as_rpc_error(refusal) from None
        if reply.status == OK:
            return msgspec.json.decode(reply.body)
        error = msgspec.json.decode(reply.body, type=CallError)
        raise RpcError(error.code, error.message, error.data)

    def _link(self, found: LinkInfo, key: SessionKey) -> SessionLink:
        wire = ClusterWire(self.router, self.principal, key)
        return SessionLink(
            id=found.id,
            cwd=found.cwd,
            title=found.title,
            wire=wire,
            servers=found.servers,
            may_bypass=found.may_bypass,
            read_history=wire.read_history,
            on_shown=wire.show_new,
            is_shared=True,
        )


class ClusterWire:
    """A client of a session, as the SDK's connection to an engine. See `HubWire` in `gateway/editor_sessions.py`."""

    pid = None

    def __init__(self, router: Router, principal: Principal, key: SessionKey) -> None:
        self._router = router
        self._principal = principal
        self._key = key
        self._received: asyncio.Queue[Numbered | None] = asyncio.Queue()
        self._sent: asyncio.Queue[bytes] = asyncio.Queue()
        target = Target(key=key, principal=principal, query=CONNECTION, numbered=True)
        self._connection = SessionConnection(router, target, self._deliver, self._ignore)
        self._tasks: list[asyncio.Task[Any]] = []
        self._last_shown = 0
        """The number of the last line of the history."""
        self._held: list[bytes] | None = []
        """New lines that wait until the history has been shown; None when it has."""
        self._asked: set[str] = set()
        """The questions that were passed on."""

    async def open(self) -> None:
        from parley.sdk.errors import CLIConnectionError

        running = asyncio.create_task(self._run())
        self._tasks = [running, asyncio.create_task(self._write_all())]
        either: set[asyncio.Future[Any]] = {running, self._connection.attached}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._connection.attached.done():
            self.abandon()
            raise CLIConnectionError(running.result())
        self._last_shown = self._connection.attached.result()

    async def _run(self) -> str:
        """Returns why the connection has ended."""
        try:
            return (await self._connection.run()).reason
        except Refusal as refusal:
            return str(refusal)
        finally:
            self._received.put_nowait(None)

    async def _write_all(self) -> None:
        while True:
            await self._connection.send(await self._sent.get())

    async def _deliver(self, lines: list[Numbered]) -> None:
        for line in lines:
            self._received.put_nowait(line)

    async def _ignore(self, text: str) -> None:
        """What is not a line of the session is not for editors."""

    async def _get(self, path: str, **query: str) -> bytes:
        """Raises Refusal."""
        opened = make_call(self._principal, self._key, path, "GET", urlencode(query))
        reply = await self._router.call(opened)
        return reply.body if reply.status == OK else b""

    async def read_history(self) -> AsyncIterator[Sequence[bytes]]:
        """The messages before this client connected. Questions that are still open come later."""
        pages: list[list[bytes]] = []
        before = self._last_shown + 1
        with suppress(Refusal):
            while before > 1:
                path = f"/sessions/{self._key.session}/lines"
                body = await self._get(path, before=str(before), limit=str(PAGE_LINES))
                page = _pages.decode(body) if body else _Page([], 0)
                if not page.lines:
                    break
                lines = [bytes(line) for _, _, line in page.lines]
                pages.append([line for line in lines if not line.startswith((GATEWAY, QUESTION, WITHDRAWN))])
                before = page.first
        for found in reversed(pages):
            yield found

    def show_new(self) -> None:
        """The history has been shown: from here on, new lines are passed on."""
        self._received.put_nowait((REPLY, HISTORY_SHOWN))

    async def chunks(self) -> AsyncIterator[bytes]:
        while (received := await self._received.get()) is not None:
            for line in await self._take(*received):
                if await self._passes(line):
                    yield line + b"\n"

    async def _take(self, number: int | None, line: bytes) -> list[bytes]:
        """The lines that can be passed on after another one has come."""
        if self._held is None:
            return [line]
        if line == HISTORY_SHOWN:
            held, self._held = self._held, None
            return [*await self._open_questions(), *held]
        if number == REPLY:
            return [line]
        self._held.append(line)
        return []

    async def _open_questions(self) -> list[bytes]:
        found: list[Json] = []
        with suppress(Refusal):
            body = await self._get("/questions", session=self._key.session)
            found = msgspec.json.decode(body)["questions"] if body else []
        return [
            msgspec.json.encode(
                {"type": "control_request", "request_id": each["request_id"], "request": each["request"]}
            )
            for each in found
        ]

    async def _passes(self, line: bytes) -> bool:
        """Whether the editor gets a line: a question only once, and only if its answer could count."""
        if line.startswith(GATEWAY):
            return False
        if line.startswith(WITHDRAWN):
            self._asked.discard(str(_ids.decode(line).request_id))
        if not line.startswith(QUESTION):
            return True
        request_id = str(_ids.decode(line).request_id)
        if request_id in self._asked or not await self._is_open_question(request_id):
            return False
        self._asked.add(request_id)
        return self._principal.may(Scope.APPROVE)

    async def _is_open_question(self, request_id: str) -> bool:
        try:
            body = await self._get(f"/questions/{self._key.session}/{request_id}")
        except Refusal:
            return True
        return bool(body) and msgspec.json.decode(body)["state"] == OPEN

    def write(self, data: bytes) -> None:
        self._sent.put_nowait(data)

    async def flush(self) -> None:
        """Nothing is buffered for long."""

    async def end_input(self) -> None:
        """The session continues."""

    async def ended(self) -> Ended:
        return Ended()

    async def close(self, busy: bool) -> Ended:
        self.abandon()
        return Ended()

    def abandon(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._received.put_nowait(None)


def make_call(principal: Principal, key: SessionKey | None, path: str, method: str, query: str = "") -> OpenStream:
    return OpenStream(
        stream="",
        inbox="",
        command=uuid4().hex,
        principal=principal,
        kind="http",
        method=method,
        path=path,
        query=query.encode(),
        key=key,
    )


def is_same_path(given: str, real: str) -> bool:
    """The files are on hosts, so links are not followed."""
    return os.path.normpath(given) == real


def as_rpc_error(refusal: Refusal) -> RpcError:
    return RpcError(INTERNAL_ERROR, str(refusal), {"code": refusal.code})
