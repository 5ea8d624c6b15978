"""Streamed HTTP calls: a body is posted, the data of server-sent events comes back.

    pool = ConnectionPool(base_url, deadlines)
    async with pool.post(url, headers, content, failure) as answer:     # raises ModelError
        answer.headers
        async for batch in answer.batches():                            # the event data of one chunk

httpx2 is imported in a thread at the first call, because it takes longer than starting the engine. Every wait for the
server is bounded. The key is sent in a header only, and redirects are not followed, so it cannot reach another host.

The contents of bodies and events are in `backends/`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec

from parley.errors import ModelError
from parley.models.endpoint import is_loopback, without_userinfo
from parley.models.http.chunk_merging import merge_chunks
from parley.models.http.sse import EventReader, event_data
from parley.models.http.timeouts import StreamTimeout
from parley.protocol.base import Struct

if TYPE_CHECKING:
    import ssl

    import httpx2

RETRYABLE = frozenset({401, 408, 409, 429, 500, 502, 503, 504, 529})
"""Includes 401: a key helper or gateway may have refreshed the key."""
INVALID_REQUEST = re.compile(r"""['"]loc['"]: ?[(\[]|\bvalidation errors? for \w|RequestValidationError""")
"""Some servers report a request that they cannot validate as 500. It gets the same answer if it is repeated."""
BAD_PROXY = (
    "cannot reach the model: the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY is invalid "
    "(expected http://host:port or https://host:port)"
)
BAD_CERTIFICATES = "cannot reach the model: the certificates in SSL_CERT_FILE or SSL_CERT_DIR cannot be read"
LATE = "the model did not answer in time"
DRAIN_SECONDS = 1.0
"""Wait after a complete answer. A connection that is read to its end can be reused."""
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
    silence_seconds: float = 120
    """Between two chunks, pings included."""
    content_seconds: float = 300
    """Between two events with content. Pings, comments and partial events do not count."""
    request_seconds: float = 60 * 60
    """For the whole answer. Long answers of slow models can take most of it."""

    @classmethod
    def from_settings(cls, values: Mapping[str, float]) -> Deadlines:
        """The given values. A longer silence limit extends the other limits unless they are given too."""
        chosen = cls(**values)
        silence, first = chosen.silence_seconds, chosen.first_byte_seconds
        content, whole = max(silence, chosen.content_seconds), max(silence, first, chosen.request_seconds)
        wider = msgspec.structs.replace(chosen, content_seconds=content, request_seconds=whole)
        return msgspec.structs.replace(wider, **values)


class StreamedResponse:
    """A stream that has started."""

    def __init__(self, response: httpx2.Response, timeout: StreamTimeout, silence_seconds: float) -> None:
        self.headers: Mapping[str, str] = response.headers
        # Read below `aiter_raw`, which only counts bytes. We request no compression, but a proxy may compress anyway.
        is_plain = response.headers.get("content-encoding", "identity") == "identity"
        self._chunks = cast("AsyncIterable[bytes]", response.stream if is_plain else response.aiter_bytes())
        self.is_finished = False
        """Whether the answer is complete. Later data is ignored."""
        self.has_content = False
        """Whether the last batch contained part of the answer. Set by the backend."""
        self._timeout = timeout
        self._silence_seconds = silence_seconds

    async def batches(self) -> AsyncGenerator[list[bytes], None]:
        """The event data that each chunk completes, mostly one event."""
        reader, timeout, seconds = EventReader(), self._timeout, self._silence_seconds
        # Only waits for the server are bounded, not the time that the caller takes between events.
        timeout.start_wait(seconds)
        async for chunk in self._chunks:
            timeout.end_wait()
            if self.is_finished:
                return
            self.has_content = False
            yield reader.feed(chunk)
            timeout.start_wait(min(seconds, DRAIN_SECONDS) if self.is_finished else seconds, idle=not self.has_content)
        timeout.end_wait()
        yield reader.end()


