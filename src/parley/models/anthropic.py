"""The Anthropic Messages API, at any base URL.

httpx2 is imported when the first call is made (it costs more than the whole engine),
in a thread, so that the loop stays free. The stream is read by our own SSE reader and
its events are passed on byte for byte.

The key goes into a header and nowhere else; a redirect to another origin is refused
rather than followed with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from parley.errors import ModelError
from parley.models.base import Event, ModelRequest, read_event
from parley.models.patience import Patience
from parley.models.sse import EventReader
from parley.protocol.base import Json, Struct

if TYPE_CHECKING:
    import httpx2

API_VERSION = "2023-06-01"
RETRYABLE = frozenset({401, 408, 409, 429, 500, 502, 503, 504, 529})
"""401 too: a key helper or a gateway may have refreshed the key meanwhile."""
BAD_PROXY = (
    "the model cannot be asked: the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names cannot be used "
    "(it must be http://host:port or https://host:port)"
)


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

    def __repr__(self) -> str:
        return f"Endpoint({without_userinfo(self.base_url)})"


class Anthropic:
    """One connection pool to one endpoint.

    The endpoint may be a function that finds it: a key helper takes its time, so it is
    called in a thread, when the first request needs it and again after a key was refused.
    """

    def __init__(self, endpoint: Endpoint | Callable[[], Endpoint], deadlines: Deadlines | None = None) -> None:
        self._find = endpoint if callable(endpoint) else None
        self._endpoint: Endpoint | None = None if callable(endpoint) else endpoint
        self._deadlines = deadlines or Deadlines()
        self._client: httpx2.AsyncClient | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        """The events of one answer. Raises ModelError."""
        endpoint = await self._found()
        client = await self._connected(endpoint)
        import httpx2

        limits = self._deadlines
        url = f"{endpoint.base_url.rstrip('/')}/v1/messages"
        content = msgspec.json.encode(body(request, endpoint.extra_body))
        response = None
        loop = asyncio.get_running_loop()
        last_moment = loop.time() + limits.request_seconds
        try:
            call = client.build_request("POST", url, content=content, headers=headers(request, endpoint))
            # Only waits for the backend are bounded: what happens between two events is the turn's own time.
            async with Patience() as patience:
                response = await patience.on(client.send(call, stream=True), limits.first_byte_seconds)
                if response.status_code != 200:
                    content = await patience.on(response.aread(), limits.silence_seconds)
                    if response.status_code == 401 and self._find is not None:
                        self._endpoint = None
                    raise failure(response.status_code, response.headers, content)
                request_id = response.headers.get("request-id")
                reader, chunks = EventReader(), response.aiter_raw()
                while True:
                    seconds = min(limits.silence_seconds, last_moment - loop.time())
                    chunk = await patience.on(anext(chunks, None), seconds)
                    for data in reader.end() if chunk is None else reader.feed(chunk):
                        event = understood(data)
                        if event.type == "message_start":
                            event.request_id = request_id
                        yield event
                    if chunk is None:
                        return
        except TimeoutError:
            raise ModelError("the model did not answer in time", kind="timeout_error", retryable=True) from None
        except (httpx2.LocalProtocolError, UnicodeEncodeError):
            # The flaw's own words would show the header, which may be the key.
            raise ModelError("the request cannot be sent: a header has a value that no header may have") from None
        except (httpx2.TransportError, httpx2.InvalidURL) as flaw:
            raise unreachable(flaw, endpoint.base_url) from None
        finally:
            if response is not None:
                await response.aclose()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _found(self) -> Endpoint:
        """Raises ModelError."""
        if self._endpoint is None and self._find is not None:
            self._endpoint = await asyncio.to_thread(self._find)
        assert self._endpoint is not None
        return self._endpoint

    async def _connected(self, endpoint: Endpoint) -> httpx2.AsyncClient:
        """Raises ModelError."""
        if self._client is None:
            await asyncio.to_thread(__import__, "httpx2")
            import httpx2

            # We watch the clock ourselves: a timeout per read would not see a drip of pings.
            times = httpx2.Timeout(None, connect=self._deadlines.connect_seconds)
            # An idle connection may be dead: it is not used again after half a minute.
            limits = httpx2.Limits(keepalive_expiry=30)
            # Reading the certificates takes 40 ms; plain HTTP has no use for them.
            verify = False if endpoint.base_url.startswith("http:") else httpx2.create_ssl_context()
            try:
                self._client = httpx2.AsyncClient(
                    timeout=times,
                    limits=limits,
                    verify=verify,
                    follow_redirects=False,
                    # A proxy is for other machines: it would look for a server on its own.
                    trust_env=not is_loopback(endpoint.base_url),
                )
            except (ImportError, ValueError, httpx2.InvalidURL):
                # The flaw's own words would show the proxy's URL, which may have a password.
                raise ModelError(BAD_PROXY, kind="proxy") from None
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
    where = without_userinfo(base_url)
    return ModelError(f"no answer from {where}: {reason}", kind="connection_failed", retryable=True)


def is_loopback(url: str) -> bool:
    """Whether a URL is this machine's own."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def without_userinfo(url: str) -> str:
    """A URL fit to be shown: a password may stand before its host."""
    scheme, slashes, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}"
