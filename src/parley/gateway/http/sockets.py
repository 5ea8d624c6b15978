"""A client on a WebSocket: one protocol line per frame, with its line end, in both directions.

/ws                     a new session
/sessions/ID/ws         an existing one
    ?after=N            first the lines after line N; without it, new lines only. `ID:N` is refused by other sessions
    ?numbered=true      every frame is `N<TAB>LINE`; N is empty for lines that are not stored
    ?partial=true       with stream events; the default of a session with `--include-partial-messages`
    ?cwd=DIR            the directory of a new session
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket, WebSocketDisconnect

from parley.gateway.http.auth import ADMITTED, SUBPROTOCOL, Admitted, Auth, Gate
from parley.gateway.http.frames import PART_BYTES, find_line_socket, shorten_reason
from parley.gateway.hub import SessionHub
from parley.gateway.live_session import LiveSession, SessionClient, is_requesting
from parley.gateway.refusal import Refusal, close_code
from parley.gateway.security.access import Principal
from parley.gateway.session_options import SessionRequest
from parley.gateway.subscriber import LineBatch, Resync, Wants
from parley.protocol.peek import peek

AUTH_SECONDS = 10
"""How long a client without a token in its headers has to send one."""
MAX_DIGITS = 18
MOST_REFUSED = 100
"""How many lines above its limit a client may send one after another before it is disconnected."""


async def admit(socket: WebSocket, gate: Gate) -> Principal | None:
    """Accept a connection; returns who it is from, None if it was refused."""
    try:
        gate.check_headers(socket)
        principal = gate.authenticate(socket)
    except Refusal as refusal:
        await refuse(socket, refusal)
        return None
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in socket.scope.get("subprotocols", ()) else None)
    if principal is not None:
        return principal
    try:
        return await receive_token(socket, gate)
    except Refusal as refusal:
        await refuse(socket, refusal)
    except WebSocketDisconnect:
        pass
    return None


async def receive_token(socket: WebSocket, gate: Gate) -> Principal:
    """Raises Refusal, WebSocketDisconnect."""
    try:
        async with asyncio.timeout(AUTH_SECONDS):
            first = await receive(socket)
    except TimeoutError:
        raise Refusal("unauthorized", f"no token was received within {AUTH_SECONDS} seconds") from None
    try:
        token = msgspec.json.decode(first, type=Auth).credential.token
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = "no token was sent: send it as a header, as a subprotocol or in the first message"
        raise Refusal("unauthorized", text) from None
    return gate.check_token(token, socket)


def open_session(socket: WebSocket, hub: SessionHub, principal: Principal) -> LiveSession:
    """Raises Refusal, SessionError."""
    session_id = socket.path_params.get("session_id")
    if session_id is not None:
        return hub.get(principal, session_id)
    return hub.create(principal, SessionRequest(cwd=socket.query_params.get("cwd")))


def attach(query: QueryParams, session: LiveSession, principal: Principal, hub: SessionHub) -> SessionClient:
    """Raises Refusal, SessionError."""
    return session.attach(principal, read_cursor(query, session.id), make_filter(query, session, hub))


def read_cursor(query: QueryParams, session_id: str) -> int | None:
    """The number of a line, from `N` or `SESSION:N`. Raises Refusal."""
    given = query.get("after")
    if given is None:
        return None
    owner, _, number = given.rpartition(":")
    if owner not in ("", session_id):
        raise Refusal("cursor_of_another_session", f"the cursor is of the session {owner!r:.50}, not of {session_id!r}")
    if not (number.isascii() and number.isdigit() and len(number) <= MAX_DIGITS):
        raise Refusal("invalid_cursor", f"the parameter `after` must be a line number, not {given!r:.50}")
    return int(number)


def make_filter(query: QueryParams, session: LiveSession, hub: SessionHub) -> Wants:
    partial = is_on(query, "partial") if "partial" in query else hub.sends_partial(session.id)
    return find_filter(numbered=is_on(query, "numbered"), partial=partial, state_events=hub.settings.sends_states)


@cache
def find_filter(*, numbered: bool, partial: bool, state_events: bool) -> Wants:
    """Which lines a client gets. Clients that do not number lines are official ones, which know no lines of ours.

    Clients that get the same lines have the same filter, which is then applied once for all of them.
    """

    def wants(line: bytes) -> bool:
        head = peek(line)
        match head.type, head.subtype:
            case "stream_event", _:
                return partial
            case "system", "status":
                return partial or not is_requesting(head)
            case "gateway", _:
                return numbered
            case ("active_goal", _) | ("system", "session_state_changed"):
                return numbered or state_events
        return True

    return wants


def is_on(query: QueryParams, name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true", "yes")


async def relay(socket: WebSocket, session: LiveSession, client: SessionClient) -> None:
    """Pass lines in both directions until either end has enough, then disconnect the client."""

    async def read_client() -> None:
        with suppress(WebSocketDisconnect):
            async for line, refusal in read_lines(socket):
                if refusal is None:
                    session.receive(client, line)
                else:
                    session.refuse(client, line, refusal)
                await client.subscriber.wait_replies_taken()

    reader, writer = asyncio.create_task(read_client()), asyncio.create_task(write_lines(socket, client))
    try:
        await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
        if reader.done():
            reader.result()
    finally:
        session.detach(client)
        reader.cancel()
        writer.cancel()
        await asyncio.gather(reader, writer, return_exceptions=True)


async def write_lines(socket: WebSocket, client: SessionClient) -> None:
    numbered, subscriber = is_on(socket.query_params, "numbered"), client.subscriber
    frames = find_line_socket(socket)

    def write_now(batch: LineBatch) -> bool:
        if not frames.is_writable or batch.size_bytes > PART_BYTES:
            return False
        frames.write_now(batch, numbered=numbered)
        return True

    frames.attached(subscriber.cursor)
    subscriber.write_now, resyncs = write_now, 0
    while lines := await subscriber.take():
        await frames.write_lines(lines, numbered=numbered)
        if numbered and subscriber.resyncs != resyncs:
            resyncs = subscriber.resyncs
            await socket.send_text(f"\t{msgspec.json.encode(Resync(after=subscriber.cursor)).decode()}\n")
    await socket.close(1012)


async def read_lines(socket: WebSocket) -> AsyncIterator[tuple[bytes, Refusal | None]]:
    """The lines of a client, each in its turn, and why one is refused. Raises WebSocketDisconnect."""
    refused = 0
    while True:
        data, start = await receive(socket), 0
        while start < len(data):
            end = data.find(b"\n", start)
            end = len(data) if end < 0 else end
            line, start = data[start:end].strip(), end + 1
            if not line:
                continue
            try:
                await take_turn(socket)
            except Refusal as refusal:
                refused += 1
                if refusal.code == "unauthorized" or refused > MOST_REFUSED:
                    await refuse(socket, refusal)
                    raise WebSocketDisconnect from None
                yield line, refusal
            else:
                refused = 0
                yield line, None


async def take_turn(connection: HTTPConnection) -> None:
    """Wait until a line of a client can be handled. Raises Refusal if it must not be."""
    admitted: Admitted | None = connection.scope.get(ADMITTED)
    if admitted is None:  # a gateway elsewhere has done it
        await asyncio.sleep(0)
        return
    await admitted.use.take_turn()
    admitted.check_current()
    admitted.count()


async def receive(socket: WebSocket) -> bytes:
    """The next frame. Raises WebSocketDisconnect."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text = message.get("text")
    return text.encode(errors="replace") if text is not None else message.get("bytes") or b""


async def refuse(socket: WebSocket, refusal: Refusal) -> None:
    with suppress(RuntimeError, WebSocketDisconnect):
        await socket.close(close_code(refusal.code), shorten_reason(refusal.code, str(refusal)))
