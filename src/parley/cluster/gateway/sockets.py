"""A client on a WebSocket of the gateway. See `parley/gateway/http/sockets.py` for what it may ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from parley.cluster.bridge.messages import SocketClosed
from parley.cluster.gateway.router import Router
from parley.cluster.gateway.session_connection import RESTART, SessionConnection, Target
from parley.gateway.http.auth import ADMITTED, Admitted, Gate
from parley.gateway.http.frames import find_line_socket
from parley.gateway.http.sockets import admit, is_on, read_cursor, read_lines, refuse
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal
from parley.gateway.security.quotas import Unsent
from parley.gateway.subscriber import Numbered

CLOSE_SECONDS = 1.0
Register = Callable[[Principal, asyncio.Task[None]], AbstractContextManager[None]]
"""Keeps a connection in the list of those that end when their token is revoked."""


async def serve_socket(socket: WebSocket, gate: Gate, router: Router, register: Register) -> None:
    """Serve one connection until either end closes it."""
    principal = await admit(socket, gate)
    if principal is None:
        return
    try:
        target = await find_target(socket, router, principal)
    except Refusal as refusal:
        await refuse(socket, refusal)
        return
    task = asyncio.create_task(relay(socket, router, target))
    try:
        with register(principal, task):
            await asyncio.wait([task])
    finally:
        task.cancel()
    await close_restarting(socket, task)


async def close_restarting(socket: WebSocket, task: asyncio.Task[None]) -> None:
    """If the gateway has ended a connection, tell the client that it may connect again."""
    if task.cancelled():
        await close(socket, SocketClosed(RESTART, ""))
    else:
        task.result()


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
