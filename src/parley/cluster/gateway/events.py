"""Server-sent events that survive the death and the move of the hosts that they come from.

The events of a session have the numbers of its lines as ids. When the stream to the owner is lost, the next owner is
asked for those after the last one that was passed on. The lists of sessions and of questions are events of all hosts
(`relay_merged_events`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import uuid4

import msgspec
from starlette.datastructures import QueryParams
from starlette.responses import Response, StreamingResponse

from parley.cluster.base import ClusterError
from parley.cluster.bridge.gateway import GatewayStream, StreamLost
from parley.cluster.bridge.messages import BodyPart, OpenStream, ReplyHead, WholeReply
from parley.cluster.gateway.merge import LIST_QUESTIONS, LIST_SESSIONS, find_hosts, merge
from parley.cluster.gateway.router import FailedHosts, Pauses, Router
from parley.gateway.http.event_stream import COMMENT_SECONDS, format_event
from parley.gateway.refusal import Refusal
from parley.gateway.security.tokens import Tokens
from parley.gateway.session_log.records import OPEN
from parley.protocol.base import Json

LAST_EVENT = b"last-event-id"
OK = 200
CHECK_SECONDS = 1.0
"""How often it is checked whether hosts came or went."""
RECENT_SECONDS = 60.0
"""A session that was used in this time may have changed while its host was away."""
MOST_WAITING = 1000
"""How many events may wait for a client. One that is slower is disconnected; it connects again and reads the list."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
IDLE = b": idle\n\n"
DATA = b"data: "


class EventCursor:
    """Cuts a stream of bytes into whole events, and knows the id of the last one."""

    def __init__(self) -> None:
        self.last_id: bytes | None = None
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The events that are complete, those with ids only if they are new."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        return b"".join(event + b"\n\n" for event in events if self._is_new(event))

    def _is_new(self, event: bytes) -> bool:
        for line in event.split(b"\n"):
            if line.startswith(b"id: "):
                found = line[4:]
                if self.last_id is not None and int(found) <= int(self.last_id):
                    return False
                self.last_id = found
        return True

    def start_again(self) -> None:
        """The rest of an event that is incomplete comes again."""
        self._rest = b""


async def relay_events(router: Router, opened: OpenStream) -> Response:
    """The reply to a request for the events of a session. Raises Refusal."""
    failed = FailedHosts()
    while True:
        stream = await router.dial_owner(opened)
        try:
            head = await stream.receive()
        except StreamLost:
            await router.dialer.hang_up(stream)
            failed.add(stream, opened)
            continue
        if isinstance(head, WholeReply):
            await router.dialer.hang_up(stream)
            return make_response(head)
        assert isinstance(head, ReplyHead)
        reply = StreamingResponse(pass_on(router, opened, stream), head.status)
        reply.raw_headers = head.headers
        return reply


async def pass_on(router: Router, opened: OpenStream, stream: GatewayStream) -> AsyncIterator[bytes]:
    """The events of a stream and of those that continue it."""
    cursor = EventCursor()
    pauses = Pauses(router.wait_seconds)
    while True:
        worked = False
        try:
            while True:
                content = await stream.receive()
                if isinstance(content, BodyPart):
                    if events := cursor.feed(content.data):
                        worked = True
                        yield events
                    if not content.has_more:
                        break  # the host stops, or the session is gone: the next dial tells
                    await stream.credit(content)
                elif isinstance(content, WholeReply) or (isinstance(content, ReplyHead) and content.status != OK):
                    return
        except StreamLost:
            pass
        finally:
            await router.dialer.hang_up(stream)
        cursor.start_again()
        if not await pauses.wait(worked=worked):
            return
        try:
            stream = await router.dial_owner(continue_at(opened, cursor.last_id))
        except Refusal:
            return


def continue_at(opened: OpenStream, last_id: bytes | None) -> OpenStream:
    """The request for the events after an id."""
    if last_id is None:
        return opened
    headers = [(name, value) for name, value in opened.headers if name != LAST_EVENT]
    return msgspec.structs.replace(opened, headers=[*headers, (LAST_EVENT, last_id)])


def make_response(reply: WholeReply) -> Response:
    response = Response(reply.body, reply.status)
    named = {name for name, _ in reply.headers}
    response.raw_headers = [*reply.headers, *(own for own in response.raw_headers if own[0] not in named)]
    return response


