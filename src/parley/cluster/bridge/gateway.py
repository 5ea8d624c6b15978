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

from parley.cluster.base import Bus, ClusterError, Request, Subscription
from parley.cluster.bridge.messages import (
    ALIVE_SECONDS,
    FRAME_MARGIN_BYTES,
    WINDOW_BYTES,
    Accepted,
    Alive,
    Begin,
    BodyPart,
    BusFrame,
    ClientGone,
    Credit,
    Declined,
    FrameReceiver,
    FrameSender,
    FromGateway,
    FromHost,
    LostFrame,
    OpenStream,
    Peers,
    StreamEnded,
    decode_answer,
    decode_message,
    encode,
    is_final,
    list_sent,
    make_stream_keys,
    size_of,
)
from parley.cluster.cluster_secret import NO_SECRET, BadSignature, ClusterSecret
from parley.cluster.subjects import owner_subject, read_shard

ACCEPT_SECONDS = 2.0
"""How long a host may take to say that it has a request."""
TAKEN_OVER = "another host has taken the session over"
UNSIGNED = (
    "the answer of the host is not signed with the secret of this gateway; do both have the same --cluster-secret?"
)


class NotServed(ClusterError):
    """The host that was asked does not serve the session, at least not yet."""


class StreamLost(ClusterError):
    """The host is gone, has given the session up, or a message was lost: dial again."""


class GatewayStream:
    """A stream, as the gateway sees it."""

    def __init__(self, bus: Bus, stream: str, shard: int | None, secret: ClusterSecret) -> None:
        self.stream = stream
        self.shard = shard
        self.peer = ""
        self.dialing = asyncio.timeout(None)
        """Ends when another host than the one that was asked has the shard."""
        self._bus = bus
        self._secret = secret
        keys = make_stream_keys(secret, stream, b"")  # with a secret, those of no host: the right ones follow
        self._sender = FrameSender(stream, bus.max_payload_bytes, keys.gateway)
        self._receiver = FrameReceiver(keys.host)
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
    def received(self) -> int:
        return self._receiver.received

    @property
    def sent(self) -> int:
        return self._sender.sent

    async def begin(self, accepted: Accepted) -> None:
        """Raises ClusterError."""
        self.peer = accepted.inbox
        if self._secret:
            keys = make_stream_keys(self._secret, self.stream, accepted.nonce)
            self._sender.key, self._receiver.key = keys.gateway, keys.host
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
            for data in self._sender.cut(content):
                await self._bus.publish(self.peer, data)

    async def credit(self, content: FromHost) -> None:
        """The content was passed on: the host may send more. Raises ClusterError."""
        self._passed_on += size_of(content)
        if self._passed_on >= WINDOW_BYTES // 2:
            count, self._passed_on = self._passed_on, 0
            await self.send(Credit(count))

    def on_frame(self, frame: BusFrame) -> None:
        """Raises BadSignature if another sender made it."""
        try:
            content = self._receiver.join(frame)
        except (LostFrame, msgspec.MsgspecError) as exc:
            self.lose(str(exc))
        else:
            if isinstance(content, StreamEnded):
                self.lose(content.reason)
            elif content is not None and not self.is_lost:
                self.is_done = is_final(content)
                self._waiting.put_nowait(content)  # type: ignore[arg-type]  # the host sends nothing else

    def lose(self, reason: str, *, is_host_lost: bool = False) -> None:
        if not (self.is_lost or self.is_done):
            self.is_lost, self.is_host_lost = True, is_host_lost
            self._waiting.put_nowait(StreamLost(reason))


class Dialer:
    """All streams of a gateway. They share one inbox."""

    def __init__(self, bus: Bus, prefix: str, secret: ClusterSecret = NO_SECRET) -> None:
        self._bus = bus
        self._prefix = prefix
        self._secret = secret
        self._inbox = bus.new_inbox()
        self._streams: dict[str, GatewayStream] = {}
        self._peers = Peers()
        self._subscriptions: list[Subscription] = []
        self._upkeep: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises ClusterError."""
        for subject, handler in (
            (self._inbox, self._on_message),
            (owner_subject(self._prefix, "*"), self._on_owner),
        ):
            self._subscriptions.append(await self._bus.subscribe(subject, handler))
        self._upkeep = asyncio.create_task(self._keep_alive())

    async def close(self) -> None:
        if self._upkeep is not None:
            self._upkeep.cancel()
        for subscription in self._subscriptions:
            with suppress(ClusterError):
                await subscription.unsubscribe()
        for stream in self._streams.values():
            stream.lose("the gateway stops")

    async def dial(self, subject: str, opened: OpenStream) -> GatewayStream:
        """Open a stream. Raises NoResponders, NotServed, ClusterError."""
        stream = GatewayStream(self._bus, uuid4().hex, read_shard(subject), self._secret)
        most, body = self._bus.max_payload_bytes // 2, opened.body
        opened = msgspec.structs.replace(
            opened, stream=stream.stream, inbox=self._inbox, body=body[:most], has_more=len(body) > most
        )
        self._streams[stream.stream] = stream
        try:
            async with stream.dialing:
                message = self._secret.seal(subject, encode(opened))
                reply = await self._bus.request(subject, message, ACCEPT_SECONDS)
            answer = decode_answer(self._secret.unseal(stream.stream, reply))
            if isinstance(answer, Declined):
                raise NotServed(answer.reason)
            await stream.begin(answer)
            self._peers.add(stream)
            part = most - FRAME_MARGIN_BYTES
            for start in range(most, len(body), part):
                await stream.send(BodyPart(body[start : start + part], start + part < len(body)))
        except TimeoutError:
            self._forget(stream)
            raise NotServed(TAKEN_OVER) from None
        except (BadSignature, msgspec.MsgspecError):
            self._forget(stream)
            raise NotServed(UNSIGNED) from None
        except BaseException:
            self._forget(stream)
            raise
        return stream

    async def hang_up(self, stream: GatewayStream) -> None:
        """Nothing more is wanted of a stream."""
        self._forget(stream)
        if stream.peer and not (stream.is_lost or stream.is_done):
            with suppress(ClusterError):
                await stream.send(ClientGone())

    def _forget(self, stream: GatewayStream) -> None:
        self._streams.pop(stream.stream, None)
        self._peers.forget(stream)

    async def _on_message(self, request: Request) -> None:
        message = decode_message(self._secret, request)
        if isinstance(message, BusFrame):
            stream = self._streams.get(message.stream)
            if stream is not None:
                stream.on_frame(message)
            return
        for lost in self._peers.hear(message, list(self._streams.values())):
            lost.lose("the host has ended the stream, or a message on the bus was lost")

    async def _on_owner(self, request: Request) -> None:
        """A host has taken a shard: what others were asked about it, they do not answer any more."""
        inbox = self._secret.unseal(request.subject, request.data).decode()
        shard = int(request.subject.rpartition(".")[2])
        for stream in [one for one in self._streams.values() if one.shard == shard and one.peer != inbox]:
            if stream.peer:
                stream.lose(TAKEN_OVER, is_host_lost=True)
            elif not stream.dialing.expired():
                stream.dialing.reschedule(asyncio.get_running_loop().time())

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            open_streams = [each for each in self._streams.values() if each.peer and not each.is_lost]
            for silent in self._peers.find_silent(open_streams):
                silent.lose("the host of the session does not answer any more", is_host_lost=True)
            sent = list_sent((each.peer, each.stream, each.sent) for each in open_streams)
            for peer, streams in sent.items():
                with suppress(ClusterError):
                    await self._bus.publish(peer, self._secret.seal(peer, encode(Alive(self._inbox, streams))))
