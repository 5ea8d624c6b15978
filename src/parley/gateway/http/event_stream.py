"""Server-sent events, and the event streams of the gateway.

GET  /sessions/ID/events                   every line, with its number as the event's id
GET  /questions/events                     the open questions, then every one that is asked or decided
GET  /v1/code/sessions/ID/events/stream    lines in the envelopes that the official browser client reads
POST /v1/code/sessions/ID/events           lines of that client
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from parley.gateway.http.frames import PART_BYTES
from parley.gateway.subscriber import Numbered
from parley.protocol.peek import Head, peek

COMMENT_SECONDS = 15
"""How often an idle stream sends a comment, so that both ends notice a dead connection."""


DELIVERY = {
    "queued": "DELIVERY_STATUS_RECEIVED",
    "started": "DELIVERY_STATUS_PROCESSING",
    "completed": "DELIVERY_STATUS_PROCESSED",
}
"""The states of a prompt, and how the official browser client calls them."""


class EventStream(StreamingResponse):
    def __init__(
        self,
        take: Callable[[], Coroutine[Any, Any, list[bytes]]],
        close: Callable[[], None],
        stopped: asyncio.Event,
        cursor: int | None = None,
    ) -> None:
        """`take` waits for the next events, in parts; none ends the stream. `close` is called at its end.

        `stopped` is set when the server stops. `cursor`: the number after which the events begin. A client that has
        to connect again before the first one continues there.
        """
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._iterate(take, stopped), headers=headers, media_type="text/event-stream")
        self._close = close
        self._cursor = cursor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:  # not in `_iterate`, which never begins if the client is gone before
            self._close()

    async def _iterate(
        self, take: Callable[[], Coroutine[Any, Any, list[bytes]]], stopped: asyncio.Event
    ) -> AsyncIterator[bytes]:
        yield b": connected\n" + (b"" if self._cursor is None else b"id: %d\n" % self._cursor) + b"\n"
        stop, events = asyncio.create_task(stopped.wait()), asyncio.create_task(take())
        try:
            while not stopped.is_set():
                await asyncio.wait({stop, events}, timeout=COMMENT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not events.done():
                    yield b": idle\n\n"
                elif parts := events.result():
                    for part in parts:
                        yield part
                    events = asyncio.create_task(take())
                else:
                    return
        finally:
            stop.cancel()
            events.cancel()


Event = tuple[bytes, bytes, bytes]
"""What comes before a line, the line and what comes after it."""


def join_events(events: Iterable[Event]) -> list[bytes]:
    """Events as the parts of a stream. Long lines are not copied: other streams have the same ones."""
    parts: list[bytes] = []
    short: list[bytes] = []
    for head, line, tail in events:
        if len(line) <= PART_BYTES:
            short += (head, line, tail)
        else:
            parts += (b"".join((*short, head)), line)
            short = [tail]
    return [*parts, b"".join(short)] if short else parts


def format_line(numbered: Numbered) -> Event:
    number, line = numbered
    return (b"id: %d\ndata: " % number if number else b"data: "), line, b"\n\n"


def format_event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def format_client_event(numbered: Numbered) -> Event:
    """A line in the envelope of the official client. Replies have no number: they are not repeated."""
    number, line = numbered
    head = peek(line)
    event_id = msgspec.json.encode(str(head.uuid or f"line-{number}-{head.request_id or ''}"))
    sequence = b'"sequence_num":%d,' % number if number else b""
    begin = b'{"event_id":' + event_id + b"," + sequence + b'"source":"worker","payload":'
    start = (b"id: %d\n" % number if number else b"") + b"event: client_event\ndata: " + begin
    return start, line, b"}\n\n" + format_delivery(head)


def format_delivery(head: Head) -> bytes:
    """What has become of a prompt, for the `onDeliveryUpdate` of the official client."""
    status = DELIVERY.get(head.state or "")
    if head.type != "command_lifecycle" or status is None:
        return b""
    update = msgspec.json.encode({"event_id": head.command_uuid or "", "status": status})
    return b"event: delivery_update\ndata: " + update + b"\n\n"
