"""Streamed HTTP calls: a body is posted, the data of server-sent events comes back.

    pool = ConnectionPool(base_url, deadlines)
    async with pool.post(url, headers, content, failure) as answer:     # raises ModelError
        answer.headers
        async for batch in answer.batches():                            # the event data of one chunk

Every wait for the server is bounded. The key is sent in a header only, and redirects are not followed, so it cannot
reach another host. Idle connections are kept for the next call.

See also: `connection.py` and `response.py` below this, bodies and events in `backends/`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from parley._threads import run_in_thread
from parley.errors import ModelError
from parley.models.encoding import Pieces
from parley.models.endpoint import is_loopback, without_userinfo
from parley.models.http.connection import Address, HttpConnection, connect
from parley.models.http.response import BadResponse, EventReader, ResponseParser
from parley.models.http.timeouts import StreamTimeout
from parley.protocol.base import Struct

if TYPE_CHECKING:
    import ssl
    import zlib

BAD_PROXY = (
    "cannot reach the model: the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY is invalid "
    "(expected http://host:port or https://host:port)"
)
BAD_CERTIFICATES = "cannot reach the model: the certificates in SSL_CERT_FILE or SSL_CERT_DIR cannot be read"
LATE = "the model did not answer in time"
WRONG_CONTENT = "wrong_content_type"
"""The kind of a ModelError: the response is not that of an API."""
LOCAL_RETRIES = 1
"""After a server on this machine has sent nothing at all: it hangs."""
ANSWER_TYPES = ("event-stream", "json", "text/plain", "octet-stream")
"""Parts of the content types that model servers use. Some do not set theirs."""
DRAIN_SECONDS = 1.0
"""Wait after a complete answer. A connection that is read to its end can be reused."""
KEEP_ALIVE_SECONDS = 30
"""An idle connection may be dead and is not reused after this time."""
ERROR_BODY_BYTES = 1024 * 1024
"""How much of the body of an error response is read."""
DECOMPRESSED_BYTES = 1024 * 1024
"""How much compressed data may grow at a time."""
EVENT_BYTES = 16 << 20
"""The most that one event, or an answer that is not streamed, may have after decompression."""
BODY_BYTES = 256 << 20
"""The same for a whole stream. A token takes up to 400 bytes of it, and pings are part of it."""
HEADER_NAME = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
"""The characters of a header name in lower case."""
EVENT_STREAM = {
    "content-type": "application/json",
    "accept": "text/event-stream",
    # Events are small and must not wait in a compression window.
    "accept-encoding": "identity",
    "user-agent": "parley",
}

Trust = Callable[[], "ssl.SSLContext"]
"""Creates the TLS client context; slow. Raises OSError if certificates cannot be read."""
Failure = Callable[[int, Mapping[str, str], bytes], ModelError]
"""Converts a response other than 200 into an error."""


class Deadlines(Struct, frozen=True, kw_only=True):
    """How long to wait for a silent server."""

    connect_seconds: float = 10
    first_byte_seconds: float = 300
    """An uncached long prompt can take minutes before the first token."""
    local_first_byte_seconds: float = 120
    """The same for a server on this machine, if it is less."""
    silence_seconds: float = 120
    """Between two chunks, pings included."""
    content_seconds: float = 300
    """Between two events with content. Pings, comments and partial events do not count."""
    request_seconds: float = 60 * 60
    """For the whole answer. Long answers of slow models can take most of it."""

    @classmethod
    def from_settings(cls, values: Mapping[str, float]) -> Deadlines:
        """The given values. A longer silence limit extends the other limits unless they are given too."""
        if "first_byte_seconds" in values:
            values = {"local_first_byte_seconds": values["first_byte_seconds"], **values}
        chosen = cls(**values)
        silence, first = chosen.silence_seconds, chosen.first_byte_seconds
        content, whole = max(silence, chosen.content_seconds), max(silence, first, chosen.request_seconds)
        wider = msgspec.structs.replace(chosen, content_seconds=content, request_seconds=whole)
        return msgspec.structs.replace(wider, **values)


class HttpExchange:
    """A request that was sent on a connection, and its response."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection
        self.response = ResponseParser()
        self._first = b""
        """The part of the body that came with the head."""
        self._decompressor: zlib._Decompress | None = None

    async def read_head(self) -> int:
        """The status. Raises OSError or BadResponse."""
        response = self.response
        while response.status is None:
            if data := await self._connection.read():
                self._first = response.feed(data)
            else:
                response.feed_eof()
        # No compression is requested, but a proxy may compress anyway.
        coding = response.headers.get("content-encoding", "identity").lower()
        if coding != "identity":
            import zlib

            if coding not in ("gzip", "x-gzip", "deflate"):
                raise BadResponse(f"the answer is compressed with {coding[:100]}, which was not requested")
            self._decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)  # accepts both formats
        return response.status

    @property
    def is_ready(self) -> bool:
        """Whether the next part of the body is there, or its end."""
        return bool(self._first) or self.response.is_complete

    @property
    def is_compressed(self) -> bool:
        return self._decompressor is not None

    async def read(self) -> bytes:
        """The next part of the body, at most `DECOMPRESSED_BYTES` if it is compressed; empty at its end.

        Raises OSError or BadResponse.
        """
        if self._decompressor is None:
            return await self.read_raw()
        import zlib

        part = b""
        while not part:
            data = self._decompressor.unconsumed_tail or await self.read_raw()
            if not data:
                break
            try:
                part = self._decompressor.decompress(data, DECOMPRESSED_BYTES)
            except zlib.error as exc:
                raise BadResponse(f"the answer cannot be decompressed: {exc}") from None
        return part

    async def read_raw(self) -> bytes:
        """The same, as it was sent: compressed, if `is_compressed`."""
        response, body = self.response, self._first
        self._first = b""
        while not body and not response.is_complete:
            if data := await self._connection.read():
                body = response.feed(data)
            else:
                response.feed_eof()
        return body

    async def read_error_body(self) -> bytes:
        """The start of the body; empty if it cannot be decoded, because the status is enough. Raises OSError."""
        body = b""
        try:
            while len(body) < ERROR_BODY_BYTES and (part := await self.read()):
                body += part
        except BadResponse:
            return b"" if self.is_compressed else body
        return body