class ConnectionPool:
    """The connections to one server."""

    def __init__(self, base_url: str, deadlines: Deadlines | None = None, trust: Trust | None = None) -> None:
        self._base_url = base_url
        self._deadlines = deadlines or Deadlines()
        self._trust = trust
        self._client: httpx2.AsyncClient | None = None

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], content: bytes, failure: Failure
    ) -> AsyncGenerator[StreamedResponse, None]:
        """Post a body and stream the answer. Raises ModelError, also while the answer is read."""
        client, limits = await self._open_client(), self._deadlines
        import httpx2

        response = None
        try:
            call = client.build_request("POST", url, content=content, headers=dict(headers))
            async with StreamTimeout(limits.request_seconds, limits.content_seconds) as timeout:
                response = await timeout.wait_for(client.send(call, stream=True), limits.first_byte_seconds, idle=True)
                if response.status_code != 200:
                    body = await timeout.wait_for(readable_body(response), limits.silence_seconds)
                    raise failure(response.status_code, response.headers, body)
                yield StreamedResponse(response, timeout, limits.silence_seconds)
        except TimeoutError:
            waited = min(limits.first_byte_seconds, limits.request_seconds) if response is None else None
            what = "stopped in the middle of its response" if waited is None else f"sent nothing for {waited:g} s"
            text = f"{LATE}: {without_userinfo(self._base_url)} {what}"
            late = ModelError(text, kind="timeout_error", retryable=True)
            late.waited_seconds = waited
            raise late from None
        except (httpx2.LocalProtocolError, UnicodeEncodeError):
            # The exception's text may contain the header, and so the key.
            raise ModelError("cannot send the request: a header has an invalid value") from None
        except (httpx2.TransportError, httpx2.DecodingError, httpx2.InvalidURL) as exc:
            from parley.models.http.failures import connection_error

            raise connection_error(exc, self._base_url, limits.connect_seconds) from None
        finally:
            if response is not None:
                await response.aclose()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _create_ssl_context(self) -> ssl.SSLContext:
        """Raises ModelError."""
        import httpx2

        try:
            return httpx2.create_ssl_context() if self._trust is None else self._trust()
        except OSError as exc:
            raise ModelError(f"{BAD_CERTIFICATES}: {exc}", kind="certificates") from None

    async def _open_client(self) -> httpx2.AsyncClient:
        """Raises ModelError."""
        if self._client is None:
            await asyncio.to_thread(__import__, "httpx2")
            import httpx2

            # Timeouts are measured by StreamTimeout, because a timeout per read would not notice a stream of pings.
            times = httpx2.Timeout(None, connect=self._deadlines.connect_seconds)
            # An idle connection may be dead and is not reused after 30 seconds.
            limits = httpx2.Limits(keepalive_expiry=30)
            # Reading the certificates takes 40 ms. Plain HTTP does not need them.
            verify = False if self._base_url.startswith("http:") else await asyncio.to_thread(self._create_ssl_context)
            try:
                self._client = httpx2.AsyncClient(
                    timeout=times,
                    limits=limits,
                    verify=verify,
                    follow_redirects=False,
                    # A proxy cannot reach servers on this machine.
                    trust_env=not is_loopback(self._base_url),
                )
            except (ImportError, ValueError, httpx2.InvalidURL):
                # The exception's text may contain the proxy URL with a password.
                raise ModelError(BAD_PROXY, kind="proxy") from None
            merge_chunks(self._client)
        return self._client


async def readable_body(response: httpx2.Response) -> bytes:
    """The body of an error response; empty if it is not compressed as declared, because the status is enough."""
    import httpx2

    try:
        return await response.aread()
    except httpx2.DecodingError:
        return b""


def parse_refusal(status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
    """The error of a response other than 200 with a body like `{"error": {"type": ..., "message": ...}}`."""
    if 300 <= status < 400:
        return ModelError("the API answered with a redirect, and redirects are not followed", status=status)
    error = read_error(content)
    text = str(error.get("message") or content[:200].decode(errors="replace") or "no details")
    return ModelError(
        text,
        status=status,
        kind=str(error.get("type") or "api_error"),
        retryable=(status in RETRYABLE or status >= 500) and not (status == 500 and INVALID_REQUEST.search(text)),
        retry_after_seconds=parse_retry_after(headers.get("retry-after")),
        request_id=headers.get("request-id") or headers.get("x-request-id"),
    )


def read_error(content: bytes) -> dict[str, Any]:
    """The `error` object of a body, or {}. Gateways may send it as an event of the stream that was asked for."""
    if content.startswith(b"data:"):
        content = event_data(content.partition(b"\n\n")[0]) or b""
    try:
        error: Any = msgspec.json.decode(content).get("error")
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, RecursionError):
        return {}
    return error if isinstance(error, dict) else {}


def parse_retry_after(text: str | None) -> float | None:
    """The retry-after header in seconds. Dates are ignored; the usual backoff applies."""
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None
