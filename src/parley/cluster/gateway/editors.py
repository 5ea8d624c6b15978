"""An editor on a WebSocket of the gateway: the Agent Client Protocol. Its sessions may be on several hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from posixpath import normpath
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import QueryParams

from parley.acp.host import Editor, ListedSession, SessionLink
from parley.acp.schema import NewSessionParams, OpenSessionParams
from parley.cluster.base import LogKey
from parley.cluster.bridge.host import EDITORS, CallError, LinkInfo
from parley.cluster.bridge.messages import OpenStream
from parley.cluster.gateway.merge import LIST_SESSIONS, merge
from parley.cluster.gateway.router import Router
from parley.cluster.gateway.sockets import SessionConnection, Target
from parley.errors import SessionError
from parley.gateway.editor_sessions import EditorWire
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Scope
from parley.gateway.session_log.records import OPEN
from parley.gateway.session_options import require
from parley.gateway.subscriber import REPLY, Numbered
from parley.jsonrpc import INTERNAL_ERROR, RpcError
from parley.protocol.base import Json, Struct

OK = 200
PAGE_LINES = 2000
NO_QUESTIONS = b'{"questions":[]}'
CONNECTION = {"numbered": "true", "partial": "true"}


class _Page(msgspec.Struct):
    lines: list[tuple[int, float | None, msgspec.Raw]]
    first: int


_pages = msgspec.json.Decoder(_Page)


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
        return self._link(link, LogKey(source.tenant, copy.session))

    async def list(self, cwd: str | None, offset: int, limit: int) -> list[ListedSession]:
        try:
            require(self.principal, Scope.VIEW, "listing sessions")
            opened = OpenStream(principal=self.principal, path="/sessions")
            reply = await merge(self.router, LIST_SESSIONS, opened, QueryParams())
        except Refusal as refusal:
            raise as_rpc_error(refusal) from None
        listed = [
            ListedSession(id=row["id"], cwd=row["cwd"], title=row["title"], updated_at=row["used_at"])
            for row in msgspec.json.decode(reply.body)["sessions"]
            if cwd is None or normpath(cwd) == row["cwd"]  # on a host, so links are not followed
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

    async def _key(self, session_id: str) -> LogKey:
        try:
            return await self.router.find_key(self.principal, session_id)
        except Refusal as refusal:
            raise as_rpc_error(refusal) from None

    async def _open(self, name: str, key: LogKey, params: NewSessionParams, new: str = "") -> LinkInfo:
        method = "GET" if name == "find" else "POST"
        return msgspec.convert(await self._call(name, key, params, method=method, new=new), LinkInfo)

    async def _call(self, name: str, key: LogKey, params: Any, method: str = "GET", new: str = "") -> Any:
        """Raises RpcError."""
        opened = OpenStream(
            principal=self.principal,
            key=key,
            method=method,
            path=f"{EDITORS}{name}",
            body=msgspec.json.encode(params),
            new_session=new,
        )
        try:
            reply = await self.router.call(opened)
        except Refusal as refusal:
            raise as_rpc_error(refusal) from None
        if reply.status == OK:
            return msgspec.json.decode(reply.body)
        error = msgspec.json.decode(reply.body, type=CallError)
        raise RpcError(error.code, error.message, error.data)

    def _link(self, found: LinkInfo, key: LogKey) -> SessionLink:
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


class ClusterWire(EditorWire):
    """A client of a session on a host."""

    def __init__(self, router: Router, principal: Principal, key: LogKey) -> None:
        super().__init__(principal)
        self._router = router
        self._key = key
        self._received: asyncio.Queue[list[Numbered]] = asyncio.Queue()
        self._sent: asyncio.Queue[bytes] = asyncio.Queue()
        target = Target(key=key, principal=principal, query=CONNECTION, numbered=True)
        self._connection = SessionConnection(router, target, self._received.put, self._ignore)
        self._tasks: list[asyncio.Task[Any]] = []

    async def connect(self) -> int:
        running = asyncio.create_task(self._run())
        self._tasks = [running, asyncio.create_task(self._write_all())]
        either: set[asyncio.Future[Any]] = {running, self._connection.attached}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._connection.attached.done():
            self.abandon()
            raise SessionError(running.result())
        return self._connection.attached.result()

    async def _run(self) -> str:
        """Returns why the connection has ended."""
        try:
            return (await self._connection.run()).reason
        except Refusal as refusal:
            return str(refusal)
        finally:
            self._received.put_nowait([])

    async def _write_all(self) -> None:
        while True:
            await self._connection.send(await self._sent.get())

    async def _ignore(self, text: str) -> None:
        """What is not a line of the session is not for editors."""

    async def take(self) -> list[Numbered]:
        return await self._received.get()

    def send_back(self, line: bytes) -> None:
        self._received.put_nowait([(REPLY, line)])

    async def _get(self, path: str, **query: str) -> bytes:
        """The body of a reply; empty if it is refused. Raises Refusal if no host replies."""
        opened = OpenStream(principal=self.principal, key=self._key, path=path, query=urlencode(query).encode())
        reply = await self._router.call(opened)
        return reply.body if reply.status == OK else b""

    async def pages(self) -> AsyncIterator[list[bytes]]:
        """Hosts give the newest lines first."""
        found: list[list[bytes]] = []
        before = self.last_shown + 1
        path = f"/sessions/{self._key.session}/lines"
        with suppress(Refusal):
            while before > 1 and (body := await self._get(path, before=str(before), limit=str(PAGE_LINES))):
                page = _pages.decode(body)
                if not page.lines:
                    break
                found.append([bytes(line) for _, _, line in page.lines])
                before = page.first
        for lines in reversed(found):
            yield lines

    async def open_questions(self) -> list[tuple[str, Json]]:
        body = b""
        with suppress(Refusal):
            body = await self._get("/questions", session=self._key.session)
        return [(one["request_id"], one["request"]) for one in msgspec.json.decode(body or NO_QUESTIONS)["questions"]]

    async def is_open(self, request_id: str) -> bool:
        try:
            body = await self._get(f"/questions/{self._key.session}/{request_id}")
        except Refusal:
            return True
        return bool(body) and msgspec.json.decode(body)["state"] == OPEN

    def write(self, data: bytes) -> None:
        self._sent.put_nowait(data)

    def abandon(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._received.put_nowait([])


def as_rpc_error(refusal: Refusal) -> RpcError:
    return RpcError(INTERNAL_ERROR, str(refusal), {"code": refusal.code})
