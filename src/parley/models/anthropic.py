"""The Anthropic Messages API, at any base URL.

httpx2 is imported when the first call is made (it costs more than the whole engine),
in a thread, so that the loop stays free. The stream is read by our own SSE reader and
its events are passed on byte for byte.

The key goes into a header and nowhere else; a redirect to another origin is refused
rather than followed with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from parley.errors import ModelError
from parley.models.base import Event, ModelRequest, read_event
from parley.models.sse import EventReader
from parley.protocol.base import Json, Struct

if TYPE_CHECKING:
    import httpx2

API_VERSION = "2023-06-01"
RETRYABLE = frozenset({401, 408, 409, 429, 500, 502, 503, 504, 529})
"""401 too: a key helper or a gateway may have refreshed the key meanwhile."""
EPHEMERAL = {"type": "ephemeral"}


class Deadlines(Struct, frozen=True, kw_only=True):
    """How long a silent backend is waited for."""

    connect_seconds: float = 10
    first_byte_seconds: float = 60
    silence_seconds: float = 45
    request_seconds: float = 15 * 60


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where the API is and how it is entered."""

    base_url: str
    auth: tuple[str, str] | None
    """The header that carries the key; None where no key is needed."""
    headers: Mapping[str, str] = {}
    extra_body: Json = {}


class Anthropic:
    """One connection pool to one endpoint."""

    def __init__(self, endpoint: Endpoint, deadlines: Deadlines | None = None) -> None:
        self._endpoint = endpoint
        self._deadlines = deadlines or Deadlines()
        self._client: httpx2.AsyncClient | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[Event]:
        """The events of one answer. Raises ModelError."""
        client = await self._connected()
        import httpx2

        limits = self._deadlines
        url = f"{self._endpoint.base_url.rstrip('/')}/v1/messages"
        call = client.build_request(
            "POST", url, content=msgspec.json.encode(body(request, self._endpoint.extra_body)),
            headers=headers(request, self._endpoint),
        )  # fmt: skip
        response = None
        loop = asyncio.get_running_loop()
        last_moment = loop.time() + limits.request_seconds
        try:
            # Only waits for the backend are bounded: what happens between two events is the turn's own time.
            async with asyncio.timeout(limits.first_byte_seconds):
                response = await client.send(call, stream=True)
                if response.status_code != 200:
                    raise failure(response.status_code, response.headers, await response.aread())
            request_id = response.headers.get("request-id")
            reader, chunks = EventReader(), response.aiter_raw()
            while True:
                async with asyncio.timeout_at(min(loop.time() + limits.silence_seconds, last_moment)):
                    chunk = await anext(chunks, None)
                for data in reader.end() if chunk is None else reader.feed(chunk):
                    event = understood(data)
                    if event.type == "message_start":
                        event.request_id = request_id
                    yield event
                if chunk is None:
                    return
        except TimeoutError:
            raise ModelError("the model did not answer in time", kind="timeout_error", retryable=True) from None
        except (httpx2.TransportError, httpx2.InvalidURL) as flaw:
            raise unreachable(flaw, self._endpoint.base_url) from None
        finally:
            if response is not None:
                await response.aclose()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            await asyncio.to_thread(__import__, "httpx2")
            import httpx2

            # We watch the clock ourselves: a timeout per read would not see a drip of pings.
            times = httpx2.Timeout(None, connect=self._deadlines.connect_seconds)
            # An idle connection may be dead: it is not used again after half a minute.
            limits = httpx2.Limits(keepalive_expiry=30)
            self._client = httpx2.AsyncClient(timeout=times, limits=limits, follow_redirects=False)
        return self._client


def body(request: ModelRequest, extra: Json) -> Json:
    """The request's JSON. The order of keys is fixed: a changed prefix would miss the prompt cache."""
    fields: Json = {"model": request.model, "max_tokens": request.max_tokens}
    if request.system:
        fields["system"] = request.system
    if request.tools:
        fields["tools"] = request.tools
    if request.thinking is not None:
        fields["thinking"] = request.thinking
    if request.effort is not None:
        fields["output_config"] = {"effort": request.effort}
    if request.session_id:
        fields["metadata"] = {"user_id": request.session_id}
    return {**fields, **extra, "messages": request.messages, "stream": True}


def headers(request: ModelRequest, endpoint: Endpoint) -> dict[str, str]:
    fields = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        # Events are small and must not wait in a compressor's window.
        "accept-encoding": "identity",
        "anthropic-version": API_VERSION,
        "user-agent": "parley",
        **endpoint.headers,
    }
    if endpoint.auth is not None:
        fields[endpoint.auth[0]] = endpoint.auth[1]
    if request.betas:
        fields["anthropic-beta"] = ",".join(request.betas)
    return fields


def understood(data: bytes) -> Event:
    """Raises ModelError for an error event or a line that is no event."""
    try:
        event = read_event(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as flaw:
        raise ModelError(f"the model sent an event that cannot be read: {flaw}", retryable=True) from None
    if event.type == "error":
        error = event.error or {}
        kind = str(error.get("type", "api_error"))
        raise ModelError(str(error.get("message", "the stream broke off")), kind=kind, retryable=True)
    return event


def failure(status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
    """What an answer other than 200 means."""
    if 300 <= status < 400:
        return ModelError("the API answered with a redirect, which is not followed", status=status)
    try:
        error: Any = msgspec.json.decode(content).get("error")
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError):
        error = None
    error = error if isinstance(error, dict) else {}
    text = str(error.get("message") or content[:200].decode(errors="replace") or "no details")
    return ModelError(
        text,
        status=status,
        kind=str(error.get("type", "api_error")),
        retryable=status in RETRYABLE or status >= 500,
        retry_after_seconds=seconds(headers.get("retry-after")),
        request_id=headers.get("request-id"),
    )


def seconds(text: str | None) -> float | None:
    """A retry-after header in seconds; dates are rare enough to be left to the ordinary back-off."""
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None


def unreachable(flaw: Exception, base_url: str) -> ModelError:
    """Nothing answered, or the line broke."""
    reason = str(flaw) or type(flaw).__name__
    return ModelError(f"no answer from {base_url}: {reason}", kind="connection_failed", retryable=True)
