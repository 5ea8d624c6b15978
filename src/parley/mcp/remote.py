"""Remote MCP servers over streamable HTTP or SSE, with the transports of the official `mcp` package.

The package handles sessions, resumption, redirects and OAuth. Our HTTP client limits the size of responses.

OAuth works without user interaction, with the client credentials grant:

    {"type": "http", "url": "...", "oauth": {"clientId": "...", "clientSecret": "${SECRET}", "issuer": "..."}}

A server that requires a login has the status `needs-auth` until a user logs in (oauth.py). Without `issuer` or
`clientSecret`, the configuration names the client of that login. An existing token can be configured as a header.

Importing this module imports the package, which takes most of a second; `compose/mcp.py` imports it on demand.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import jsonrpc_message_adapter

from parley.jsonrpc import METHOD_NOT_FOUND
from parley.mcp.base import REFUSED, Challenge, ConnectionLost, LoginTokens, NeedsAuth, ServerSpec, ServerTransport
from parley.mcp.client import MAX_LISTED, PROBE_IDS, as_object
from parley.mcp.content import LEFT_OUT_KEY
from parley.mcp.oauth import StoredTokens, stored_login
from parley.mcp.tool_server import VERSION_KEY
from parley.protocol.base import Json

MAX_BYTES = 32 << 20
"""The limit for one response or one stream event, after decompression."""
STREAM_SECONDS = 0.5
"""The shortest time between two requests for a stream, whatever delay the server asks for."""
KEPT_ERRORS = 4
"""A server can cause any number of errors; the last ones say why a request failed."""
CONNECT_SECONDS = 30.0
GRACE_SECONDS = 0.5
"""How long closing the session may take."""
ACCEPTED = "gzip, deflate"
CODINGS = ("identity", "gzip", "x-gzip", "deflate")
UNAUTHORIZED = (401, 403)
BAD_PROXY = "the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY is invalid"
SESSION_HEADER = "mcp-session-id"
NAMED_BY = {**NAME_BEARING_METHODS, "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
"""Which parameter of a request is repeated in the header `Mcp-Name`."""
STAND_INS = ("Not Found", "Session terminated", "Server returned an error response")
"""What the package reports if the body of an HTTP error is not a JSON-RPC error."""
LOGIN_OAUTH = ("clientId", "clientMetadataUrl")

for name in ("mcp", "client", "httpx2", "httpcore2"):
    # These libraries must not log to stderr. Errors are reported in the server's status.
    logging.getLogger(name).addHandler(logging.NullHandler())
    logging.getLogger(name).propagate = False


class ResponseTooLarge(httpx2.StreamError):
    """A response is larger than the limit."""


class SessionExpired(ConnectionLost):
    """The server no longer knows the session, probably because it restarted."""


class RemoteTransport(ServerTransport):
    """What both transports share: two streams and the task that holds them open."""

    def __init__(
        self,
        spec: ServerSpec,
        proxy: str | None = None,
        trust: Callable[[], ssl.SSLContext] = httpx2.create_ssl_context,
        tokens: LoginTokens | None = None,
    ) -> None:
        super().__init__()
        self._spec = spec
        self._tokens = tokens
        self._proxy = proxy
        self._trust = trust
        """Creates the TLS client context."""
        self._context: ssl.SSLContext | bool = True
        self._write: Any = None
        self._version: str | None = None
        """The revision that the handshake agreed on."""
        self._parameters: dict[str, dict[tuple[str, ...], str]] = {}
        """Which arguments of a tool are repeated in headers, for servers without a handshake."""
        self._errors: deque[Exception] = deque(maxlen=KEPT_ERRORS)
        """Errors of the HTTP client. The package reports only that a request failed."""
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None

    checked_methods: tuple[str, ...] = ("GET", "POST")
    """Methods whose failure means that the connection failed."""

    def transport(self) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    async def open(self, on_message: Callable[[Json], None], on_lost: Callable[[ConnectionLost | str], None]) -> None:
        """Raises ConnectionLost."""
        await super().open(on_message, on_lost)
        loop = asyncio.get_running_loop()
        try:
            self._context = await asyncio.to_thread(self._trust)
        except OSError as exc:
            raise ConnectionLost(f"cannot read the certificates in SSL_CERT_FILE or SSL_CERT_DIR: {exc}") from None
        self._opened = loop.create_future()
        self._task = loop.create_task(self._run(self._opened))
        await asyncio.shield(self._opened)

    async def send(self, message: Json) -> None:
        """Raises ConnectionLost."""
        session_message = SessionMessage(
            jsonrpc_message_adapter.validate_python(message),
            ClientMessageMetadata(headers=self._make_headers(message) or None),
        )
        try:
            await self._write.send(session_message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise self._reason("the connection was closed") from None

    def _make_headers(self, message: Json) -> dict[str, str]:
        """What proxies can read of a message. A request without a handshake repeats parts of its body."""
        method, params = str(message.get("method")), as_object(message.get("params"))
        version = as_object(params.get("_meta")).get(VERSION_KEY)
        if version is None:
            return {MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version else {}
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
        if isinstance(name := params.get(NAMED_BY.get(method, "")), str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
        if method == "tools/call":
            headers |= mcp_param_headers(self._parameters.get(str(name), {}), as_object(params.get("arguments")))
        return headers

    async def close(self) -> None:
        self._silence()
        if self._task is None:
            return
        for _ in range(2):  # the package ends the session on the server, which may not answer
            self._task.cancel()
            if (await asyncio.wait({self._task}, timeout=GRACE_SECONDS))[0]:
                break

    async def _run(self, opened: asyncio.Future[None]) -> None:
        """Hold the transport open. Its scopes must be exited by the task that entered them."""
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
            self._on_lost(reason)
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
        if self._version is None and isinstance(result, dict) and isinstance(result.get("tools"), list):
            result["tools"] = [self._read_tool(tool) for tool in result["tools"] if isinstance(tool, dict)]
        error = message.get("error")
        if isinstance(error, dict) and self._errors:
            # The package reports only "an error response"; our client knows the cause.
            reason = self._reason(str(error.get("message", "")))
            is_probe = message.get("id") in PROBE_IDS
            is_partial = self.challenge is not None and self.challenge.is_about_scope
            if (isinstance(reason, NeedsAuth) and not is_probe and not is_partial) or (
                isinstance(reason, SessionExpired) and error.get("code") != METHOD_NOT_FOUND
            ):
                self._on_lost(reason)
            if error.get("message") in STAND_INS or isinstance(reason, NeedsAuth | SessionExpired):
                code = REFUSED if is_probe and isinstance(reason, NeedsAuth) else error.get("code")
                message["error"] = {**error, "code": code, "message": str(reason)}
        self._on_message(message)

    def _read_tool(self, tool: Json) -> Json:
        """Remember which arguments are repeated in headers. A tool that asks for invalid headers cannot be called."""
        schema = tool.get("inputSchema")
        if problem := find_invalid_x_mcp_header(schema):
            return {**tool, "_meta": {**as_object(tool.get("_meta")), LEFT_OUT_KEY: problem}}
        name = str(tool.get("name"))
        self._parameters.pop(name, None)
        if (parameters := x_mcp_header_map(schema)) and len(self._parameters) < MAX_LISTED:
            self._parameters[name] = parameters
        return tool

    async def _notice_refusal(self, response: httpx2.Response) -> None:
        if response.status_code in UNAUTHORIZED and response.request.method == "POST":
            self.challenge = Challenge(response.status_code, response.headers.get("www-authenticate", ""))

    def _reason(self, default: str) -> ConnectionLost:
        return next(
            (reason for exc in reversed(self._errors) if (reason := describe_failure(exc)) is not None),
            ConnectionLost(default),
        )

    def client(self, **more: Any) -> httpx2.AsyncClient:
        """An HTTP client for this server. Raises ConnectionLost if the proxy is invalid."""
        arguments: dict[str, Any] = {
            "headers": self._spec.headers,
            "timeout": httpx2.Timeout(CONNECT_SECONDS, read=None),
            "auth": create_provider(self._spec, self._tokens),
            "transport": make_transport(self._context, self._proxy, self._errors, self.checked_methods),
            "event_hooks": {"response": [self._notice_refusal]},
        }
        return httpx2.AsyncClient(**{**arguments, **{key: value for key, value in more.items() if value is not None}})


def make_login_client(
    spec: ServerSpec, proxy: str | None, context: ssl.SSLContext, auth: httpx2.Auth
) -> httpx2.AsyncClient:
    """An HTTP client for a login. Raises ConnectionLost if the proxy is invalid."""
    transport = make_transport(context, proxy, deque())
    timeout = httpx2.Timeout(CONNECT_SECONDS)
    return httpx2.AsyncClient(headers=spec.headers, timeout=timeout, auth=auth, transport=transport)


def make_transport(
    context: ssl.SSLContext | bool,
    proxy: str | None,
    errors: deque[Exception],
    checked_methods: tuple[str, ...] = ("GET", "POST"),
) -> BoundedTransport:
    """Raises ConnectionLost."""
    try:
        inner = httpx2.AsyncHTTPTransport(verify=context, proxy=proxy)
    except (ImportError, ValueError, httpx2.InvalidURL):  # the exception's text may contain the proxy's password
        raise ConnectionLost(BAD_PROXY) from None
    return BoundedTransport(inner, errors, checked_methods)


class Http(RemoteTransport):
    checked_methods = ("POST",)  # the GET stream is optional

    @contextlib.asynccontextmanager
    async def transport(self) -> AsyncIterator[Any]:
        async with (
            self.client() as client,
            streamable_http_client(self._spec.url, http_client=client, max_sse_event_size=MAX_BYTES) as streams,
        ):
            yield streams


class Sse(RemoteTransport):
    def transport(self) -> AbstractAsyncContextManager[Any]:
        def factory(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
            return self.client(headers=headers, auth=auth)

        return sse_client(self._spec.url, headers=self._spec.headers, httpx_client_factory=factory)


class BoundedTransport(httpx2.AsyncBaseTransport):
    """An HTTP transport that records failures and limits the size of responses."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        errors: deque[Exception],
        checked_methods: tuple[str, ...],
    ) -> None:
        self._inner = inner
        self._errors = errors
        self._checked_methods = checked_methods
        self._next_stream_at = 0.0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = ACCEPTED
        if request.method == "GET" and "text/event-stream" in request.headers.get("accept", ""):
            now = asyncio.get_running_loop().time()
            start_at = max(now, self._next_stream_at)
            self._next_stream_at = start_at + STREAM_SECONDS
            await asyncio.sleep(start_at - now)
        try:
            response = await self._inner.handle_async_request(request)
        except Exception as exc:
            if request.method in self._checked_methods:
                self._errors.append(exc)
            raise
        if response.status_code >= 400 and request.method in self._checked_methods:
            self._errors.append(httpx2.HTTPStatusError("", request=request, response=response))
        elif response.status_code < 300:
            self._errors.clear()
        if "text/event-stream" not in response.headers.get("content-type", ""):
            # Decompressed here, because the client's own decoders have no limit.
            response.stream = CountedStream(response.stream, response.headers.pop("content-encoding", "identity"))
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class CountedStream(httpx2.AsyncByteStream):
    """The decompressed body of a response, up to the limit."""

    def __init__(self, inner: Any, coding: str) -> None:
        self._inner = inner
        self._coding = coding.lower()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        if self._coding not in CODINGS:
            raise httpx2.DecodingError(f"the response is compressed with {self._coding[:100]}, which was not requested")
        decoder = None if self._coding == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
        async for data in self._inner:
            try:
                chunk = data if decoder is None else decoder.decompress(data, MAX_BYTES + 1 - total)
            except zlib.error as exc:
                raise httpx2.DecodingError(f"the response cannot be decompressed: {exc}") from None
            total += len(chunk)
            if total > MAX_BYTES:
                raise ResponseTooLarge(f"the response is larger than {MAX_BYTES >> 20} MB")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def describe_failure(exc: BaseException) -> ConnectionLost | None:
    """The reason to report for an exception; None if it has no text."""
    match exc:
        case BaseExceptionGroup():
            return next((found for inner in exc.exceptions if (found := describe_failure(inner)) is not None), None)
        case ConnectionLost():
            return exc
        case httpx2.HTTPStatusError() if exc.response.status_code in UNAUTHORIZED:
            return NeedsAuth(f"the server requires authorization (HTTP {exc.response.status_code})")
        case httpx2.HTTPStatusError() if exc.response.status_code == 404 and SESSION_HEADER in exc.request.headers:
            return SessionExpired("the server no longer knows the session (HTTP 404)")
        case httpx2.HTTPStatusError():
            return ConnectionLost(f"the server answered with HTTP {exc.response.status_code}")
        case httpx2.TimeoutException():
            return ConnectionLost("the server did not answer in time")
        case httpx2.TransportError() | OSError():
            return ConnectionLost(f"cannot reach the server: {exc}")
        case ResponseTooLarge() | httpx2.SSEError():
            return ConnectionLost(str(exc))
    if type(exc).__module__.startswith("mcp.client.auth"):
        return NeedsAuth(f"authorization failed: {exc}")
    return ConnectionLost(f"{type(exc).__name__}: {exc}") if str(exc) else None


class UnsavedTokens:
    """A token file of one connection. The next connection requests new tokens."""

    def __init__(self) -> None:
        self._tokens: Json = {}

    def read(self) -> Json:
        return self._tokens

    def write(self, tokens: Json) -> None:
        self._tokens = tokens


def create_provider(spec: ServerSpec, tokens: LoginTokens | None = None) -> httpx2.Auth | None:
    """The authorization of requests: as configured, or by an earlier login; None if there is none.

    Raises ConnectionLost if the configuration is invalid.
    """
    config: dict[str, Any] = spec.oauth or {}
    if not spec.has_credentials:
        if spec.oauth is not None and not any(isinstance(config.get(key), str) for key in LOGIN_OAUTH):
            raise ConnectionLost(f"the oauth configuration has neither {' nor '.join(LOGIN_OAUTH)}")
        return stored_login(spec, tokens)
    scope = config.get("scope")
    return ClientCredentialsOAuthProvider(
        server_url=spec.url,
        storage=StoredTokens(UnsavedTokens(), spec),
        client_id=config["clientId"],
        client_secret=config["clientSecret"],
        scope=scope if isinstance(scope, str) else None,
        issuer=config["issuer"],
    )
