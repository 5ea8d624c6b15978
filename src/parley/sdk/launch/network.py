"""A session on a gateway (`parley serve`), over a WebSocket.

    Options(engine="https://agents.example", token="…")                     a new session
    Options(engine="https://agents.example", token="…", resume=SESSION)     an existing one
    Options(…, resume=SESSION, fork_session=True, resume_session_at=UUID)   a copy of it, up to a message

The connection may be cut. The wire then connects again and continues after the last line that it has seen. What the
gateway may not have received is sent again: prompts have ids, so none runs twice.

See also: `gateway/http/sockets.py` for the other end.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

import anyio
import msgspec

from parley.protocol.base import Json, Struct
from parley.protocol.options import FIELDS, CliOptions, format_args, parse
from parley.protocol.peek import peek
from parley.sdk.errors import CLIConnectionError
from parley.sdk.runtime.background import start
from parley.sdk.runtime.transport import Ended
from parley.version import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio.abc import ByteStream
    from websockets.client import ClientProtocol

    from parley.sdk.options import Options

ReplyT = TypeVar("ReplyT")
CONNECT_SECONDS = 30.0
RECONNECT_SECONDS = 60.0
"""How long to try to connect again before the connection counts as lost."""
FIRST_PAUSE_SECONDS = 0.1
READ_BYTES = 256 * 1024
MAX_BYTES = 64 << 20
"""The longest line or reply that a gateway may send."""
FINAL_CODES = frozenset({4400, 4401, 4403, 4404})
"""Close codes of a gateway after which connecting again is of no use."""
IMPLIED = (
    *("output_format", "input_format", "verbose", "permission_prompt_tool", "include_partial_messages"),
    *("resume", "fork_session", "resume_session_at"),
)
"""What the gateway decides itself, or what the URL says."""


def session_request(options: Options[Any], argv: Sequence[str]) -> tuple[str, Json]:
    """The path that makes the session, and the body of the request."""
    if options.fork_session:
        return f"/sessions/{quote(str(options.resume), safe='')}/fork", {"uuid": options.resume_session_at}
    given = {name: value for name, value in parse(argv).options.given.items() if name not in IMPLIED}
    found = {name: value for name, value in given.items() if FIELDS[name].gateway and value not in ((), "")}
    args = format_args(CliOptions(**{name: value for name, value in given.items() if not FIELDS[name].gateway}))
    body: Json = {"options": {**found, **({"args": args} if args else {})}}
    return "/sessions", body if options.cwd is None else {**body, "cwd": os.fspath(options.cwd)}


class MadeSession(Struct):
    """The reply that names a new session."""

    session_id: str


class SessionPosition(Struct):
    """The number of the last line: of a session, or of a page of its lines."""

    last_line: int | None = None
    last: int = 0


class NetworkWire:
    """A `Wire` to a session of a gateway."""

    pid = None

    def __init__(
        self,
        url: str,
        token: str | None,
        session_id: str | None,
        create: tuple[str, Json],
        *,
        partial: bool,
        replayed_lines: int = 0,
        on_cut: Callable[[bool], None] = lambda is_cut: None,
    ) -> None:
        """`create`: the path and the body of the request that makes the session, if there is no `session_id`.

        `replayed_lines`: how many of the last lines of an existing session come first. `on_cut` is called when the
        connection is lost, and when it is back.
        """
        self._on_cut = on_cut
        self._url = url.rstrip("/")
        self._token = token
        self._create = create
        self._partial = partial
        self.session_id = session_id
        self._last = 0
        """The number of the last stored line."""
        self._replayed_lines = replayed_lines
        self._unconfirmed: dict[str, bytes] = {}
        """What was written and may not have arrived: prompts without a result, requests and replies."""
        self._stream: ByteStream | None = None
        self._protocol: ClientProtocol | None = None
        self._sending: anyio.Lock | None = None
        self._events: list[Any] = []
        self._is_closed = False
        self._error = ""

    async def open(self) -> None:
        try:
            import websockets.client  # noqa: F401
        except ImportError:
            raise CLIConnectionError(f"an engine on a gateway needs websockets: {how_to_install('remote')}") from None
        replayed = self._replayed_lines
        if self.session_id is None:
            self.session_id, replayed = (await self._request(MadeSession, "POST", *self._create)).session_id, 0
        self._last = max(0, await self._find_last() - replayed)
        await self._connect()

    async def _find_last(self) -> int:
        """The number of the last line. What comes after it is for us, also if the first connection is cut at once."""
        path = f"/sessions/{quote(str(self.session_id), safe='')}"
        last = (await self._request(SessionPosition, "GET", path)).last_line
        if last is None:  # the session is not loaded
            last = (await self._request(SessionPosition, "GET", f"{path}/lines?limit=1")).last
        return last

    async def _request(self, reply: type[ReplyT], method: str, path: str, body: Json | None = None) -> ReplyT:
        """Raises CLIConnectionError."""
        import httpx2

        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        found = bytearray()
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                async with (
                    httpx2.AsyncClient(timeout=CONNECT_SECONDS) as client,
                    client.stream(method, f"{self._url}{path}", json=body, headers=headers) as response,
                ):
                    async for chunk in response.aiter_bytes(READ_BYTES):
                        found += chunk
                        if len(found) > MAX_BYTES:
                            raise CLIConnectionError(f"the gateway {self._url} sent more than {MAX_BYTES:,} bytes")
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as exc:
            raise CLIConnectionError(f"cannot reach the gateway {self._url}: {exc or type(exc).__name__}") from None
        if response.is_error:
            raise CLIConnectionError(f"the gateway refused the session: {describe(bytes(found))}")
        try:
            return msgspec.json.decode(found, type=reply)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise CLIConnectionError(
                f"{self._url} is not a gateway: it answered with HTTP {response.status_code} and no usable JSON ({exc})"
            ) from None

    async def _connect(self) -> None:
        """Raises CLIConnectionError."""
        from websockets.client import ClientProtocol
        from websockets.uri import parse_uri

        query: Json = {"numbered": "true", "after": self._last}
        if self._partial:
            query["partial"] = "true"
        path = f"/sessions/{quote(str(self.session_id), safe='')}/ws?{urlencode(query)}"
        place = urlsplit(self._url)
        secure = place.scheme == "https"
        url = f"{'wss' if secure else 'ws'}://{place.netloc}{place.path}{path}"
        protocol = ClientProtocol(parse_uri(url), max_size=MAX_BYTES)
        events: list[Any] = []
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                stream = await open_stream(place.hostname or "", place.port, secure=secure)
                request = protocol.connect()
                if self._token:
                    request.headers["Authorization"] = f"Bearer {self._token}"
                protocol.send_request(request)
                await send_all(protocol, stream)
                while not events and protocol.handshake_exc is None:
                    protocol.receive_data(await stream.receive(READ_BYTES))
                    events = list(protocol.events_received())
        except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError) as exc:
            raise CLIConnectionError(f"cannot reach the gateway {self._url}: {exc or type(exc).__name__}") from None
        if protocol.handshake_exc is not None:
            await stream.aclose()
            body = getattr(events[0], "body", b"") if events else b""
            said = describe(bytes(body)) if body else str(protocol.handshake_exc)
            raise CLIConnectionError(f"the gateway refused the connection: {said}")
        self._events = events[1:]  # frames that came with the reply
        self._stream, self._protocol, self._sending = stream, protocol, anyio.Lock()
        for line in list(self._unconfirmed.values()):
            self._send(line)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The lines of the session, over as many connections as it takes."""
        while not self._is_closed:
            try:
                async for frame in self._frames():
                    line = self._take(frame)
                    if line is not None:
                        yield line
            except ValueError as exc:  # another connection brings the same
                self._is_closed, self._error = True, f"the gateway sent a line that cannot be read: {exc}"
            await self._close_stream()
            if self._is_closed or not await self._reconnect():
                return

    async def _frames(self) -> AsyncIterator[str]:
        """The frames of one connection, until it ends."""
        from websockets.frames import Opcode

        protocol, stream = self._protocol, self._stream
        assert protocol is not None
        assert stream is not None
        text = bytearray()
        while True:
            events, self._events = [*self._events, *protocol.events_received()], []
            for event in events:
                opcode = getattr(event, "opcode", None)
                if opcode in (Opcode.TEXT, Opcode.CONT, Opcode.BINARY):
                    text += event.data
                    if event.fin:
                        yield text.decode()
                        text.clear()
            await self.flush()
            if protocol.parser_exc is not None and not isinstance(protocol.parser_exc, EOFError):
                raise ValueError(str(protocol.parser_exc))
            if protocol.close_rcvd is not None:
                self._error = protocol.close_rcvd.reason
                if protocol.close_rcvd.code in FINAL_CODES:
                    self._is_closed = True
                return
            try:
                protocol.receive_data(await stream.receive(READ_BYTES))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                return

    async def _reconnect(self) -> bool:
        """Connect again, for a while; False if that fails."""
        self._on_cut(True)
        pause, deadline = FIRST_PAUSE_SECONDS, anyio.current_time() + RECONNECT_SECONDS
        while not self._is_closed:
            try:
                await self._connect()
            except CLIConnectionError as exc:
                self._error = str(exc)
            else:
                self._on_cut(False)
                return True
            if anyio.current_time() + pause > deadline:
                return False
            await anyio.sleep(pause)
            pause = min(5.0, pause * 2)
        return False

    def _take(self, frame: str) -> bytes | None:
        """The line of a frame; None if it is not for the client. Raises ValueError for a frame without a number."""
        number, _, text = frame.partition("\t")
        if number:
            self._last = int(number)
        line = text.encode()
        try:
            head = peek(line)
        except msgspec.DecodeError:
            return line  # the connection reports it
        match head.type:
            case "gateway":
                return None
            case "result":
                for uuid in head.user_message_uuids or ():
                    self._unconfirmed.pop(f"prompt {uuid}", None)
            case "control_response":
                self._unconfirmed.pop(f"request {head.response.request_id}", None)
            case "user" if f"prompt {head.uuid}" in self._unconfirmed:
                return None  # our own prompt, which the gateway repeats after a cut
        return line

    def write(self, data: bytes) -> None:
        if self._is_closed or self._protocol is None:
            raise CLIConnectionError(f"the connection to the gateway is closed: {self._error}")
        for line in data.split(b"\n"):
            if line:
                self._send(self._remember(line))

    def _remember(self, line: bytes) -> bytes:
        """Keep a line until it is answered. A prompt gets an id, so that it can be sent again."""
        message = msgspec.json.decode(line)
        kind = message.get("type")
        if kind == "user":
            if not message.get("uuid"):
                message["uuid"] = str(uuid4())
                line = msgspec.json.encode(message)
            self._unconfirmed[f"prompt {message['uuid']}"] = line
        elif kind == "control_request":
            self._unconfirmed[f"request {message['request_id']}"] = line
        return line

    def _send(self, line: bytes) -> None:
        from websockets.exceptions import InvalidState

        protocol = self._protocol
        assert protocol is not None
        with suppress(InvalidState):  # it is closing, and the line is sent again on the next connection
            protocol.send_text(line + b"\n")
            start(self.flush)

    async def flush(self) -> None:
        if self._protocol is None or self._stream is None or self._sending is None:
            return
        async with self._sending:  # one at a time, so that frames are not mixed
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await send_all(self._protocol, self._stream)

    async def end_input(self) -> None:
        """The session waits for other clients."""
        await self.flush()

    async def ended(self) -> Ended:
        return Ended(None if not self._error else 1, self._error)

    async def close(self, busy: bool) -> Ended:
        """Only the connection ends: the session stays on the gateway, and a running turn continues."""
        from websockets.exceptions import InvalidState

        self._is_closed = True
        protocol, stream = self._protocol, self._stream
        if protocol is not None and stream is not None:
            with suppress(InvalidState):
                protocol.send_close(1000)
            with anyio.CancelScope(shield=True):
                await self.flush()
                await self._close_stream()
        return Ended(0)

    async def _close_stream(self) -> None:
        if self._stream is not None:
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._stream.aclose()

    def abandon(self) -> None:
        """The session continues on the gateway."""
        self._is_closed = True


async def open_stream(host: str, port: int | None, *, secure: bool) -> ByteStream:
    """Raises OSError."""
    if not secure:
        return await anyio.connect_tcp(host, port or 80)
    context = ssl.create_default_context()
    return await anyio.connect_tcp(host, port or 443, ssl_context=context, tls_standard_compatible=False)


async def send_all(protocol: ClientProtocol, stream: ByteStream) -> None:
    data = b"".join(protocol.data_to_send())
    if data:
        await stream.send(data)


def describe(body: bytes) -> str:
    """What an error of the gateway says."""
    try:
        return str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body.decode(errors="replace")[:200] or "no reason given"
