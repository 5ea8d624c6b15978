"""One request or WebSocket of a gateway, as the application of the host sees it: an ASGI connection.

What the application sends waits until the position of the session at which it was sent is committed. What the gateway
has not passed on yet is limited, so that a slow client cannot fill the memory of the host.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.types import Message, Scope
from uvicorn.protocols.utils import ClientDisconnected

from parley.cluster.base import Bus, ClusterError
from parley.cluster.bridge.messages import (
    ANSWER,
    LIVE,
    WINDOW_BYTES,
    AttachedAt,
    BodyPart,
    ClientGone,
    ClientMessage,
    Credit,
    FrameContent,
    FromHost,
    OpenStream,
    ReplyHead,
    SessionLines,
    SocketClosed,
    SocketText,
    Taken,
    WholeReply,
    make_stream_keys,
    size_of,
)
from parley.cluster.bridge.streams import BusStream
from parley.cluster.cluster_secret import NO_SECRET, ClusterSecret
from parley.cluster.host_sessions import MOVED, HostedSession
from parley.cluster.session_log import LogFull
from parley.gateway.http.frames import EXTENSION, split_lines
from parley.gateway.questions import is_same_answer
from parley.gateway.reporting import WHO
from parley.gateway.subscriber import LineBatch, Numbered
from parley.protocol.peek import peek

PART_BYTES = WINDOW_BYTES // 4
"""How much of a long body is sent at a time."""
NONCE_BYTES = 16


class HostStream(BusStream):
    """A stream, as the host sees it. Also the line socket of a WebSocket (`gateway/http/frames.py`)."""

    def __init__(
        self,
        bus: Bus,
        opened: OpenStream,
        shard: int | None,
        wait_all: Callable[[], Awaitable[None]],
        secret: ClusterSecret = NO_SECRET,
    ) -> None:
        """`wait_all` waits until what any session has said so far is committed."""
        super().__init__(bus, opened.stream, opened.inbox)
        self.opened = opened
        self.shard = shard
        self._hosted: HostedSession | None = None
        self._wait_all = wait_all
        self.nonce = secrets.token_bytes(NONCE_BYTES) if secret else b""
        self.receive_key, self.send_key = make_stream_keys(secret, opened.stream, self.nonce)
        self._has_begun = not secret
        self._incoming: deque[ClientMessage] = deque()
        """The messages of the client of a WebSocket."""
        self._body = [opened.body]
        self._has_body = not opened.has_more
        self.is_carried_out = False
        """Whether a command has started to change its session."""
        self._is_gone = False
        self._came = asyncio.Event()
        """Set when something of the gateway has come."""
        self._outgoing: deque[tuple[int, FromHost]] = deque()
        """What waits to be sent, each with the position that must be committed before."""
        self._wake = asyncio.Event()
        self._is_sending = False
        self._drained = asyncio.Event()
        """Set when nothing waits to be sent."""
        self._unread_bytes = 0
        """What the gateway has not passed on."""
        self._writable = asyncio.Event()
        self._writable.set()
        self._handled = -1
        """How many messages of the client the application has handled."""
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pump: asyncio.Task[None] | None = None
        self._head: ReplyHead | None = None

    # The life of a stream.

    def use(self, hosted: HostedSession | None) -> None:
        """The session is loaded; None if the stream is about all sessions."""
        self._hosted = hosted
        self._pump = asyncio.create_task(self._send_waiting())

    def lose(self, reason: str, *, is_silent: bool = False) -> None:
        """End the stream before its time; the gateway is told why."""
        if not self._ended.done():
            self._ended.set_result(reason)
            self._came.set()

    async def wait_begun(self) -> None:
        """Wait until the gateway has shown that the request is not an old one, sent again. Raises ClusterError."""
        while not self._has_begun:
            if self._ended.done():
                raise ClusterError(self._ended.result())
            await self._wait_for_gateway()

    async def wait(self, work: asyncio.Task[None]) -> None:
        """Wait until the application is done, or the stream ends before its time. Raises ClusterError."""
        assert self._pump is not None
        pump, closed = self._pump, None if self._hosted is None else self._hosted.closed
        watched: set[asyncio.Future[Any]] = {work, self._ended, pump, *(() if closed is None else (closed,))}
        while True:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done():
                raise ClusterError(self._ended.result())
            if pump.done():
                pump.result()  # raises: the session has died, so nothing may be said
            if work.done():
                work.result()
                return
            if closed is not None and closed.done():
                if closed.result() == MOVED:
                    raise ClusterError(MOVED)
                watched.discard(closed)  # the streams of a deleted session end by themselves

    async def close(self) -> None:
        """Send what waits; after this, nothing is sent. Raises LogFull if it cannot be stored."""
        pump, self._pump = self._pump, None
        if pump is None:
            return
        while (self._outgoing or self._is_sending) and not pump.done() and not self._ended.done():
            self._drained.clear()
            waiting = asyncio.create_task(self._drained.wait())
            either: set[asyncio.Future[Any]] = {waiting, pump, self._ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        pump.cancel()
        try:
            await pump
        except LogFull:
            raise
        except (asyncio.CancelledError, ClusterError):
            pass

    async def finish(self, content: FromHost) -> None:
        """Send a last content now."""
        with suppress(ClusterError):
            await self.publish(content)

    # From the gateway.

    def take(self, content: FrameContent) -> None:
        self._has_begun = True
        match content:
            case BodyPart():
                self._body.append(content.data)
                self._has_body = not content.has_more
            case ClientMessage():
                self._incoming.append(content)
            case ClientGone():
                self._is_gone = True
                self._writable.set()
            case Credit():
                self._unread_bytes -= content.count
                if self._unread_bytes < WINDOW_BYTES:
                    self._writable.set()
        self._came.set()

    async def _wait_for_gateway(self) -> None:
        self._came.clear()
        await self._came.wait()

    async def receive_body(self) -> None:
        """Wait for the rest of the body."""
        while not (self._has_body or self._is_gone):
            await self._wait_for_gateway()

    async def receive(self) -> Message:
        """The next message for the application."""
        if self.opened.kind == "websocket":
            return await self._receive_from_client()
        if self._body:
            body, self._body = b"".join(self._body), []
            return {"type": "http.request", "body": body, "more_body": False}
        while not self._is_gone:
            await self._wait_for_gateway()
        return {"type": "http.disconnect"}

    async def _receive_from_client(self) -> Message:
        self._handled += 1
        if self._handled == 0:
            return {"type": "websocket.connect"}
        if self._handled > 1:
            self.put(Taken(self._handled - 1))
        while not self._incoming:
            if self._is_gone:
                return {"type": "websocket.disconnect", "code": 1005}
            await self._wait_for_gateway()
        message = self._incoming.popleft()
        is_known = message.is_repeated and self._is_answered(message.data)
        return {"type": "websocket.receive", "bytes": b"" if is_known else message.data}

    def _is_answered(self, line: bytes) -> bool:
        """Whether a line that is sent again is the answer that has decided a question."""
        live = None if self._hosted is None else self._hosted.live
        if live is None:
            return False
        with suppress(msgspec.DecodeError):
            head = peek(line)
            if head.type == "control_response":
                return is_same_answer(live.log, str(head.response.request_id), line, self.opened.principal.name)
        return False

    # To the gateway.

    async def send(self, message: Message) -> None:
        """Take a message of the application."""
        match message["type"]:
            case "http.response.start":
                self._head = ReplyHead(message["status"], list(message.get("headers", ())))
            case "http.response.body":
                await self._send_body(message.get("body", b""), has_more=message.get("more_body", False))
            case "websocket.send":
                await self._writable.wait()
                text = message.get("text")
                self.put(SocketText(text if text is not None else message["bytes"].decode()))
            case "websocket.close":
                self.put(SocketClosed(message.get("code") or 1000, message.get("reason") or ""))

    async def _send_body(self, body: bytes, *, has_more: bool) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            if not has_more and len(body) <= PART_BYTES:
                self.put(WholeReply(head.status, head.headers, body))
                return
            self.put(head)
        for start in range(0, len(body), PART_BYTES):
            await self._writable.wait()
            if self._is_gone:
                return
            self.put(BodyPart(body[start : start + PART_BYTES], has_more=True))
        if not has_more:
            self.put(BodyPart(b"", has_more=False))

    @property
    def is_writable(self) -> bool:
        return self._unread_bytes < WINDOW_BYTES and not self._is_gone

    def attached(self, cursor: int) -> None:
        self.put(AttachedAt(cursor))

    def write_now(self, batch: LineBatch, *, numbered: bool) -> None:
        self.put(encode_lines(batch.lines))

    async def write_lines(self, lines: list[Numbered], *, numbered: bool) -> None:
        for part in split_lines(lines):
            await self._writable.wait()
            if self._is_gone:
                raise ClientDisconnected
            self.put(encode_lines(part))

    def put(self, content: FromHost) -> None:
        """Send when all that has happened so far is committed."""
        self._unread_bytes += size_of(content)
        if self._unread_bytes >= WINDOW_BYTES and not self._is_gone:
            self._writable.clear()
        position = 0 if self._hosted is None else self._hosted.writer.position
        if isinstance(content, Taken) and self._outgoing and isinstance(self._outgoing[-1][1], Taken):
            self._outgoing.pop()  # the newer one says it all
        self._outgoing.append((position, content))
        self._wake.set()

    async def _send_waiting(self) -> None:
        """Send what waits, in order. Raises ClusterError if the session has died."""
        while True:
            while self._outgoing:
                self._is_sending = True
                position, content = self._outgoing.popleft()
                if isinstance(content, SessionLines):
                    content = self._add_lines(position, content)
                if self._hosted is not None:
                    is_reply = isinstance(content, WholeReply)
                    await self._hosted.writer.wait_committed(position, waits_for_room=not is_reply)
                else:
                    await self._wait_all()
                await self.publish(content)
            self._is_sending = False
            self._drained.set()
            self._wake.clear()
            await self._wake.wait()

    def _add_lines(self, position: int, first: SessionLines) -> SessionLines:
        """Lines that wait for the same commit are sent in one frame."""
        lines, size = list(first.lines), size_of(first)
        while self._outgoing and self._outgoing[0][0] == position and size < PART_BYTES:
            following = self._outgoing[0][1]
            if not isinstance(following, SessionLines):
                break
            self._outgoing.popleft()
            lines += following.lines
            size += size_of(following)
        return SessionLines(lines)


def encode_lines(lines: list[Numbered]) -> SessionLines:
    return SessionLines([(LIVE if number is None else number or ANSWER, line) for number, line in lines])


def make_scope(opened: OpenStream, stream: HostStream) -> Scope:
    """The ASGI scope of a request."""
    scope: Scope = {
        "type": opened.kind,
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": opened.scheme,
        "path": opened.path,
        "raw_path": quote(opened.path).encode(),
        "query_string": opened.query,
        "root_path": "",
        "headers": opened.headers,
        "client": None,
        "server": None,
        "state": {},
        "extensions": {EXTENSION: {"socket": stream}},
        WHO: opened.principal.name,
    }
    if opened.kind == "http":
        return {**scope, "method": opened.method}
    return {**scope, "subprotocols": []}
