"""What a gateway and a host say to each other on the bus.

A gateway opens a stream with a request (`OpenStream`) to the subject of a session or of a host, and gets `Accepted` or
`Declined` at once. After that, both ends send frames to the other's inbox. A frame has the number of its stream and its
own number, so that each end notices a lost one. `Alive` says once a second which streams an end has, and how many
frames it has sent on each.

With a secret of the cluster, all of it is signed. `Accepted` has a random number of the host, and each end signs its
frames with a key that is made of the secret, the stream and this number. The host does nothing before the first frame
of the gateway, so an `OpenStream` that was recorded and is sent again has no effect.

    a request       gateway: BodyPart*                   host: WholeReply, or ReplyHead and BodyPart*
    a WebSocket     gateway: ClientMessage*              host: AttachedAt, SessionLines, SocketText, Taken, SocketClosed
    both            gateway: Begin, Credit*, ClientGone         host: StreamEnded
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

import msgspec

from parley.cluster.base import Request, SessionKey
from parley.cluster.cluster_secret import SEALED, BadSignature, ClusterSecret
from parley.gateway.security.access import Principal
from parley.protocol.base import Struct

WINDOW_BYTES = 1024 * 1024
"""How much a host sends on a stream before the gateway has passed it on."""
ALIVE_SECONDS = 0.5
"""How often each end says which streams it has."""
SILENT_SECONDS = 3.0
"""An end that has not been heard for so long is dead."""
FRAME_MARGIN_BYTES = 4096
"""What a message on the bus has besides the data of its frame."""
MAC_BYTES = 16

LIVE = 0
"""Instead of the number of a line that is not stored."""
ANSWER = -1
"""Instead of the number of a line for this client alone."""
Headers = list[tuple[bytes, bytes]]


class OpenStream(Struct, frozen=True, kw_only=True):
    """A request, or a WebSocket. The principal is what the gateway has found out; headers say nothing about it."""

    stream: str
    """Another one for each attempt."""
    command: str
    """The same for each attempt: the host carries a command out once."""
    inbox: str
    """Where the frames of the host go."""
    principal: Principal
    kind: str
    """`http` or `websocket`."""
    method: str = "GET"
    path: str
    query: bytes = b""
    headers: Headers = []
    scheme: str = "http"
    key: SessionKey | None = None
    """The session; None if the request is about all sessions of the host."""
    new_session: str = ""
    """The id of the session that the request creates."""
    body: bytes = b""
    has_more: bool = False
    """Whether the rest of the body follows in frames."""


class Accepted(Struct, frozen=True, tag="accepted"):
    """The host has the request. `inbox`: where the frames of the gateway go."""

    host: str
    inbox: str
    nonce: bytes = b""
    """Never the same twice. Empty without a secret of the cluster."""


class Declined(Struct, frozen=True, tag="declined"):
    """The host does not serve the session; another one does, or will soon."""

    reason: str


class ReplyHead(Struct, frozen=True, tag="head"):
    """The start of a reply whose body follows."""

    status: int
    headers: Headers


class WholeReply(Struct, frozen=True, tag="reply"):
    """A whole reply."""

    status: int
    headers: Headers
    body: bytes = b""


class BodyPart(Struct, frozen=True, tag="body"):
    """A part of a body."""

    data: bytes
    has_more: bool


class AttachedAt(Struct, frozen=True, tag="attached"):
    """The client is connected to the session, and gets the lines after a number."""

    cursor: int


class SessionLines(Struct, frozen=True, tag="lines"):
    """Lines of a session for the client, with their numbers; those that are not stored have LIVE or ANSWER."""

    lines: list[tuple[int, bytes]]


class SocketText(Struct, frozen=True, tag="text"):
    """A message for the client of a WebSocket that is not a line of the session."""

    data: str


class ClientMessage(Struct, frozen=True, tag="message"):
    """A message of the client of a WebSocket."""

    data: bytes
    is_repeated: bool = False
    """Whether an earlier owner may have handled it."""


class Taken(Struct, frozen=True, tag="taken"):
    """The session has handled so many messages of the client, and what they changed is committed."""

    count: int


class SocketClosed(Struct, frozen=True, tag="closed"):
    """The session closes the WebSocket."""

    code: int
    reason: str


class Begin(Struct, frozen=True, tag="begin"):
    """The gateway has heard that the request was accepted. Only with a secret of the cluster."""


class ClientGone(Struct, frozen=True, tag="disconnect"):
    """The client is gone, or the gateway does not want more."""


class Credit(Struct, frozen=True, tag="credit"):
    """The gateway has passed on so many bytes."""

    count: int


class StreamEnded(Struct, frozen=True, tag="ended"):
    """The host ends a stream before its time, because it gives the session up, for example."""

    reason: str


FromHost = (
    ReplyHead | WholeReply | BodyPart | AttachedAt | SessionLines | SocketText | Taken | SocketClosed | StreamEnded
)
FromGateway = Begin | BodyPart | ClientMessage | ClientGone | Credit
FrameContent = FromHost | FromGateway


class BusFrame(Struct, frozen=True, tag="frame", array_like=True):
    stream: str
    number: int
    """1 for the first one of an end."""
    data: bytes
    """FrameContent, or a part of it."""
    is_last: bool
    """Whether the content ends with this part."""
    mac: bytes = b""
    """Shows that the other end of the stream has sent it. Empty without a secret of the cluster."""


class Alive(Struct, frozen=True, tag="alive", array_like=True):
    """`streams`: how many frames the sender has sent on each stream that it has with the receiver."""

    inbox: str
    """Of the sender."""
    streams: dict[str, int]


encode = msgspec.msgpack.Encoder().encode
_opens = msgspec.msgpack.Decoder(OpenStream)
_answers = msgspec.msgpack.Decoder(Accepted | Declined)
_frames = msgspec.msgpack.Decoder(BusFrame | Alive)
_contents = msgspec.msgpack.Decoder(FrameContent)
decode_open = _opens.decode
decode_answer = _answers.decode
decode_frame = _frames.decode


def decode_message(secret: ClusterSecret, request: Request) -> BusFrame | Alive:
    """A message in an inbox. The receiver of its stream checks a frame. Raises BadSignature, MsgspecError."""
    is_sealed = request.data.startswith(SEALED)
    data = secret.unseal(request.subject, request.data) if is_sealed else request.data
    message: BusFrame | Alive = decode_frame(data)
    if secret and not is_sealed and isinstance(message, Alive):
        raise BadSignature("a sign of life does not have the signature of this cluster")
    return message


class StreamKeys(Struct, frozen=True):
    """What the ends of a stream sign their frames with. Empty without a secret of the cluster."""

    gateway: bytes = b""
    host: bytes = b""


def make_stream_keys(secret: ClusterSecret, stream: str, nonce: bytes) -> StreamKeys:
    return StreamKeys(secret.sign(f"gateway.{stream}", nonce), secret.sign(f"host.{stream}", nonce))


def make_mac(key: bytes, number: int, data: bytes, is_last: bool) -> bytes:
    if not key:
        return b""
    mac = hashlib.blake2b(b"%d.%d." % (number, is_last), key=key, digest_size=MAC_BYTES)
    mac.update(data)
    return mac.digest()


class FrameSender:
    """Numbers the frames of one end of a stream."""

    def __init__(self, stream: str, max_bytes: int, key: bytes = b"") -> None:
        self.stream = stream
        self.key = key
        self.sent = 0
        self._max_bytes = max(1, max_bytes - FRAME_MARGIN_BYTES)

    def cut(self, content: FrameContent) -> Iterator[bytes]:
        """The messages for the bus that carry the content."""
        data = encode(content)
        for start in range(0, len(data), self._max_bytes):
            part = data[start : start + self._max_bytes]
            self.sent += 1
            is_last = start + len(part) == len(data)
            yield encode(BusFrame(self.stream, self.sent, part, is_last, make_mac(self.key, self.sent, part, is_last)))


class FrameReceiver:
    """Joins the frames of the other end of a stream."""

    def __init__(self, key: bytes = b"") -> None:
        self.key = key
        self.received = 0
        self._parts: list[bytes] = []

    def join(self, frame: BusFrame) -> FrameContent | None:
        """The content that a frame completes, if any. Raises LostFrame, BadSignature."""
        mac = make_mac(self.key, frame.number, frame.data, frame.is_last)
        if self.key and not hmac.compare_digest(frame.mac, mac):
            raise BadSignature(f"a frame of the stream {frame.stream} does not have the signature of its other end")
        if frame.number != self.received + 1:
            raise LostFrame(f"frame {self.received + 1} of a stream was lost on the bus")
        self.received += 1
        self._parts.append(frame.data)
        if not frame.is_last:
            return None
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        content: FrameContent = _contents.decode(data)
        return content


def is_final(content: FrameContent) -> bool:
    """Whether nothing more comes from the host."""
    return isinstance(content, WholeReply | SocketClosed) or (isinstance(content, BodyPart) and not content.has_more)


def size_of(content: FrameContent) -> int:
    """How much of the window a frame of the host takes."""
    match content:
        case BodyPart():
            return len(content.data)
        case SessionLines():
            return sum([len(line) for _, line in content.lines])
        case SocketText():
            return len(content.data)
    return 0


class LostFrame(Exception):
    """The bus has lost a message, so the stream cannot be continued."""


class Watched(Protocol):
    """A stream, as its end knows it."""

    stream: str
    peer: str
    """The inbox of the other end."""

    @property
    def received(self) -> int:
        """How many frames have come."""


Stream = TypeVar("Stream", bound=Watched)


class _Seen(Struct):
    opened_at: float
    is_listed: bool = False
    """Whether the other end has named the stream. A message that was sent before it was opened does not."""


class Peers:
    """The other ends of all streams of a process."""

    def __init__(self) -> None:
        self._heard_at: dict[str, float] = {}
        self._seen: dict[str, _Seen] = {}

    def add(self, stream: Watched) -> None:
        now = time.monotonic()
        self._heard_at[stream.peer] = now
        self._seen[stream.stream] = _Seen(now)

    def forget(self, stream: Watched) -> None:
        self._seen.pop(stream.stream, None)

    def hear(self, alive: Alive, streams: Iterable[Stream]) -> list[Stream]:
        """Take note of a sign of life; returns the streams that the sender does not have, or that have lost frames."""
        now = time.monotonic()
        self._heard_at[alive.inbox] = now
        lost = []
        for stream in streams:
            seen = self._seen.get(stream.stream)
            if stream.peer != alive.inbox or seen is None:
                continue
            sent = alive.streams.get(stream.stream)
            if sent is not None:
                seen.is_listed = True
            if (sent is None and (seen.is_listed or stream.received or now - seen.opened_at > SILENT_SECONDS)) or (
                sent is not None and sent > stream.received
            ):
                lost.append(stream)
        return lost

    def find_silent(self, streams: Iterable[Stream]) -> list[Stream]:
        """The streams whose other end has not been heard for too long."""
        oldest = time.monotonic() - SILENT_SECONDS
        silent = {peer for peer, at in self._heard_at.items() if at < oldest}
        lost = [stream for stream in streams if stream.peer in silent]
        for peer in silent:
            del self._heard_at[peer]
        return lost


def list_sent(streams: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, int]]:
    """By peer: how many frames were sent on each stream. `streams`: peer, stream, count."""
    found: dict[str, dict[str, int]] = {}
    for peer, stream, count in streams:
        found.setdefault(peer, {})[stream] = count
    return found
