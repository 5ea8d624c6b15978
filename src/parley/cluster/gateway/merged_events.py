"""Server-sent events of all hosts in one stream: sessions that change, questions that are asked or decided.

What happened while a host was away is not an event of any other. So after a host has gone, the gateway compares what it
has passed on with the list, and passes on the difference.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Protocol
from uuid import uuid4

import msgspec
from starlette.datastructures import QueryParams
from starlette.responses import Response, StreamingResponse

from parley.cluster.base import ClusterError
from parley.cluster.bridge.messages import BodyPart, OpenStream, WholeReply
from parley.cluster.cluster_tokens import ClusterTokens
from parley.cluster.gateway.all_hosts import find_hosts, merge
from parley.cluster.gateway.events import EventCursor
from parley.cluster.gateway.merge import LIST_QUESTIONS, LIST_SESSIONS
from parley.cluster.gateway.router import Router
from parley.gateway.http.event_stream import COMMENT_SECONDS, format_event
from parley.gateway.refusal import Refusal
from parley.gateway.session_log.state import OPEN
from parley.protocol.base import Json

CHECK_SECONDS = 1.0
"""How often it is checked whether hosts came or went."""
RECENT_SECONDS = 60.0
"""A session that was used in this time may have changed while its host was away."""
MOST_WAITING = 1000
"""How many events may wait for a client. One that is slower is disconnected; it connects again and reads the list."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
IDLE = b": idle\n\n"
DATA = b"data: "
OK = 200


class WatchedList(Protocol):
    """What a stream is about."""

    def note(self, event: Json) -> None:
        """An event was passed on."""

    async def find_missed(self) -> list[bytes]:
        """What has changed without an event. Raises Refusal."""


class WatchedQuestions:
    def __init__(self, router: Router, opened: OpenStream) -> None:
        self._router = router
        self._opened = opened
        self._open: set[tuple[str, str]] = set()

    def note(self, event: Json) -> None:
        key = event["session"], event["request_id"]
        if event["state"] == OPEN:
            self._open.add(key)
        else:
            self._open.discard(key)

    async def find_missed(self) -> list[bytes]:
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


async def relay_merged_events(router: Router, tokens: ClusterTokens, opened: OpenStream) -> Response:
    """Raises Refusal."""
    await find_hosts(router)
    kind = WatchedQuestions if opened.path.startswith("/questions") else WatchedSessions
    events = HostEvents(router, opened, kind(router, opened))
    return StreamingResponse(events.iterate(tokens), headers=HEADERS, media_type="text/event-stream")


class HostEvents:
    """The streams of all hosts, for one client."""

    def __init__(self, router: Router, opened: OpenStream, watched: WatchedList) -> None:
        self._router = router
        self._opened = opened
        self._watched = watched
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(MOST_WAITING)

    async def iterate(self, tokens: ClusterTokens) -> AsyncIterator[bytes]:
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