class StreamedResponse:
    """A stream that has started."""

    def __init__(self, exchange: HttpExchange, timeout: StreamTimeout, silence_seconds: float) -> None:
        self.headers: Mapping[str, str] = exchange.response.headers
        self._exchange = exchange
        self._read = exchange.read if exchange.is_compressed else exchange.read_raw
        self.is_finished = False
        """Whether the answer is complete. Later data is ignored."""
        self.has_content = False
        """Whether the last batch contained part of the answer. Set by the backend."""
        self._timeout = timeout
        self._silence_seconds = silence_seconds

    async def batches(self) -> AsyncGenerator[list[bytes], None]:
        """The event data that each chunk completes, mostly one event."""
        reader, timeout, seconds, body_bytes = EventReader(), self._timeout, self._silence_seconds, 0
        # Only waits for the server are bounded, not the time that the caller takes between events.
        if self._exchange.is_ready:
            timeout.start_idle()
        else:
            timeout.start_wait(seconds)
        while chunk := await self._read():
            timeout.end_wait()
            if self.is_finished:
                return
            self.has_content = False
            yield reader.feed(chunk)
            body_bytes += len(chunk)
            if reader.pending_bytes > EVENT_BYTES:
                raise too_large("an event of the model's answer", EVENT_BYTES)
            if body_bytes > BODY_BYTES:
                raise too_large("the stream of the model's answer", BODY_BYTES)
            if not self._exchange.is_ready:
                limit = min(seconds, DRAIN_SECONDS) if self.is_finished else seconds
                timeout.start_wait(limit, idle=not self.has_content)
            elif self.has_content:
                timeout.start_idle()
        timeout.end_wait()
        yield reader.end()


class PostTarget(Struct, frozen=True):
    """Where requests with these headers go, and what their heads begin with."""

    url: str
    headers: dict[str, str]
    address: Address
    proxy: Address | None
    head: bytes

    def head_for(self, content_bytes: int) -> bytes:
        return b"%bcontent-length: %d\r\n\r\n" % (self.head, content_bytes)

    def secrets(self) -> list[str]:
        """The secrets that a request contains. The server may repeat them."""
        from parley.models.redaction import header_secrets, user_secrets

        found = list(header_secrets(self.headers))
        for address in filter(None, (self.address, self.proxy)):
            found += user_secrets(address.user or "", address.target, address.basic_auth or "")
        return found


