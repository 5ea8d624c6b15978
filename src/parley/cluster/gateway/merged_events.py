"""Server-sent events of all hosts in one stream: sessions that change, questions that are asked or decided."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from parley.cluster.base import ClusterError
from parley.cluster.bridge.messages import BodyPart, OpenStream, WholeReply
from parley.cluster.cluster_tokens import ClusterTokens
from parley.cluster.gateway.all_hosts import find_hosts
from parley.cluster.gateway.events import EventCursor
from parley.cluster.gateway.router import Router
from parley.gateway.http.event_stream import COMMENT_SECONDS
from parley.gateway.refusal import Refusal

CHECK_SECONDS = 1.0
"""How often it is checked whether hosts came or went."""
MOST_WAITING = 1000
"""How many events may wait for a client. One that is slower is disconnected; it connects again and reads the list."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
IDLE = b": idle\n\n"


async def relay_merged_events(router: Router, tokens: ClusterTokens, opened: OpenStream) -> Response:
    """Raises Refusal."""
    await find_hosts(router)
    events = merge_events(router, tokens, opened)
    return StreamingResponse(events, headers=HEADERS, media_type="text/event-stream")


async def merge_events(router: Router, tokens: ClusterTokens, opened: OpenStream) -> AsyncIterator[bytes]:
    yield b": connected\n\n"
    queue: asyncio.Queue[bytes] = asyncio.Queue(MOST_WAITING)
    async with asyncio.TaskGroup() as group:
        keeper = group.create_task(follow_hosts(router, opened, queue))
        try:
            while tokens.is_valid(opened.principal.name) and not queue.full():
                try:
                    async with asyncio.timeout(COMMENT_SECONDS):
                        yield await queue.get()
                except TimeoutError:
                    yield IDLE
        finally:
            keeper.cancel()


async def follow_hosts(router: Router, opened: OpenStream, queue: asyncio.Queue[bytes]) -> None:
    """Keep a stream to each host."""
    streams: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            try:
                hosts = await find_hosts(router)
            except Refusal:
                hosts = {}
            for host in hosts:
                if host not in streams or streams[host].done():
                    streams[host] = asyncio.create_task(follow_host(router, host, opened, queue))
            await asyncio.sleep(CHECK_SECONDS)
    finally:
        for task in streams.values():
            task.cancel()
        await asyncio.gather(*streams.values(), return_exceptions=True)


async def follow_host(router: Router, host: str, opened: OpenStream, queue: asyncio.Queue[bytes]) -> None:
    """Pass on the events of one host until its stream ends."""
    cursor = EventCursor()
    try:
        stream = await router.dial_host(host, opened)
    except ClusterError:
        return
    try:
        while True:
            content = await stream.receive()
            if isinstance(content, WholeReply):
                return
            if isinstance(content, BodyPart):
                events = cursor.feed(content.data)
                if events and not events.startswith(b":"):
                    await queue.put(events)
                await stream.credit(content)
                if not content.has_more:
                    return
    except ClusterError:
        return
    finally:
        await router.dialer.hang_up(stream)