class WatchedQuestions:
    """What a client of the questions has been told."""

    def __init__(self, router: Router, opened: OpenStream) -> None:
        self._router = router
        self._opened = opened
        self._open: set[tuple[str, str]] = set()

    def note(self, event: Json) -> None:
        """An event was passed on."""
        key = event["session"], event["request_id"]
        if event["state"] == OPEN:
            self._open.add(key)
        else:
            self._open.discard(key)

    async def find_missed(self) -> list[bytes]:
        """What has changed without an event. Raises Refusal."""
        opened = msgspec.structs.replace(self._opened, path="/questions")
        reply = await merge(self._router, LIST_QUESTIONS, opened, QueryParams(), must_be_complete=True)
        listed = msgspec.json.decode(reply.body)["questions"] if reply.status == OK else []
        found = {(row["session"], row["request_id"]): row for row in listed}
        missed = [row for key, row in found.items() if key not in self._open]
        for session, request_id in self._open - set(found):
            row = await self._find(session, request_id)
            if row is not None and row["state"] != OPEN:  # the list may have had no room for it
                missed.append(row)
        for row in missed:
            self.note(row)
        return [format_event(msgspec.json.encode(row)) for row in missed]

    async def _find(self, session: str, request_id: str) -> Json | None:
        key = await self._router.find_key(self._opened.principal, session)
        path, command = f"/questions/{session}/{request_id}", uuid4().hex
        reply = await self._router.call(msgspec.structs.replace(self._opened, path=path, key=key, command=command))
        row: Json | None = msgspec.json.decode(reply.body) if reply.status == OK else None
        return row


class WatchedSessions:
    """The same for the list of sessions."""

    def __init__(self, router: Router, opened: OpenStream) -> None:
        self._router = router
        self._opened = opened
        self._known: dict[str, Json] = {}

    def note(self, event: Json) -> None:
        if event["type"] == "deleted":
            self._known.pop(event["id"], None)
        else:
            self._known[event["session"]["id"]] = event["session"]

    async def find_missed(self) -> list[bytes]:
        opened = msgspec.structs.replace(self._opened, path="/sessions")
        reply = await merge(self._router, LIST_SESSIONS, opened, QueryParams(), must_be_complete=True)
        if reply.status != OK:
            return []
        listed = {row["id"]: row for row in msgspec.json.decode(reply.body)["sessions"]}
        events: list[Json] = [{"type": "deleted", "id": id} for id in self._known if id not in listed]
        since = time.time() - RECENT_SECONDS
        for id, row in listed.items():
            if row != self._known.get(id) and (id in self._known or row["used_at"] > since):
                events.append({"type": "session", "session": row})
        for event in events:
            self.note(event)
        return [format_event(msgspec.json.encode(event)) for event in events]


async def relay_merged_events(router: Router, tokens: Tokens, opened: OpenStream) -> Response:
    """Raises Refusal."""
    await find_hosts(router)
    kind = WatchedQuestions if opened.path.startswith("/questions") else WatchedSessions
    events = HostEvents(router, opened, kind(router, opened))
    return StreamingResponse(events.iterate(tokens), headers=HEADERS, media_type="text/event-stream")


class HostEvents:
    """The streams of all hosts, for one client."""

    def __init__(self, router: Router, opened: OpenStream, watched: WatchedQuestions | WatchedSessions) -> None:
        self._router = router
        self._opened = opened
        self._watched = watched
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(MOST_WAITING)

    async def iterate(self, tokens: Tokens) -> AsyncIterator[bytes]:
        yield b": connected\n\n"
        keeper = asyncio.create_task(self._follow_hosts())
        try:
            while tokens.is_valid(self._opened.principal.name) and not self._queue.full():
                try:
                    async with asyncio.timeout(COMMENT_SECONDS):
                        events = await self._queue.get()
                except TimeoutError:
                    events = IDLE
                yield events
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _follow_hosts(self) -> None:
        """Keep a stream to each host."""
        streams: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                hosts: dict[str, int] = {}
                with suppress(Refusal):
                    hosts = await find_hosts(self._router)
                lost = [host for host, task in streams.items() if task.done()]
                for host in lost:
                    del streams[host]
                for host in hosts.keys() - streams.keys():
                    streams[host] = asyncio.create_task(self._follow_host(host))
                if lost:
                    await self._catch_up()
                await asyncio.sleep(CHECK_SECONDS)
        finally:
            for task in streams.values():
                task.cancel()
            await asyncio.gather(*streams.values(), return_exceptions=True)

    async def _catch_up(self) -> None:
        with suppress(Refusal):
            for event in await self._watched.find_missed():
                await self._queue.put(event)

    async def _follow_host(self, host: str) -> None:
        """Pass on the events of one host until its stream ends."""
        cursor = EventCursor()
        with suppress(ClusterError):
            stream = await self._router.dial_host(host, self._opened)
            try:
                while not isinstance(content := await stream.receive(), WholeReply):
                    if isinstance(content, BodyPart):
                        await self._pass_on(cursor.feed(content.data))
                        await stream.credit(content)
                        if not content.has_more:
                            return
            finally:
                await self._router.dialer.hang_up(stream)

    async def _pass_on(self, events: bytes) -> None:
        for line in events.split(b"\n"):
            if line.startswith(DATA):
                self._watched.note(msgspec.json.decode(line[len(DATA) :]))
        if not events.startswith(b":") and events:
            await self._queue.put(events)