class ConnectionPool:
    """The connections to one server. Proxies are those of `environment`."""

    def __init__(
        self,
        base_url: str,
        deadlines: Deadlines | None = None,
        trust: Trust | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._base_url = base_url
        self._deadlines = deadlines or Deadlines()
        if is_loopback(base_url):
            local = min(self._deadlines.first_byte_seconds, self._deadlines.local_first_byte_seconds)
            self._deadlines = msgspec.structs.replace(self._deadlines, first_byte_seconds=local)
        self._trust = trust
        self._environment = environment or {}
        self._context: ssl.SSLContext | None = None
        self._idle: list[HttpConnection] = []
        self._target: PostTarget | None = None
        """Of the last request; the next one mostly has the same."""

    @asynccontextmanager
    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        content: Pieces,
        failure: Failure,
        report_wait: Callable[[str], None] = lambda text: None,
    ) -> AsyncGenerator[StreamedResponse, None]:
        """Post a body and stream the answer. Raises ModelError, also while the answer is read.

        An error contains no secret of the request, whichever part of the answer it was made from.
        """
        if self._target is None or self._target.url != url or self._target.headers != headers:
            address = self._parse(url)
            proxy = self._find_proxy(address)
            self._target = PostTarget(url, dict(headers), address, proxy, build_head(address, headers, proxy))
        target = self._target
        try:
            async with self._send(target, content, failure, report_wait) as answer:
                yield answer
        except RecursionError:
            raise ModelError("the model sent an event that is nested too deeply", retryable=True) from None
        except ModelError as exc:
            from parley.models.redaction import redact_error

            redact_error(exc, target.secrets())
            raise

    @asynccontextmanager
    async def _send(
        self, target: PostTarget, content: Pieces, failure: Failure, report_wait: Callable[[str], None]
    ) -> AsyncGenerator[StreamedResponse, None]:
        """Raises ModelError."""
        limits, connection, exchange = self._deadlines, None, None
        address, proxy = target.address, target.proxy
        waiting = f"{without_userinfo(self._base_url)} has sent nothing: waiting for"
        try:
            async with StreamTimeout(limits.request_seconds, limits.content_seconds) as timeout:
                timeout.start_wait(limits.first_byte_seconds, idle=True)
                report_wait(f"{waiting} a connection")
                connection = await self._open(address, proxy)
                exchange = HttpExchange(connection)
                await connection.write(target.head_for(sum(map(len, content))), *content)
                report_wait(f"{waiting} the beginning of the answer, for at most {limits.first_byte_seconds:g} s")
                status = await exchange.read_head()
                report_wait(f"{waiting} more of the answer, for at most {limits.silence_seconds:g} s")
                timeout.end_wait()
                if status != 200:
                    from parley.models.redaction import Redactor

                    body = await timeout.wait_for(exchange.read_error_body(), limits.silence_seconds)
                    # Before it is cut to a length, which could leave half of a secret.
                    text = body.decode(errors="surrogateescape")
                    body = Redactor(target.secrets()).redact_text(text).encode(errors="surrogateescape")
                    raise failure(status, exchange.response.headers, body)
                check_content_type(exchange.response.headers, target.url)
                yield StreamedResponse(exchange, timeout, limits.silence_seconds)
        except TimeoutError:
            has_answer = exchange is not None and exchange.response.status is not None
            waited = None if has_answer else min(limits.first_byte_seconds, limits.request_seconds)
            what = "stopped in the middle of its response" if waited is None else f"sent nothing for {waited:g} s"
            text = f"{LATE}: {without_userinfo(self._base_url)} {what}"
            late = ModelError(text, kind="timeout_error", retryable=True)
            late.waited_seconds = waited
            late.max_retries = LOCAL_RETRIES if waited is not None and is_loopback(self._base_url) else None
            raise late from None
        except (OSError, BadResponse) as exc:
            from parley.models.failures import connection_error

            raise connection_error(exc, self._base_url, by_proxy=proxy is not None) from None
        finally:
            if connection is not None:
                self._release(connection, exchange)

    async def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _parse(self, url: str) -> Address:
        """Raises ModelError."""
        try:
            return Address.parse(url)
        except ValueError as exc:
            raise ModelError(
                f"cannot reach {without_userinfo(self._base_url)}: {exc}", kind="connection_failed"
            ) from None

    def _find_proxy(self, address: Address) -> Address | None:
        """Raises ModelError."""
        if "_proxy" not in "\n".join(self._environment).lower() and sys.platform == "linux":
            return None
        from parley.models.http.proxy import find_proxy

        try:
            url = find_proxy(address, self._environment)
            return Address.parse(url) if url else None
        except ValueError:  # its text may contain the proxy's password
            raise ModelError(BAD_PROXY, kind="proxy") from None

    async def _open(self, address: Address, proxy: Address | None) -> HttpConnection:
        """An idle connection or a new one. Raises OSError, BadResponse or ModelError."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and now - connection.idle_since < KEEP_ALIVE_SECONDS:
                return connection
            connection.close()
        try:
            async with asyncio.timeout(self._deadlines.connect_seconds):
                return await connect(address, proxy, self._make_context)
        except TimeoutError:
            seconds = self._deadlines.connect_seconds
            raise ConnectionError(f"the connection was not established within {seconds:g} s") from None

    def _release(self, connection: HttpConnection, exchange: HttpExchange | None) -> None:
        """Keep a connection for the next call if its response was read to the end."""
        if exchange is not None and exchange.response.is_complete and exchange.response.is_reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()

    async def _make_context(self) -> ssl.SSLContext:
        """The TLS context, made in a thread: reading the machine's certificates is slow. Raises ModelError."""
        if self._context is None:
            try:
                self._context = await run_in_thread(self._trust or default_trust)
            except OSError as exc:
                raise ModelError(f"{BAD_CERTIFICATES}: {exc}", kind="certificates") from None
        return self._context


