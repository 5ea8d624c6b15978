"""An editor on a WebSocket: the Agent Client Protocol, one message per frame. Its sessions are those of the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from parley.acp.agent import AcpAgent
from parley.acp.rpc import RpcConnection
from parley.gateway.editor_sessions import HubSessions
from parley.gateway.http.auth import Gate
from parley.gateway.http.sockets import admit, receive, refuse
from parley.gateway.hub import SessionHub
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Scope
from parley.gateway.session_options import require

MAX_WAITING = 100_000
"""How many messages may wait for a slow client. One that is slower is disconnected; it can load its sessions again."""


async def serve_editor(socket: WebSocket, gate: Gate, hub: SessionHub) -> None:
    """Serve one connection until either end closes it."""
    principal = await admit(socket, gate)
    if principal is None:
        return
    try:
        require(principal, Scope.VIEW, "/acp")
        if hub.is_draining:
            raise Refusal("shutting_down", "the server is shutting down")
    except Refusal as refusal:
        await refuse(socket, refusal)
        return
    hub.audit.write("acp", principal)
    sessions = HubSessions(hub, principal, hub.log.warn)
    await relay_editor(socket, lambda connection: AcpAgent(connection, sessions))


async def relay_editor(socket: WebSocket, make_agent: Callable[[RpcConnection], AcpAgent]) -> None:
    """Pass messages between an editor and its agent in both directions."""
    waiting: asyncio.Queue[bytes] = asyncio.Queue(MAX_WAITING)

    def write(line: bytes) -> None:
        try:
            waiting.put_nowait(line)
        except asyncio.QueueFull:
            reader.cancel()

    async def write_messages() -> None:
        with suppress(WebSocketDisconnect):
            while True:
                await socket.send_text((await waiting.get()).decode().rstrip("\n"))

    async def read_messages() -> None:
        with suppress(WebSocketDisconnect):
            while True:
                connection.receive(await receive(socket))

    connection = RpcConnection(write)
    agent = make_agent(connection)
    reader, writer = asyncio.create_task(read_messages()), asyncio.create_task(write_messages())
    try:
        await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
    finally:
        reader.cancel()
        writer.cancel()
        await asyncio.gather(reader, writer, return_exceptions=True)
        await agent.close()
