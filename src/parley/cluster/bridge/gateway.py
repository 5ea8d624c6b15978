"""The gateway's end of the bridge: open streams to hosts.

dialer = Dialer(bus, prefix, secret)
await dialer.start()
stream = await dialer.dial(subject, opened)     raises NoResponders, NotServed, ClusterError
content = await stream.receive()                raises StreamLost when the host is gone or gave the session up
stream.credit(content)                          after it was passed on

A host that takes a shard says so. Gateways then leave the host that had it, which may be frozen, at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import uuid4

import msgspec

from parley.cluster.base import Bus, BusRequest, ClusterError
from parley.cluster.bridge.messages import (
    FRAME_MARGIN_BYTES,
    WINDOW_BYTES,
    Accepted,
    Begin,
    BodyPart,
    ClientGone,
    Credit,
    Declined,
    FrameContent,
    FromGateway,
    FromHost,
    OpenStream,
    StreamEnded,
    decode_answer,
    encode,
    is_final,
    make_stream_keys,
    size_of,
)
from parley.cluster.bridge.streams import BusStream, StreamEnds
from parley.cluster.cluster_secret import NO_SECRET, BadSignature, ClusterSecret
from parley.cluster.subjects import owner_subject, read_shard

ACCEPT_SECONDS = 2.0
"""How long a host may take to say that it has a request."""
SILENT = "the host of the session does not answer any more"
TAKEN_OVER = "another host has taken the session over"
UNSIGNED = (
    "the answer of the host is not signed with the secret of this gateway; do both have the same --cluster-secret?"
)


class NotServed(ClusterError):
    """The host that was asked does not serve the session, at least not yet."""


class StreamLost(ClusterError):
    """The host is gone, has given the session up, or a message was lost: dial again."""


class GatewayStream(BusStream):
    """A stream, as the gateway sees it."""

    def __init__(self, bus: Bus, stream: str, shard: int | None, secret: ClusterSecret) -> None:
        super().__init__(bus, stream)
        self.shard = shard
        self.dialing = asyncio.timeout(None)
        """Ends when another host than the one that was asked has the shard."""
        self._secret = secret
        self._use_keys(b"")  # with a secret, those of no host: the right ones follow
        self._waiting: asyncio.Queue[FromHost | StreamLost] = asyncio.Queue()
        self._passed_on = 0
        self._lock = asyncio.Lock()
        self.is_repeated = False
        """Whether a host may have got the request before, and did not say so."""
        self.is_lost = False
        self.is_host_lost = False
        """Whether the host has gone without a word, instead of giving the session up."""
        self.is_done = False
        """Whether all has come."""

    @property
    def is_open(self) -> bool:
        return bool(self.peer) and not self.is_lost

    def _use_keys(self, nonce: bytes) -> None:
        self.send_key, self.receive_key = make_stream_keys(self._secret, self.stream, nonce)

    async def begin(self, accepted: Accepted) -> None:
        """Raises ClusterError."""
        self.peer = accepted.inbox
        if self._secret:
            self._use_keys(accepted.nonce)
            await self.send(Begin())

    async def receive(self) -> FromHost:
        """The next content. Raises StreamLost."""
        found = await self._waiting.get()
        if isinstance(found, StreamLost):
            self._waiting.put_nowait(found)
            raise found
        return found

    async def send(self, content: FromGateway) -> None:
        """Raises ClusterError."""
        async with self._lock:  # the parts of one content stay together
            await self.publish(content)

    async def credit(self, content: FromHost) -> None:
        """The content was passed on: the host may send more. Raises ClusterError."""
        self._passed_on += size_of(content)
        if self._passed_on >= WINDOW_BYTES // 2:
            count, self._passed_on = self._passed_on, 0
            await self.send(Credit(count))

    def take(self, content: FrameContent) -> None:
        if isinstance(content, StreamEnded):
            self.lose(content.reason)
        elif not self.is_lost:
            self.is_done = is_final(content)
            self._waiting.put_nowait(content)  # type: ignore[arg-type]  # the host sends nothing else

    def lose(self, reason: str, *, is_silent: bool = False) -> None:
        if not (self.is_lost or self.is_done):
            self.is_lost, self.is_host_lost = True, is_silent
            self._waiting.put_nowait(StreamLost(reason))


class Dialer:
    """All streams of a gateway. They share one inbox."""

    def __init__(self, bus: Bus, prefix: str, secret: ClusterSecret = NO_SECRET) -> None:
        self._bus = bus
        self._prefix = prefix
        self._secret = secret
        self._ends: StreamEnds[GatewayStream] = StreamEnds(bus, secret, SILENT)

    async def start(self) -> None:
        """Raises ClusterError."""
        await self._ends.start({owner_subject(self._prefix, "*"): self._on_owner})

    async def close(self) -> None:
        await self._ends.close("the gateway stops")

    async def dial(self, subject: str, opened: OpenStream) -> GatewayStream:
        """Open a stream. Raises NoResponders, NotServed, ClusterError."""
        stream = GatewayStream(self._bus, uuid4().hex, read_shard(subject), self._secret)
        most, body = self._bus.max_payload_bytes // 2, opened.body
        opened = msgspec.structs.replace(
            opened, stream=stream.stream, inbox=self._ends.inbox, body=body[:most], has_more=len(body) > most
        )
        self._ends.streams[stream.stream] = stream
        try:
            async with stream.dialing:
                message = self._secret.seal(subject, encode(opened))
                reply = await self._bus.request(subject, message, ACCEPT_SECONDS)
            answer = decode_answer(self._secret.unseal(stream.stream, reply))
            if isinstance(answer, Declined):
                raise NotServed(answer.reason)
            await stream.begin(answer)
            self._ends.watch(stream)
            part = most - FRAME_MARGIN_BYTES
            for start in range(most, len(body), part):
                await stream.send(BodyPart(body[start : start + part], start + part < len(body)))
        except TimeoutError:
            self._ends.forget(stream)
            raise NotServed(TAKEN_OVER) from None
        except (BadSignature, msgspec.MsgspecError):
            self._ends.forget(stream)
            raise NotServed(UNSIGNED) from None
        except BaseException:
            self._ends.forget(stream)
            raise
        return stream

    async def hang_up(self, stream: GatewayStream) -> None:
        """Nothing more is wanted of a stream."""
        self._ends.forget(stream)
        if stream.peer and not (stream.is_lost or stream.is_done):
            with suppress(ClusterError):
                await stream.send(ClientGone())

    async def _on_owner(self, request: BusRequest) -> None:
        """A host has taken a shard: what others were asked about it, they do not answer any more."""
        inbox = self._secret.unseal(request.subject, request.data).decode()
        shard = int(request.subject.rpartition(".")[2])
        for stream in [one for one in self._ends.streams.values() if one.shard == shard and one.peer != inbox]:
            if stream.peer:
                stream.lose(TAKEN_OVER, is_silent=True)
            elif not stream.dialing.expired():
                stream.dialing.reschedule(asyncio.get_running_loop().time())
