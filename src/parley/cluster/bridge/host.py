"""The host's end of the bridge: serve the requests and WebSockets of gateways with the application of the host.

    bridge = BridgeHost(cluster, prefix, host, sessions, tokens, limits)
    await bridge.start()            requests about all sessions of the host
    await bridge.serve(shard)       requests about the sessions of a shard; `leave(shard)` ends them

Nothing that a session says leaves the host before what it is based on is in the log (`Writer.wait_committed`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Any

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley.acp.host import Editor, SessionLink
from parley.acp.schema import ClientCapabilities, NewSessionParams, OpenSessionParams
from parley.cluster.base import BusRequest, Cluster, ClusterError, LogKey, Unsubscribe
from parley.cluster.bridge.host_stream import HostStream, make_scope
from parley.cluster.bridge.messages import (
    Accepted,
    Declined,
    FromHost,
    ReplyHead,
    SocketClosed,
    StreamEnded,
    WholeReply,
    decode_open,
    encode,
)
from parley.cluster.bridge.streams import StreamEnds
from parley.cluster.cluster_secret import BadSignature
from parley.cluster.cluster_tokens import ClusterTokens
from parley.cluster.host_sessions import MOVED, NEW_SESSION_ID, HostedSession, HostSessions
from parley.cluster.session_log import FULL, LogFull
from parley.cluster.subjects import host_subject, owner_subject, read_shard, shard_subject
from parley.cluster.takeovers import HostsFailed
from parley.cluster.tenants import TenantLimits
from parley.gateway.editor_sessions import HubSessions
from parley.gateway.http.app import Api, read_query, route
from parley.gateway.http.auth import Gate
from parley.gateway.http.frames import shorten_reason
from parley.gateway.http.replies import error_response, json_response
from parley.gateway.hub import SessionHub
from parley.gateway.refusal import STATUS, Refusal, close_code, error_body
from parley.gateway.security.access import Principal
from parley.jsonrpc import RpcConnection, RpcError
from parley.protocol.base import Json, Struct

WAITING_PATHS = ("/control", "/fork", "/simulate", "/delete")
"""The ends of the paths whose commands wait for the engine or for a copy."""
REFUSED = 400
LIST_SECONDS = 0.5
"""How long a reply about all sessions waits for what they are committing."""
logger = logging.getLogger(__name__)
_replies = msgspec.msgpack.Decoder(WholeReply)
PATH = "/internal/"
EDITORS = PATH + "acp/"
PRINCIPAL = "parley.principal"
"""The key of an ASGI scope with the principal that the gateway has found."""


class HostGate(Gate):
    """Takes the principal from the gateway, which has checked the token, the origin and the host name."""

    def check_headers(self, connection: HTTPConnection) -> None:
        """The gateway has done it."""

    def authenticate(self, connection: HTTPConnection) -> Principal:
        principal: Principal = connection.scope[PRINCIPAL]
        return principal


class BridgeHost:
    def __init__(
        self,
        cluster: Cluster,
        prefix: str,
        host: str,
        sessions: HostSessions,
        tokens: ClusterTokens,
        limits: TenantLimits,
    ) -> None:
        self._bus = cluster.bus
        self._prefix = prefix
        self._host = host
        self._app = HostRoutes(Api(HostGate(tokens), sessions.hub).app(route), sessions.hub)
        self._sessions = sessions
        self._secret = cluster.secret
        self._tokens = tokens
        self._limits = limits
        self._ends: StreamEnds[HostStream] = StreamEnds(self._bus, self._secret, "the gateway does not answer any more")
        self._tasks: dict[asyncio.Task[None], int | None] = {}
        """What runs, with its shard."""
        self._running: dict[str, asyncio.Event] = {}
        """The commands that are being carried out, by their ids."""
        self._served: set[int] = set()
        self._shards: dict[int, Unsubscribe] = {}

    async def start(self) -> None:
        """Raises ClusterError."""
        await self._ends.start({host_subject(self._prefix, self._host): self._on_open})

    async def serve(self, shard: int) -> None:
        """The host has acquired a shard. Raises ClusterError."""
        self._served.add(shard)
        if shard in self._shards:
            return
        unsubscribe = await self._bus.subscribe(shard_subject(self._prefix, shard), self._on_open)
        if shard not in self._served or shard in self._shards:
            await unsubscribe()  # the shard was lost while the bus was slow
            return
        self._shards[shard] = unsubscribe
        with suppress(ClusterError):  # without the notice, gateways come back later
            subject = owner_subject(self._prefix, shard)
            await self._bus.publish(subject, self._secret.seal(subject, self._ends.inbox.encode()))

    async def leave(self, shard: int) -> None:
        """The host gives a shard up. Gateways dial again."""
        self._served.discard(shard)
        if (unsubscribe := self._shards.pop(shard, None)) is not None:
            with suppress(ClusterError):
                await unsubscribe()
        for stream in self._ends.streams.values():
            if stream.shard == shard:
                stream.lose(MOVED)

    async def close(self) -> None:
        for shard in list(self._shards):
            await self.leave(shard)
        await self._ends.close(MOVED)
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Messages.

    async def _on_open(self, request: BusRequest) -> None:
        try:
            opened = decode_open(self._secret.unseal(request.subject, request.data))
        except (BadSignature, msgspec.MsgspecError) as exc:
            logger.warning("a request on the bus is refused: %s", exc)
            await request.respond(encode(Declined(str(exc))))
            return
        if not self._tokens.is_valid(opened.principal.name):
            # Or the host has not heard of it yet: the gateway asks again.
            declined = Declined(f"host {self._host} knows no valid token {opened.principal.name!r}")
            await request.respond(self._secret.seal(opened.stream, encode(declined)))
            return
        shard = read_shard(request.subject)
        known = self._ends.streams.get(opened.stream)  # the gateway did not hear that it was accepted
        stream = known or HostStream(self._bus, opened, shard, self._wait_all, self._secret)
        self._ends.streams[stream.stream] = stream  # before the gateway can send frames
        accepted = Accepted(self._host, self._ends.inbox, stream.nonce)
        try:
            await request.respond(self._secret.seal(stream.stream, encode(accepted)))
        except ClusterError:
            if known is None:
                self._ends.forget(stream)
            raise
        if known is not None:
            return
        self._ends.watch(stream)
        task = asyncio.create_task(self._run(stream))
        self._tasks[task] = shard
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _wait_all(self) -> None:
        """Wait until what any session has said so far is committed.

        Nothing waits for a session that dies, nor for long: a session whose log is full or away must not hold up the
        lists of all others.
        """
        await asyncio.sleep(0)  # writers hear of changed rows in the next round of the loop
        behind = [hosted.writer for hosted in self._sessions if not hosted.writer.is_settled]
        if behind:
            waiting = [asyncio.create_task(writer.wait_committed(writer.position)) for writer in behind]
            done, late = await asyncio.wait(waiting, timeout=LIST_SECONDS)
            for task in late:
                task.cancel()
            for task in done:
                task.exception()  # a session that dies

    # Requests.

    async def _run(self, stream: HostStream) -> None:
        key = stream.opened.key
        try:
            await stream.wait_begun()
            if key is None:
                await self._serve(stream, None)
            else:
                await self._limits.prepare(key.tenant)
                async with self._sessions.use(key) as hosted:
                    try:
                        await self._serve(stream, hosted)
                    except LogFull:
                        if stream.is_carried_out:
                            # Forget what the command has changed, so that it may be sent again. What was running
                            # continues from the log as soon as there is room.
                            self._sessions.kill(hosted)
                        if new := stream.opened.new_session:
                            await self._sessions.summaries.remove(LogKey(key.tenant, new))
                        raise
        except ClusterError as exc:
            await stream.finish(make_end(stream, exc))
        finally:
            self._ends.forget(stream)

    async def _serve(self, stream: HostStream, hosted: HostedSession | None) -> None:
        """Serve a stream until either end closes it, or the session moves."""
        opened = stream.opened
        stream.use(hosted)
        if opened.kind == "websocket":
            work = self._serve_socket(stream, hosted)
        elif hosted is None or opened.method in ("GET", "HEAD"):
            work = self._call(stream)
        else:
            work = self._carry_out(stream, hosted)
        task = asyncio.create_task(work)
        try:
            await stream.wait(task)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await stream.close()

    async def _serve_socket(self, stream: HostStream, hosted: HostedSession | None) -> None:
        opened = stream.opened
        if opened.new_session and hosted is not None and hosted.live is not None:
            # An earlier attempt has created the session.
            path = f"/sessions/{opened.new_session}/ws"
            query = b"&".join(filter(None, (opened.query, b"after=0")))
            stream.opened = msgspec.structs.replace(opened, path=path, query=query, new_session="")
        await self._call(stream)

    async def _call(self, stream: HostStream) -> None:
        opened = stream.opened
        NEW_SESSION_ID.set(opened.new_session)
        await stream.receive_body()
        await self._run_app(stream, stream.send)

    async def _carry_out(self, stream: HostStream, hosted: HostedSession) -> None:
        """Carry a command out once, however often it is sent, and reply the same each time."""
        command = stream.opened.command
        while (running := self._running.get(command)) is not None:
            await running.wait()
        recorded = hosted.state.commands.get(command)
        if recorded is not None:  # it was carried out before, perhaps on another host
            stream.put(_replies.decode(recorded))
            return
        if hosted.writer.is_full:
            await hosted.writer.wait_committed(hosted.writer.position, waits_for_room=False)
        done = self._running[command] = asyncio.Event()
        try:
            await stream.receive_body()
            stream.is_carried_out = True
            is_instant = not stream.opened.path.endswith(WAITING_PATHS) and stream.opened.method == "POST"
            with hosted.writer.hold() if is_instant else nullcontext():
                reply = await self._collect(stream)
                if reply.status < 500 and stream.opened.method != "DELETE":
                    hosted.record_command(command, encode(reply))
            if stream.opened.new_session and reply.status < REFUSED:
                # Lists have it even if this host dies before it writes what others see of its sessions.
                with suppress(ClusterError):
                    new = LogKey(hosted.key.tenant, stream.opened.new_session)
                    await self._sessions.summaries.write(new)
            stream.put(reply)
        finally:
            del self._running[command]
            done.set()

    async def _collect(self, stream: HostStream) -> WholeReply:
        """The whole reply of the application."""
        head, parts = ReplyHead(500, []), list[bytes]()

        async def send(message: Message) -> None:
            nonlocal head
            if message["type"] == "http.response.start":
                head = ReplyHead(message["status"], list(message.get("headers", ())))
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        NEW_SESSION_ID.set(stream.opened.new_session)
        await self._run_app(stream, send)
        return WholeReply(head.status, head.headers, b"".join(parts))

    async def _run_app(self, stream: HostStream, send: Send) -> None:
        scope = {**make_scope(stream.opened, stream), PRINCIPAL: stream.opened.principal}
        try:
            await self._app(scope, stream.receive, send)
        except Exception:  # a request has got a reply that says so
            logger.exception("a fault of the host in %s %s", stream.opened.method, stream.opened.path)
            if stream.opened.kind == "websocket":
                stream.put(SocketClosed(1011, "internal_error: a fault of the host, which its log describes"))


def make_end(stream: HostStream, exc: ClusterError) -> FromHost:
    """What ends a stream that cannot be served: the gateway asks again, unless no host would do better."""
    is_socket = stream.opened.kind == "websocket"
    if isinstance(exc, HostsFailed):
        code = "hosts_failed"
    elif exc.error_code == FULL and not is_socket and not stream.sent:
        code = "cluster_unavailable"  # nothing was accepted
    else:
        return StreamEnded(str(exc))
    if is_socket:
        return SocketClosed(close_code(code), shorten_reason(code, str(exc)))
    return WholeReply(STATUS[code], [(b"content-type", b"application/json")], error_body(code, str(exc)))


NO_EDITOR = Editor(RpcConnection(lambda line: None), ClientCapabilities())
"""Sessions of a hub do not use the files and terminals of the editor."""


class LinkInfo(Struct, frozen=True, kw_only=True):
    """A session for an editor; the gateway connects to it by itself."""

    id: str
    cwd: str
    title: str
    servers: Json
    may_bypass: bool


class CallError(Struct, frozen=True, kw_only=True):
    """Why a call was refused, as the editor is told."""

    code: int
    message: str
    data: Any = None


class HostRoutes:
    """The application of a host with these routes."""

    def __init__(self, app: ASGIApp, hub: SessionHub) -> None:
        self._app = app
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PATH):
            await self._app(scope, receive, send)
            return
        try:
            response = await self._handle(Request(scope, receive), scope[PRINCIPAL])
        except Refusal as refusal:
            response = error_response(refusal)
        await response(scope, receive, send)

    async def _handle(self, request: Request, principal: Principal) -> Response:
        """Raises Refusal."""
        path = request.scope["path"]
        if path.startswith(EDITORS):
            return await self._call(path.removeprefix(EDITORS), principal, await request.body())
        loaded = self._hub.list_ids()
        if path == f"{PATH}sessions":
            found, total = self._hub.find_sessions(principal, read_query(request.query_params))
            return json_response({"loaded": loaded, "sessions": found, "total": total})
        if path == f"{PATH}questions":
            page = self._hub.questions.list_open(principal, request.query_params.get("session"))
            return json_response({"loaded": loaded, **msgspec.structs.asdict(page)})
        raise Refusal("not_found", f"hosts have no route {path}")

    async def _call(self, method: str, principal: Principal, body: bytes) -> Response:
        try:
            return json_response(await self._serve_editor(method, principal, body))
        except RpcError as exc:
            return json_response(CallError(code=exc.code, message=str(exc), data=exc.data), REFUSED)

    async def _serve_editor(self, method: str, principal: Principal, body: bytes) -> object:
        """Raises RpcError."""
        sessions = HubSessions(self._hub, principal, self._hub.log.warn)
        openers: dict[str, Callable[[Any, Editor], Awaitable[SessionLink]]] = {
            "create": sessions.create,
            "find": sessions.find,
            "fork": sessions.fork,
        }
        if method in openers:
            kind = NewSessionParams if method == "create" else OpenSessionParams
            link = await openers[method](msgspec.json.decode(body, type=kind), NO_EDITOR)
            return LinkInfo(
                id=link.id, cwd=link.cwd, title=link.title, servers=link.servers, may_bypass=link.may_bypass
            )
        return await getattr(sessions, method)(*msgspec.json.decode(body))
