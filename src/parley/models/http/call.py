"""One streamed call over HTTP: a body goes out, the data of server-sent events comes in.

    pool = Pool(deadlines)
    async with pool.post(url, headers, content, failure) as answer:     # raises ModelError
        answer.headers
        async for batch in answer.batches():                            # the data of the events of one chunk

httpx2 is imported when the first call is made (it costs more than the whole engine), in a
thread, so that the loop stays free. Every wait for the backend is bounded. The key goes
into a header and nowhere else: no redirect is followed, so none can carry it elsewhere.

Not here: what is in a body and what events mean (backends/anthropic.py, backends/openai.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec

from parley.errors import ModelError
from parley.models.endpoint import is_loopback, without_userinfo
from parley.models.http.chunk_merging import merge_chunks
from parley.models.http.sse import EventReader
from parley.models.http.timeouts import Patience
from parley.protocol.base import Struct

if TYPE_CHECKING:
    import ssl

    import httpx2

RETRYABLE = frozenset({401, 408, 409, 429, 500, 502, 503, 504, 529})
"""401 too: a key helper or a gateway may have refreshed the key meanwhile."""
BAD_PROXY = (
    "the model cannot be asked: the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names cannot be used "
    "(it must be http://host:port or https://host:port)"
)
BAD_CERTIFICATES = "the model cannot be asked: the certificates that SSL_CERT_FILE or SSL_CERT_DIR name cannot be read"
LATE = "the model did not answer in time"
LINGER_SECONDS = 1.0
"""Behind an answer that says it is complete: a connection that is read to its end can be used again."""
EVENT_STREAM = {
    "content-type": "application/json",
    "accept": "text/event-stream",
    # Events are small and must not wait in a compressor's window.
    "accept-encoding": "identity",
    "user-agent": "parley",
}

Trust = Callable[[], "ssl.SSLContext"]
"""Makes the context of a TLS client; slow. Raises OSError if its certificates cannot be read."""
Failure = Callable[[int, Mapping[str, str], bytes], ModelError]
"""What an answer other than 200 means."""


class Deadlines(Struct, frozen=True, kw_only=True):
    """How long a silent backend is waited for."""

    connect_seconds: float = 10
    first_byte_seconds: float = 300
    """A long prompt that nobody has cached is read for minutes before the first word comes."""
    silence_seconds: float = 120
    """Between two signs of life, pings included."""
    content_seconds: float = 300
    """Between two events that bring something of the answer: pings, comments and half an event do not."""
    request_seconds: float = 60 * 60
    """The whole answer. The longest answers of slow models take most of it."""

    @classmethod
    def of(cls, given: Mapping[str, float]) -> Deadlines:
        """Those that are given; whoever waits longer than usual for a sign of life waits as long for the rest."""
        chosen = cls(**given)
        silence, first = chosen.silence_seconds, chosen.first_byte_seconds
        content, whole = max(silence, chosen.content_seconds), max(silence, first, chosen.request_seconds)
        wider = msgspec.structs.replace(chosen, content_seconds=content, request_seconds=whole)
        return msgspec.structs.replace(wider, **given)


class Answer:
    """A stream that has begun."""

    def __init__(self, response: httpx2.Response, patience: Patience, silence_seconds: float) -> None:
        self.headers: Mapping[str, str] = response.headers
        # The stream below `aiter_raw`, which would only count bytes and pass them on. We ask for no
        # compression; a proxy may compress all the same.
        is_plain = response.headers.get("content-encoding", "identity") == "identity"
        self._chunks = cast("AsyncIterable[bytes]", response.stream if is_plain else response.aiter_bytes())
        self.is_over = False
        """Whether the answer has said that it is complete: what comes behind it is of no interest."""
        self.has_grown = False
        """Whether the last batch brought something of the answer; set by the adapter, which understands it."""
        self._patience = patience
        self._silence_seconds = silence_seconds

    async def batches(self) -> AsyncGenerator[list[bytes], None]:
        """The data of the events that each chunk completes; mostly one."""
        reader, patience, seconds = EventReader(), self._patience, self._silence_seconds
        # Only waits for the backend are bounded: what happens between two events is the turn's own time.
        patience.begin(seconds)
        async for chunk in self._chunks:
            patience.end()
            if self.is_over:
                return
            self.has_grown = False
            yield reader.feed(chunk)
            patience.begin(min(seconds, LINGER_SECONDS) if self.is_over else seconds, idle=not self.has_grown)
        patience.end()
        yield reader.end()


class Pool:
    """The connections to one server."""

    def __init__(self, base_url: str, deadlines: Deadlines | None = None, trust: Trust | None = None) -> None:
        self._base_url = base_url
        self._deadlines = deadlines or Deadlines()
        self._trust = trust
        self._client: httpx2.AsyncClient | None = None

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], content: bytes, failure: Failure
    ) -> AsyncGenerator[Answer, None]:
        """The answer to a body. Raises ModelError, also while the answer is read."""
        client, limits = await self._connected(), self._deadlines
        import httpx2

        response = None
        try:
            call = client.build_request("POST", url, content=content, headers=dict(headers))
            async with Patience(limits.request_seconds, limits.content_seconds) as patience:
                response = await patience.on(client.send(call, stream=True), limits.first_byte_seconds, idle=True)
                if response.status_code != 200:
                    body = await patience.on(readable_body(response), limits.silence_seconds)
                    raise failure(response.status_code, response.headers, body)
                yield Answer(response, patience, limits.silence_seconds)
        except TimeoutError:
            raise ModelError(LATE, kind="timeout_error", retryable=True) from None
        except (httpx2.LocalProtocolError, UnicodeEncodeError):
            # The flaw's own words would show the header, which may be the key.
            raise ModelError("the request cannot be sent: a header has a value that no header may have") from None
        except (httpx2.TransportError, httpx2.DecodingError, httpx2.InvalidURL) as flaw:
            raise unreachable(flaw, self._base_url) from None
        finally:
            if response is not None:
                await response.aclose()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _trusted(self) -> ssl.SSLContext:
        """Raises ModelError."""
        import httpx2

        try:
            return httpx2.create_ssl_context() if self._trust is None else self._trust()
        except OSError as exc:
            raise ModelError(f"{BAD_CERTIFICATES}: {exc}", kind="certificates") from None

    async def _connected(self) -> httpx2.AsyncClient:
        """Raises ModelError."""
        if self._client is None:
            await asyncio.to_thread(__import__, "httpx2")
            import httpx2

            # We watch the clock ourselves: a timeout per read would not see a drip of pings.
            times = httpx2.Timeout(None, connect=self._deadlines.connect_seconds)
            # An idle connection may be dead: it is not used again after half a minute.
            limits = httpx2.Limits(keepalive_expiry=30)
            # Reading the certificates takes 40 ms; plain HTTP has no use for them.
            verify = False if self._base_url.startswith("http:") else await asyncio.to_thread(self._trusted)
            try:
                self._client = httpx2.AsyncClient(
                    timeout=times,
                    limits=limits,
                    verify=verify,
                    follow_redirects=False,
                    # A proxy is for other machines: it would look for a server on its own.
                    trust_env=not is_loopback(self._base_url),
                )
            except (ImportError, ValueError, httpx2.InvalidURL):
                # The flaw's own words would show the proxy's URL, which may have a password.
                raise ModelError(BAD_PROXY, kind="proxy") from None
            merge_chunks(self._client)
        return self._client


async def readable_body(response: httpx2.Response) -> bytes:
    """The body of a refusal; nothing of one that is not compressed as it says: its status counts all the same."""
    import httpx2

    try:
        return await response.aread()
    except httpx2.DecodingError:
        return b""


def refusal(status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
    """What an answer other than 200 means, where its body is `{"error": {"type": ..., "message": ...}}`."""
    if 300 <= status < 400:
        return ModelError("the API answered with a redirect, which is not followed", status=status)
    error = error_of(content)
    text = str(error.get("message") or content[:200].decode(errors="replace") or "no details")
    return ModelError(
        text,
        status=status,
        kind=str(error.get("type") or "api_error"),
        retryable=status in RETRYABLE or status >= 500,
        retry_after_seconds=seconds(headers.get("retry-after")),
        request_id=headers.get("request-id") or headers.get("x-request-id"),
    )


def error_of(content: bytes) -> dict[str, Any]:
    """The `error` of a body, if it has one."""
    try:
        error: Any = msgspec.json.decode(content).get("error")
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, RecursionError):
        return {}
    return error if isinstance(error, dict) else {}


def seconds(text: str | None) -> float | None:
    """A retry-after header in seconds; dates are rare enough to be left to the ordinary back-off."""
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None


def unreachable(flaw: Exception, base_url: str) -> ModelError:
    """Nothing answered, or the line broke."""
    reason = str(flaw) or type(flaw).__name__
    where = without_userinfo(base_url)
    return ModelError(f"no answer from {where}: {reason}", kind="connection_failed", retryable=True)
