"""The frames between an engine and a workspace server, and the proof that both have the token.

A frame is a length (four bytes, big-endian) and a msgpack array `[kind, id, more, body]`. A message that is longer than
a fragment is sent as several frames of the same kind and id, all but the last with `more`, so that a large file does
not delay the other calls. Both ends send a ping while they have nothing else to say. An end that hears nothing for
`SILENCE_SECONDS`, or whose peer does not take what it sends, closes the connection: no wait is endless.

The handshake does not send the token:

    client  Greeting   version, nonce, which session it wants
    server  ServerChallenge  version, nonce
    client  Proof      HMAC of the token over both nonces and the greeting
    server  Welcome    HMAC of the token over the same with another label, and what the client has to know

The client proves itself first, so that a stranger cannot collect material to guess the token. The proof covers the
whole greeting, so that it cannot be used for another session. What follows is neither encrypted nor signed: on a
network that others can change, use TLS.

See also: what an engine can ask for (calls.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import stat
import struct
from collections.abc import Coroutine
from typing import Any, Literal

import msgspec

from parley.errors import UsageError, explain_os_errors
from parley.protocol.base import Struct

WIRE_VERSION = 2
FRAGMENT_BYTES = 256 * 1024
MAX_FRAME_BYTES = FRAGMENT_BYTES + 64
MAX_MESSAGE_BYTES = (1 << 30) + (1 << 20)
"""As much as the largest file that is read as a whole (local.py)."""
MAX_PARTIAL_MESSAGES = 64
"""Messages of which only a part has arrived."""
PING_SECONDS = 5.0
SILENCE_SECONDS = 20.0
LENGTH = struct.Struct("!I")
OFFSET = struct.Struct("!BQ")
"""The stream of a command (1 stdout, 2 stderr) and a position in it."""

HELLO, REQUEST, REPLY, FAILURE, CANCEL, OUTPUT, TAKEN, WAITING, PING = range(9)
"""HELLO: the handshake. OUTPUT: output of a command. TAKEN: how much of it was taken, so that more may be sent.
WAITING: the calls whose results an engine still waits for after it has dialled again."""
MAX_HELLO_BYTES = 16 * 1024
LEAST_TOKEN_CHARS = 16
NONCE_BYTES = 32


class WireFrame(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kind: int
    id: int
    more: bool
    body: bytes


class BrokenFrame(Exception):
    """The peer does not speak our protocol. The text says what is wrong."""


_tasks: set[asyncio.Task[object]] = set()
"""Keeps the tasks of `spawn` alive."""
encode_body = msgspec.msgpack.Encoder().encode
_decode_frame = msgspec.msgpack.Decoder(WireFrame).decode


def decode_body(body: bytes, type: Any) -> Any:
    """Raises BrokenFrame."""
    try:
        return msgspec.msgpack.decode(body, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as exc:
        raise BrokenFrame(f"a message is not valid: {exc}") from None


def spawn(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, object]) -> None:
    """Run something on a loop to its end. No one waits for it."""
    task = loop.create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


class WorkspaceChannel:
    """One connection. Raises BrokenFrame or ConnectionError when it is no longer usable."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._partial: dict[tuple[int, int], bytearray] = {}
        self._partial_bytes = 0
        self._pinger: asyncio.Task[None] | None = None

    async def receive(self, max_bytes: int = MAX_FRAME_BYTES) -> WireFrame:
        """The next whole message; pings are skipped."""
        while True:
            frame = await self._receive_frame(max_bytes)
            if frame.kind == PING:
                continue
            key = frame.kind, frame.id
            if not frame.more and key not in self._partial:
                return frame
            if (whole := self._join(key, frame)) is not None:
                return whole

    async def _receive_frame(self, max_bytes: int) -> WireFrame:
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                [size] = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                if size > max_bytes:
                    raise BrokenFrame(f"a frame of {size} bytes is too long: at most {max_bytes}")
                data = await self._reader.readexactly(size)
        except TimeoutError:
            raise ConnectionError(f"nothing was received for {SILENCE_SECONDS:.0f} s") from None
        except asyncio.IncompleteReadError as exc:
            text = "the connection was closed in the middle of a frame" if exc.partial else "the connection was closed"
            raise ConnectionError(text) from None
        except OSError as exc:
            raise ConnectionError(exc.strerror or str(exc)) from None
        try:
            return _decode_frame(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as exc:
            raise BrokenFrame(f"a frame is not valid: {exc}") from None

    def _join(self, key: tuple[int, int], frame: WireFrame) -> WireFrame | None:
        if key not in self._partial and len(self._partial) >= MAX_PARTIAL_MESSAGES:
            raise BrokenFrame(f"more than {MAX_PARTIAL_MESSAGES} messages are incomplete")
        parts = self._partial.setdefault(key, bytearray())
        parts += frame.body
        self._partial_bytes += len(frame.body)
        if self._partial_bytes > MAX_MESSAGE_BYTES:
            raise BrokenFrame(f"a message is longer than {MAX_MESSAGE_BYTES} bytes")
        if frame.more:
            return None
        del self._partial[key]
        self._partial_bytes -= len(parts)
        return WireFrame(frame.kind, frame.id, False, bytes(parts))

    async def send(self, kind: int, id: int, body: bytes = b"") -> None:
        """Send a message. A long one leaves room for others between its fragments."""
        at = 0
        while True:
            part, at = body[at : at + FRAGMENT_BYTES], at + FRAGMENT_BYTES
            data = encode_body(WireFrame(kind, id, at < len(body), part))
            try:
                self._writer.write(LENGTH.pack(len(data)) + data)
                async with asyncio.timeout(SILENCE_SECONDS):
                    await self._writer.drain()
            except TimeoutError:
                self.close()
                raise ConnectionError(f"the peer took nothing for {SILENCE_SECONDS:.0f} s") from None
            except (OSError, RuntimeError) as exc:
                raise ConnectionError(str(exc)) from None
            if at >= len(body):
                return

    def keep_alive(self) -> None:
        """Send pings until the connection is closed."""
        self._pinger = asyncio.create_task(self._ping())

    async def _ping(self) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await asyncio.sleep(PING_SECONDS)
                await self.send(PING, 0)

    def close(self) -> None:
        if self._pinger is not None:
            self._pinger.cancel()
        # Not `close`: that waits for a peer that takes nothing.
        transport = self._writer.transport
        if transport.get_write_buffer_size() > 0:
            asyncio.get_running_loop().call_later(1.0, transport.abort)
        transport.close()


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


class ServerChallenge(Struct, frozen=True, kw_only=True, tag="challenge"):
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


Hello = Greeting | ServerChallenge | Proof | Welcome | Rejected


class RejectedByServer(Exception):
    """The server refuses the connection. The text says why."""


async def send_hello(channel: WorkspaceChannel, hello: Hello) -> None:
    await channel.send(HELLO, 0, encode_body(hello))


async def receive_hello(channel: WorkspaceChannel) -> Hello:
    """Raises BrokenFrame, ConnectionError."""
    frame = await channel.receive(MAX_HELLO_BYTES)
    if frame.kind != HELLO:
        raise BrokenFrame("the handshake was expected")
    hello: Hello = decode_body(frame.body, Hello)
    return hello


def new_nonce() -> bytes:
    return os.urandom(NONCE_BYTES)


def prove(token: str, who: str, greeting: Greeting, nonce: bytes) -> bytes:
    said = msgspec.msgpack.encode([who, greeting, nonce])
    return hmac.digest(token.encode(), said, hashlib.sha256)


def is_proof(given: bytes, token: str, who: str, greeting: Greeting, nonce: bytes) -> bool:
    return hmac.compare_digest(given, prove(token, who, greeting, nonce))


async def greet(channel: WorkspaceChannel, greeting: Greeting, token: str) -> Welcome:
    """The client's side. Raises RejectedByServer, BrokenFrame, ConnectionError."""
    await send_hello(channel, greeting)
    challenge = await receive_hello(channel)
    if isinstance(challenge, Rejected):
        raise RejectedByServer(challenge.reason)
    if not isinstance(challenge, ServerChallenge):
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
    if greeting.version == WIRE_VERSION:
        return None
    return Rejected(
        reason=f"the engine (Parley {greeting.build}) speaks version {greeting.version} of the workspace protocol, "
        f"and the workspace server (Parley {build}) version {WIRE_VERSION}; install the same version on both"
    )


def read_token_file(path: str) -> str:
    """Raises UsageError, also if others can read the file."""
    with explain_os_errors(f"the token file {path} cannot be read", UsageError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
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


class CallFailure(Struct, frozen=True, array_like=True):
    kind: Literal["tool", "system", "not_written"]
    text: str
    errno: int = 0
