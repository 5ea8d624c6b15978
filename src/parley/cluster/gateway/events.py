"""Server-sent events of a session that survive the death and the move of its owner.

The events of a session have the numbers of its lines as ids. When the stream to the owner is lost, the next owner is
asked for those after the last one that was passed on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response, StreamingResponse

from parley.cluster.bridge.gateway import GatewayStream, StreamLost
from parley.cluster.bridge.messages import BodyPart, OpenStream, ReplyHead, WholeReply
from parley.cluster.gateway.router import FailedHosts, Pauses, Router
from parley.gateway.refusal import Refusal

LAST_EVENT = b"last-event-id"
OK = 200


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
