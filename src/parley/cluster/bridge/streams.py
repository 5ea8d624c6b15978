"""Streams on the bus, as both of their ends have them: frames in order, signatures, and who is still there.

class HostStream(BusStream)      says what it does with what has come (`take`), and when it is lost (`lose`)
ends = StreamEnds(bus, secret, "the gateway does not answer any more")
await ends.start({subject: handler})
ends.watch(stream)               from now on, its other end has to say that it has it
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

from parley.cluster.base import Bus, BusRequest, ClusterError, Handler, Unsubscribe
from parley.cluster.bridge.messages import (
    FRAME_MARGIN_BYTES,
    Alive,
    BusFrame,
    FrameContent,
    decode_content,
    decode_message,
    encode,
    make_mac,
)
from parley.cluster.cluster_secret import BadSignature, ClusterSecret

ALIVE_SECONDS = 0.5
"""How often each end says which streams it has."""
SILENT_SECONDS = 3.0
"""An end that has not been heard for so long is dead."""


class BusStream:
    """One end of a stream."""

    def __init__(self, bus: Bus, stream: str, peer: str = "") -> None:
        self.stream = stream
        self.peer = peer
        """The inbox of the other end."""
        self.sent = 0
        """How many frames were sent."""
        self.received = 0
        """How many have come."""
        self.send_key = self.receive_key = b""
        """What the frames of each end are signed with. Empty without a secret of the cluster."""
        self.opened_at: float | None = None
        """When its other end began to be watched."""
        self.is_listed = False
        """Whether the other end has named the stream. A message that was sent before it was opened does not."""
        self._bus = bus
        self._parts: list[bytes] = []

    def take(self, content: FrameContent) -> None:
        """Something of the other end has come."""
        raise NotImplementedError

    def lose(self, reason: str, *, is_silent: bool = False) -> None:
        """The stream cannot be continued. `is_silent`: the other end has gone without a word."""
        raise NotImplementedError

    @property
    def is_open(self) -> bool:
        """Whether the other end is told that the stream is here."""
        return True

    def cut(self, content: FrameContent) -> Iterator[bytes]:
        """The messages for the bus that carry the content."""
        data, most = encode(content), max(1, self._bus.max_payload_bytes - FRAME_MARGIN_BYTES)
        for start in range(0, len(data), most):
            part, is_last = data[start : start + most], start + most >= len(data)
            self.sent += 1
            mac = make_mac(self.send_key, self.sent, part, is_last)
            yield encode(BusFrame(self.stream, self.sent, part, is_last, mac))

    async def publish(self, content: FrameContent) -> None:
        """Raises ClusterError."""
        for data in self.cut(content):
            await self._bus.publish(self.peer, data)

    def on_frame(self, frame: BusFrame) -> None:
        """Raises BadSignature if another sender made it."""
        mac = make_mac(self.receive_key, frame.number, frame.data, frame.is_last)
        if self.receive_key and not hmac.compare_digest(frame.mac, mac):
            raise BadSignature(f"a frame of the stream {frame.stream} does not have the signature of its other end")
        if frame.number != self.received + 1:
            self.lose(f"frame {self.received + 1} of a stream was lost on the bus")
            return
        self.received += 1
        self._parts.append(frame.data)
        if frame.is_last:
            data, self._parts = b"".join(self._parts), []
            try:
                content = decode_content(data)
            except msgspec.MsgspecError as exc:
                self.lose(str(exc))
            else:
                self.take(content)

    def is_missed_by(self, alive: Alive, now: float) -> bool:
        """Whether a sign of life of the other end shows that it does not have the stream, or that frames were lost."""
        if self.peer != alive.inbox or self.opened_at is None:
            return False
        sent = alive.streams.get(self.stream)
        if sent is not None:
            self.is_listed = True
            return sent > self.received
        return self.is_listed or self.received > 0 or now - self.opened_at > SILENT_SECONDS


Stream = TypeVar("Stream", bound=BusStream)


class StreamEnds(Generic[Stream]):
    """The ends of all streams of a process. They share one inbox."""

    def __init__(self, bus: Bus, secret: ClusterSecret, silent: str) -> None:
        """`silent`: what a stream is told whose other end is not heard any more."""
        self.inbox = bus.new_inbox()
        self.streams: dict[str, Stream] = {}
        self._bus = bus
        self._secret = secret
        self._silent = silent
        self._heard_at: dict[str, float] = {}
        """When each other process was heard, by its inbox."""
        self._subscriptions: list[Unsubscribe] = []
        self._upkeep: asyncio.Task[None] | None = None

    async def start(self, handlers: Mapping[str, Handler]) -> None:
        """Listen, also to further subjects. Raises ClusterError."""
        for subject, handler in {self.inbox: self._on_message, **handlers}.items():
            self._subscriptions.append(await self._bus.subscribe(subject, handler))
        self._upkeep = asyncio.create_task(self._keep_alive())

    async def close(self, reason: str) -> None:
        if self._upkeep is not None:
            self._upkeep.cancel()
        for unsubscribe in self._subscriptions:
            with suppress(ClusterError):
                await unsubscribe()
        for stream in list(self.streams.values()):
            stream.lose(reason)

    def watch(self, stream: Stream) -> None:
        stream.opened_at = self._heard_at[stream.peer] = time.monotonic()

    def forget(self, stream: Stream) -> None:
        self.streams.pop(stream.stream, None)

    async def _on_message(self, request: BusRequest) -> None:
        message = decode_message(self._secret, request)
        if isinstance(message, Alive):
            self.hear(message)
        elif (stream := self.streams.get(message.stream)) is not None:
            stream.on_frame(message)

    def hear(self, alive: Alive) -> None:
        """Take note of a sign of life."""
        now = self._heard_at[alive.inbox] = time.monotonic()
        for stream in list(self.streams.values()):
            if stream.is_missed_by(alive, now):
                stream.lose("the other end does not have the stream any more, or a message on the bus was lost")

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            oldest = time.monotonic() - SILENT_SECONDS
            silent = {peer for peer, at in self._heard_at.items() if at < oldest}
            for peer in silent:
                del self._heard_at[peer]
            sent: dict[str, dict[str, int]] = {}
            for stream in list(self.streams.values()):
                if stream.is_open and stream.peer in silent:
                    stream.lose(self._silent, is_silent=True)
                if stream.is_open:
                    sent.setdefault(stream.peer, {})[stream.stream] = stream.sent
            for peer, streams in sent.items():
                with suppress(ClusterError):
                    await self._bus.publish(peer, self._secret.seal(peer, encode(Alive(self.inbox, streams))))
