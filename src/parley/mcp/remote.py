"""Servers behind a URL: streamable HTTP and SSE, over the transports of the official `mcp` package.

The package does what is hard there: sessions, resumption, redirects that stay at home, OAuth.
We give it an HTTP client that knows limits: what a server sends is not read without end.

Loading this module loads the package, which takes most of a second: see compose/mcp.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import jsonrpc_message_adapter

from parley.mcp.base import ConnectionLost, NeedsAuth, ServerSpec
from parley.mcp.client import METHOD_NOT_FOUND
from parley.mcp.oauth import create_provider
from parley.protocol.base import Json

MOST_BYTES = 32 << 20
"""Of one answer, or of one event of a stream."""
CONNECT_SECONDS = 30.0
GRACE_SECONDS = 0.5
"""How long a server has to say goodbye."""
UNAUTHORIZED = (401, 403)
BAD_PROXY = "the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names cannot be used"
SESSION_HEADER = "mcp-session-id"

for name in ("mcp", "client", "httpx2", "httpcore2"):
    # stderr is for people; what they should know is in the state of a server, with its reason.
    logging.getLogger(name).addHandler(logging.NullHandler())
    logging.getLogger(name).propagate = False


class ResponseTooLarge(httpx2.StreamError):
    """A server sent more than anybody can want."""


class SessionExpired(ConnectionLost):
    """A server does not know the session any more: it was started anew, most likely."""


class RemoteTransport:
    """What both transports have in common: two streams, and a task that lives between them."""

    def __init__(
        self,
        spec: ServerSpec,
        proxy: str | None = None,
        trust: Callable[[], ssl.SSLContext] = httpx2.create_ssl_context,
    ) -> None:
        self._spec = spec
        self._proxy = proxy
        self._trust = trust
        """Makes the context of a TLS client."""
        self._context: ssl.SSLContext | bool = True
        self._take: Callable[[Json], None] = lambda message: None
        self._lost: Callable[[ConnectionLost | str], None] = lambda reason: None
        self._write: Any = None
        self._version: str | None = None
        self._errors: list[Exception] = []
        """What went wrong below, where the package tells only that something did."""
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None

    checked_methods: tuple[str, ...] = ("GET", "POST")
    """The requests whose failure is one of the connection."""

    def transport(self) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    async def open(self, take: Callable[[Json], None], lost: Callable[[ConnectionLost | str], None]) -> None:
        """Raises Lost."""
        self._take, self._lost = take, lost
        loop = asyncio.get_running_loop()
        try:
            self._context = await asyncio.to_thread(self._trust)
        except OSError as exc:
            raise ConnectionLost(
                f"the certificates that SSL_CERT_FILE or SSL_CERT_DIR name cannot be read: {exc}"
            ) from None
        self._opened = loop.create_future()
        self._task = loop.create_task(self._run(self._opened))
        await asyncio.shield(self._opened)

    async def send(self, message: Json) -> None:
        """Raises Lost."""
        headers = {MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version else None
        made = SessionMessage(jsonrpc_message_adapter.validate_python(message), ClientMessageMetadata(headers=headers))
        try:
            await self._write.send(made)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise self._reason("the connection was closed") from None

    async def close(self) -> None:
        self._take, self._lost = lambda message: None, lambda reason: None
        if self._task is None:
            return
        for _ in range(2):  # the package takes its leave of the server, which may never answer
            self._task.cancel()
            if (await asyncio.wait({self._task}, timeout=GRACE_SECONDS))[0]:
                break

    def stderr_tail(self) -> str:
        return ""

    async def _run(self, opened: asyncio.Future[None]) -> None:
        """Hold the transport open: its scopes must be left by the task that entered them."""
        try:
            async with self.transport() as (read, self._write):
                opened.set_result(None)
                async for item in read:
                    self._receive(item)
            reason = self._reason("the connection was closed")
        except Exception as exc:
            self._errors.append(exc)
            reason = self._reason("the connection failed")
        if opened.done():
            self._lost(reason)
        else:
            opened.set_exception(reason)

    def _receive(self, item: SessionMessage | Exception) -> None:
        if isinstance(item, Exception):
            self._errors.append(item)
            return
        message: Json = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        result = message.get("result")
        if self._version is None and isinstance(result, dict) and isinstance(result.get("protocolVersion"), str):
            self._version = result["protocolVersion"]
        error = message.get("error")
        if isinstance(error, dict) and self._errors:
            # The package says "an error response"; we know which.
            reason = self._reason(str(error.get("message", "")))
            if isinstance(reason, NeedsAuth) or (
                isinstance(reason, SessionExpired) and error.get("code") != METHOD_NOT_FOUND
            ):
                self._lost(reason)
            message["error"] = {**error, "message": str(reason)}
        self._take(message)

    def _reason(self, otherwise: str) -> ConnectionLost:
        return next(
            (told for flaw in reversed(self._errors) if (told := describe_failure(flaw)) is not None),
            ConnectionLost(otherwise),
        )

    def client(self, **more: Any) -> httpx2.AsyncClient:
        """An HTTP client for this server. Raises Lost if it cannot be had."""
        try:
            inner = httpx2.AsyncHTTPTransport(verify=self._context, proxy=self._proxy)
        except (ImportError, ValueError, httpx2.InvalidURL):  # its own words would show a password in the proxy's URL
            raise ConnectionLost(BAD_PROXY) from None
        given: dict[str, Any] = {
            "headers": self._spec.headers,
            "timeout": httpx2.Timeout(CONNECT_SECONDS, read=None),
            "auth": create_provider(self._spec),
            "transport": BoundedTransport(inner, self._errors, self.checked_methods),
        }
        return httpx2.AsyncClient(**{**given, **{key: value for key, value in more.items() if value is not None}})


class Http(RemoteTransport):
    checked_methods = ("POST",)  # a server need not have the stream that GET asks for

    @contextlib.asynccontextmanager
    async def transport(self) -> AsyncIterator[Any]:
        async with (
            self.client() as client,
            streamable_http_client(self._spec.url, http_client=client, max_sse_event_size=MOST_BYTES) as streams,
        ):
            yield streams


class Sse(RemoteTransport):
    def transport(self) -> AbstractAsyncContextManager[Any]:
        def factory(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
            return self.client(headers=headers, auth=auth)

        return sse_client(self._spec.url, headers=self._spec.headers, httpx_client_factory=factory)


class BoundedTransport(httpx2.AsyncBaseTransport):
    """A transport that notes what fails, and stops reading an answer that does not end."""

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, trouble: list[Exception], telling: tuple[str, ...] = ("GET", "POST")
    ) -> None:
        self._inner = inner
        self._trouble = trouble
        self._telling = telling

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except Exception as exc:
            if request.method in self._telling:
                self._trouble.append(exc)
            raise
        if response.status_code >= 400 and request.method in self._telling:
            self._trouble.append(httpx2.HTTPStatusError("", request=request, response=response))
        elif response.status_code < 300:
            self._trouble.clear()
        if "text/event-stream" not in response.headers.get("content-type", ""):
            response.stream = CountedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class CountedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._inner:
            total += len(chunk)
            if total > MOST_BYTES:
                raise ResponseTooLarge(f"an answer of more than {MOST_BYTES >> 20} MB is not read")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def describe_failure(flaw: BaseException) -> ConnectionLost | None:
    """What a person reads of a failure; None if it says nothing."""
    match flaw:
        case BaseExceptionGroup():
            return next((told for inner in flaw.exceptions if (told := describe_failure(inner)) is not None), None)
        case ConnectionLost():
            return flaw
        case httpx2.HTTPStatusError() if flaw.response.status_code in UNAUTHORIZED:
            return NeedsAuth(f"the server wants authorization (HTTP {flaw.response.status_code})")
        case httpx2.HTTPStatusError() if flaw.response.status_code == 404 and SESSION_HEADER in flaw.request.headers:
            return SessionExpired("the server does not know the session any more (HTTP 404)")
        case httpx2.HTTPStatusError():
            return ConnectionLost(f"the server answered with HTTP {flaw.response.status_code}")
        case httpx2.TimeoutException():
            return ConnectionLost("the server did not answer in time")
        case httpx2.TransportError() | OSError():
            return ConnectionLost(f"the server cannot be reached: {flaw}")
        case ResponseTooLarge() | httpx2.SSEError():
            return ConnectionLost(str(flaw))
    if type(flaw).__module__.startswith("mcp.client.auth"):
        return NeedsAuth(f"authorization failed: {flaw}")
    return ConnectionLost(f"{type(flaw).__name__}: {flaw}") if str(flaw) else None
