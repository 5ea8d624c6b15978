"""An editor on a WebSocket: the Agent Client Protocol, one message per frame. Its sessions are those of the hub."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from parley.acp.agent import AcpAgent
from parley.gateway.editor_sessions import HubSessions
from parley.gateway.http.auth import ADMITTED, Admitted, Gate
from parley.gateway.http.frames import EXTENSION, FrameSocket
from parley.gateway.http.sockets import admit, read_lines, refuse
from parley.gateway.hub import SessionHub
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Scope
from parley.gateway.security.quotas import Unsent
from parley.gateway.session_options import require
from parley.jsonrpc import INVALID_REQUEST, RpcConnection, RpcError

MAX_WAITING_BYTES = 16 * 1024 * 1024
"""How much may wait for a slow client. One that is slower is disconnected; it can load its sessions again."""
DRAINED_BYTES = 256 * 1024
"""How much may wait when the next message of the client is handled, or more of a history is read."""


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