def default_trust() -> ssl.SSLContext:
    import ssl

    return ssl.create_default_context()


def build_head(address: Address, headers: Mapping[str, str], proxy: Address | None) -> bytes:
    """The head of a POST request, except the length of its body.

    Raises ModelError if a header has an invalid value, without the value: a key.
    """
    fields = {name.lower(): value for name, value in headers.items() if name.lower() != "content-length"}
    if credentials := address.basic_auth:
        fields.setdefault("authorization", credentials)
    target = address.target
    if proxy is not None and address.scheme == "http":
        target = f"http://{address.authority}{target}"
        if credentials := proxy.basic_auth:
            fields["proxy-authorization"] = credentials
    for name, value in fields.items():
        if not is_header(name, value):
            raise ModelError("cannot send the request: a header has an invalid value")
    ours = {"host": address.authority, "connection": "keep-alive"}
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in (ours | fields).items())]
    return "\r\n".join([*lines, ""]).encode("ascii")


def check_content_type(headers: Mapping[str, str], url: str) -> None:
    """Raises ModelError, not retryable, if a response is something else than an answer: a page, say."""
    found = headers.get("content-type", "").lower()
    if found and not any(name in found for name in ANSWER_TYPES):
        kind = found.partition(";")[0].strip()[:100]
        raise ModelError(
            f"{without_userinfo(url)} answered with {kind} instead of an event stream: it is not the API of a model",
            kind=WRONG_CONTENT,
        )


def is_header(name: str, value: str) -> bool:
    """Whether a header can be sent: a value consists of visible characters, with spaces and tabs only inside."""
    is_value = value.isascii() and value.replace("\t", " ").isprintable() and value == value.strip(" \t")
    return is_value and is_header_name(name)


@lru_cache(maxsize=256)
def is_header_name(name: str) -> bool:
    return bool(name) and HEADER_NAME.issuperset(name)


def too_large(what: str, max_bytes: int) -> ModelError:
    """Not retryable: a server that sends this much sends it again."""
    return ModelError(f"{what} is larger than {max_bytes >> 20} MB", kind="answer_too_large")
