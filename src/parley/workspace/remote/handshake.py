"""How both ends prove that they have the token, without sending it.

    client  Greeting   version, nonce, which session it wants
    server  Challenge  version, nonce
    client  Proof      HMAC of the token over both nonces and the greeting
    server  Welcome    HMAC of the token over the same with another label, and what the client has to know

The client proves itself first, so that a stranger cannot collect material to guess the token. The proof covers the
whole greeting, so that it cannot be used for another session. What follows is neither encrypted nor signed: on a
network that others can change, use TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.workspace.remote import wire
from parley.workspace.remote.wire import BrokenFrame, Channel

MAX_HELLO_BYTES = 16 * 1024
LEAST_TOKEN_CHARS = 16
NONCE_BYTES = 32


class Greeting(Struct, frozen=True, kw_only=True, tag="greeting"):
    version: int
    build: str
    """The version of Parley, for error messages."""
    nonce: bytes
    session: str
    engine: str
    """A random name of this engine. The same engine finds its running commands again after a lost connection."""
    epoch: int = 0
    """Of the owner of the session in a cluster. A higher one takes the session over."""
    folder: str = ""
    """The working directory; empty for the root."""
    keeps_history: bool = True
    """Whether file checkpoints are kept after the session."""
    watches_tree: bool = False
    """Whether changes made by commands can be rewound, too."""


class Challenge(Struct, frozen=True, kw_only=True, tag="challenge"):
    version: int
    nonce: bytes


class Proof(Struct, frozen=True, kw_only=True, tag="proof"):
    proof: bytes


class Welcome(Struct, frozen=True, kw_only=True, tag="welcome"):
    proof: bytes
    root: str
    cwd: str
    home: str
    platform: str
    uid: int
    environment: dict[str, bytes]
    """For commands; none of the server's own secrets."""
    own_folder: str
    """The folder for results, task output and the plan of this session."""
    is_known: bool
    """Whether the server still has the calls and commands of this engine."""
    grace_seconds: float
    build: str


class Rejected(Struct, frozen=True, kw_only=True, tag="rejected"):
    reason: str
    is_final: bool = True
    """Whether another attempt is useless."""


Hello = Greeting | Challenge | Proof | Welcome | Rejected


class RejectedByServer(Exception):
    """The server refuses the connection. The text says why."""


async def send_hello(channel: Channel, hello: Hello) -> None:
    await channel.send(wire.HELLO, 0, wire.encode_body(hello))


async def receive_hello(channel: Channel) -> Hello:
    """Raises BrokenFrame, ConnectionError."""
    frame = await channel.receive(MAX_HELLO_BYTES)
    if frame.kind != wire.HELLO:
        raise BrokenFrame("the handshake was expected")
    hello: Hello = wire.decode_body(frame.body, Hello)
    return hello


def new_nonce() -> bytes:
    return os.urandom(NONCE_BYTES)


def prove(token: str, who: str, greeting: Greeting, nonce: bytes) -> bytes:
    said = msgspec.msgpack.encode([who, greeting, nonce])
    return hmac.digest(token.encode(), said, hashlib.sha256)


def is_proof(given: bytes, token: str, who: str, greeting: Greeting, nonce: bytes) -> bool:
    return hmac.compare_digest(given, prove(token, who, greeting, nonce))


async def greet(channel: Channel, greeting: Greeting, token: str) -> Welcome:
    """The client's side. Raises RejectedByServer, BrokenFrame, ConnectionError."""
    await send_hello(channel, greeting)
    challenge = await receive_hello(channel)
    if isinstance(challenge, Rejected):
        raise RejectedByServer(challenge.reason)
    if not isinstance(challenge, Challenge):
        raise BrokenFrame("a challenge was expected")
    await send_hello(channel, Proof(proof=prove(token, "client", greeting, challenge.nonce)))
    welcome = await receive_hello(channel)
    if isinstance(welcome, Rejected):
        raise RejectedByServer(welcome.reason)
    if not isinstance(welcome, Welcome):
        raise BrokenFrame("a welcome was expected")
    if not is_proof(welcome.proof, token, "server", greeting, challenge.nonce):
        raise RejectedByServer("the server does not have the token: it may not be the one that you mean")
    return welcome


def check_version(greeting: Greeting, build: str) -> Rejected | None:
    if greeting.version == wire.WIRE_VERSION:
        return None
    return Rejected(
        reason=f"the engine (Parley {greeting.build}) speaks version {greeting.version} of the workspace protocol, "
        f"and the workspace server (Parley {build}) version {wire.WIRE_VERSION}; install the same version on both"
    )


def read_token_file(path: str) -> str:
    """Raises UsageError, also if others can read the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        raise UsageError(f"the token file {path} cannot be read: {exc.strerror}") from None
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"the token file {path} is not a regular file")
        if status.st_mode & 0o077:
            raise UsageError(f"the token file {path} can be read by others; run: chmod 600 {path}")
        return check_token(file.read(10_000).strip(), path)


def check_token(token: str, source: str) -> str:
    """Raises UsageError."""
    if len(token) < LEAST_TOKEN_CHARS:
        raise UsageError(f"the token in {source} is too short: at least {LEAST_TOKEN_CHARS} characters")
    return token
