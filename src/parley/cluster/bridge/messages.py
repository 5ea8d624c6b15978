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
from uuid import uuid4

import msgspec

from parley.cluster.base import BusRequest, LogKey
from parley.cluster.cluster_secret import SEALED, BadSignature, ClusterSecret
from parley.gateway.security.access import Principal
from parley.protocol.base import Struct

WINDOW_BYTES = 1024 * 1024
"""How much a host sends on a stream before the gateway has passed it on."""
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

    stream: str = ""
    """Another one for each attempt."""
    command: str = msgspec.field(default_factory=lambda: uuid4().hex)
    """The same for each attempt: the host carries a command out once."""
    inbox: str = ""
    """Where the frames of the host go."""
    principal: Principal
    kind: str = "http"
    """`http` or `websocket`."""
    method: str = "GET"
    path: str
    query: bytes = b""
    headers: Headers = []
    scheme: str = "http"
    key: LogKey | None = None
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
decode_open = _opens.decode
decode_answer = _answers.decode
decode_frame = _frames.decode
decode_content = msgspec.msgpack.Decoder(FrameContent).decode


def decode_message(secret: ClusterSecret, request: BusRequest) -> BusFrame | Alive:
    """A message in an inbox. The receiver of its stream checks a frame. Raises BadSignature, MsgspecError."""
    is_sealed = request.data.startswith(SEALED)
    data = secret.unseal(request.subject, request.data) if is_sealed else request.data
    message: BusFrame | Alive = decode_frame(data)
    if secret and not is_sealed and isinstance(message, Alive):
        raise BadSignature("a sign of life does not have the signature of this cluster")
    return message


def make_stream_keys(secret: ClusterSecret, stream: str, nonce: bytes) -> tuple[bytes, bytes]:
    """What the gateway and the host sign the frames of a stream with. Empty without a secret of the cluster."""
    return secret.sign(f"gateway.{stream}", nonce), secret.sign(f"host.{stream}", nonce)


def make_mac(key: bytes, number: int, data: bytes, is_last: bool) -> bytes:
    if not key:
        return b""
    mac = hashlib.blake2b(b"%d.%d." % (number, is_last), key=key, digest_size=MAC_BYTES)
    mac.update(data)
    return mac.digest()


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
