"""A client on a WebSocket of the gateway, and its connection to the owner of the session, which survives its move.

See `parley/gateway/http/sockets.py` for what the client may ask for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlencode
from uuid import uuid4

from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from parley.cluster.base import ClusterError, LogKey
from parley.cluster.bridge.gateway import GatewayStream, StreamLost
from parley.cluster.bridge.messages import (
    AttachedAt,
    ClientMessage,
    OpenStream,
    SessionLines,
    SocketClosed,
    SocketText,
    Taken,
)
from parley.cluster.gateway.client_state import ClientState
from parley.cluster.gateway.router import FailedHosts, Pauses, Router
from parley.gateway.http.auth import ADMITTED, Admitted
from parley.gateway.http.frames import find_line_socket
from parley.gateway.http.sockets import is_on, read_cursor, read_lines, refuse
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal
from parley.gateway.security.quotas import Unsent
from parley.gateway.subscriber import Numbered
from parley.protocol.base import Struct

CLOSE_SECONDS = 1.0
RESTART = 1012
"""The code with which a host closes the connections of a session that it gives up."""
MOST_UNTAKEN_BYTES = 8 * 1024 * 1024
"""How much of a client is passed on before the session has handled it."""


async def find_target(socket: WebSocket, router: Router, principal: Principal) -> Target:
    """Raises Refusal."""
    session = socket.path_params.get("session_id")
    query = dict(socket.query_params)
    is_new = session is None
    key = router.new_session(principal) if session is None else await router.find_key(principal, session)
    return Target(
        key=key,
        principal=principal,
        is_new=is_new,
        query=query,
        cursor=None if is_new else read_cursor(socket.query_params, key.session),
        numbered=is_on(socket.query_params, "numbered"),
    )


async def relay(socket: WebSocket, router: Router, target: Target) -> None:
    """Pass lines in both directions."""
    frames = find_line_socket(socket)

    admitted: Admitted = socket.scope[ADMITTED]
    unsent = Unsent(admitted.use)

    async def deliver(lines: list[Numbered]) -> None:
        size = sum(len(line) for _, line in lines)
        if unsent.is_refused(size):  # the client connects again with its cursor
            raise Refusal("quota_exceeded", "too much of what was sent to this token has not been read")
        unsent.set(size)
        await frames.write_lines(lines, numbered=target.numbered)
        unsent.set(0)

    connection = SessionConnection(router, target, deliver, socket.send_text)

    async def read_client() -> None:
        with suppress(WebSocketDisconnect):
            async for line, refusal in read_lines(socket):
                if refusal is not None:
                    await refuse(socket, refusal)
                    return
                await connection.send(line)

    reader, writer = asyncio.create_task(read_client()), asyncio.create_task(connection.run())
    try:
        await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
        if writer.done():
            await close(socket, writer.result())
    except Refusal as refusal:
        await refuse(socket, refusal)
    except (ClientDisconnected, WebSocketDisconnect):
        pass
    finally:
        reader.cancel()
        writer.cancel()
        await asyncio.gather(reader, writer, return_exceptions=True)
        unsent.set(0)


async def close(socket: WebSocket, closed: SocketClosed) -> None:
    """A client that does not read is left alone."""
    with suppress(RuntimeError, WebSocketDisconnect, ClientDisconnected, TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await socket.close(closed.code, closed.reason)


class Target(Struct, frozen=True, kw_only=True):
    """What a client connects to."""

    key: LogKey
    principal: Principal
    is_new: bool = False
    """Whether the session is created by the connection."""
    query: dict[str, str] = {}
    cursor: int | None = None
    """The number after which lines are wanted; None for new lines only."""
    numbered: bool = False


class SessionConnection:
    def __init__(
        self,
        router: Router,
        target: Target,
        deliver: Callable[[list[Numbered]], Awaitable[None]],
        say: Callable[[str], Awaitable[None]],
    ) -> None:
        """`deliver` passes lines to the client, `say` what is not a line of the session."""
        self._router = router
        self._target = target
        self._deliver = deliver
        self._say = say
        self._state = ClientState(target.cursor, numbered=target.numbered)
        self._stream: GatewayStream | None = None
        self._is_attached = self._was_attached = False
        """Whether an owner has served the connection, and whether the last one has."""
        self.attached: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Gets the number after which the lines of the first owner begin."""
        self._command = uuid4().hex
        self._lock = asyncio.Lock()
        """Keeps the messages of the client in order while they are sent again."""
        self._room = asyncio.Event()
        self._room.set()

    async def run(self) -> SocketClosed:
        """Pass lines on until the session closes the connection; returns how. Raises Refusal."""
        pauses, failed, suspect = Pauses(self._router.wait_seconds), FailedHosts(), 0
        while True:
            opened = self._make_open()
            stream = await self._router.dial_owner(opened)
            self._was_attached = False
            try:
                await self._begin(stream)
                closed = await self._pass_on(stream)
            except StreamLost:
                closed = None
                if suspect != self._state.oldest_unhandled:
                    failed.clear()
                    suspect = self._state.oldest_unhandled
                if suspect:
                    failed.add(stream, opened)
            finally:
                self._stream = None
                await self._router.dialer.hang_up(stream)
            if closed is not None and closed.code != RESTART:
                return closed
            if not await pauses.wait(worked=self._was_attached):
                return closed or SocketClosed(RESTART, "no_owner: the session has moved too often")

    def _make_open(self) -> OpenStream:
        target = self._target
        is_new = target.is_new and not self._is_attached
        query = dict(target.query)
        if not is_new and self._state.cursor is not None:
            query["after"] = str(self._state.cursor)
        return OpenStream(
            command=self._command,
            principal=target.principal,
            kind="websocket",
            scheme="ws",
            path="/ws" if is_new else f"/sessions/{target.key.session}/ws",
            query=urlencode(query).encode(),
            key=target.key,
            new_session=target.key.session if is_new else "",
        )

    async def _begin(self, stream: GatewayStream) -> None:
        """Tell a new owner what it does not know."""
        async with self._lock:
            messages, withdrawn = self._state.start_again(is_first=not self._is_attached)
            for message in messages:
                await self._send(stream, message, is_repeated=self._is_attached)
            self._stream = stream
            self._room.set()
        if withdrawn:
            await self._deliver(withdrawn)

    async def _send(self, stream: GatewayStream, data: bytes, *, is_repeated: bool = False) -> None:
        try:
            await stream.send(ClientMessage(data, is_repeated))
        except ClusterError as exc:
            stream.lose(str(exc))

    async def _pass_on(self, stream: GatewayStream) -> SocketClosed:
        """Raises StreamLost."""
        while True:
            match content := await stream.receive():
                case SessionLines():
                    if lines := self._state.select(content.lines):
                        await self._deliver(lines)
                    await stream.credit(content)
                case Taken():
                    self._state.note_taken(content.count)
                    if self._state.untaken_bytes < MOST_UNTAKEN_BYTES:
                        self._room.set()
                case SocketText():
                    await self._say(content.data)
                    await stream.credit(content)
                case AttachedAt():
                    self._is_attached = self._was_attached = True
                    if not self.attached.done():
                        self.attached.set_result(content.cursor)
                    if self._state.cursor is None:
                        self._state.cursor = content.cursor
                case SocketClosed():
                    return content

    async def send(self, data: bytes) -> None:
        """Pass a message of the client on, now or to the next owner. Waits while the session is behind."""
        async with self._lock:
            message = self._state.note_sent(data)
            if message and self._stream is not None:
                await self._send(self._stream, message)
        if self._state.untaken_bytes >= MOST_UNTAKEN_BYTES:
            self._room.clear()
        await self._room.wait()
