"""The login to a remote MCP server: the authorization code grant with PKCE, by the official `mcp` package.

    login = await Login.start(spec, connect, tokens, redirect_uri=None)
    login.address                  where the user approves the login; None if the server requires none
    login.accept(callback_url)     the address that the browser was redirected to, if the client received it
    await login.done               the tokens are stored

Without a redirect URI of the client, the browser is redirected to a listener on this machine. Tokens are stored in a
private file together with the client that got them and the metadata of their issuer, and used by later connections.
They are refreshed at that issuer and nowhere else: the package checks the issuer of metadata and of the browser's
redirect, and drops the client if the server names another one.

If the server has refused a request, the login begins with that refusal, because it names the scopes.

Importing this module imports the package; `compose/mcp.py` imports it on demand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from mcp.shared.auth_utils import calculate_token_expiry

from parley.mcp.base import Challenge, ConnectionLost, LoginRefused, LoginTokens, NeedsAuth, ServerSpec
from parley.mcp.content import clean
from parley.protocol.base import Json

LOGIN_SECONDS = 600.0
"""How long the user may take."""
MAX_REQUEST_BYTES = 16 << 10
PROBE: Json = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "parley", "version": "1"},
    },
}
"""A request that a server answers, or rejects without a login."""
PAGE = "<!doctype html><title>Parley</title><p>{text}</p>"


class StoredTokens:
    """What the package stores of one server, kept in the token file."""

    def __init__(self, file: LoginTokens, spec: ServerSpec) -> None:
        self._file = file
        self._key = token_key(spec)

    @property
    def exist(self) -> bool:
        return "tokens" in self._read()

    @property
    def scope(self) -> str | None:
        """What an earlier login was granted."""
        return cast("str | None", self._read().get("tokens", {}).get("scope"))

    def restore(self, context: OAuthContext) -> None:
        """Continue an earlier login: when its token expires, and where it can be refreshed."""
        stored = self._read()
        context.token_expiry_time = stored.get("expires_at")
        if "issuer" in stored:
            context.oauth_metadata = OAuthMetadata.model_validate(stored["issuer"])

    def keep_issuer(self, metadata: OAuthMetadata | None) -> None:
        if metadata is not None:
            self._write("issuer", metadata.model_dump(mode="json", exclude_none=True))

    def _read(self) -> Json:
        found = self._file.read().get(self._key)
        return found if isinstance(found, dict) else {}

    def _write(self, name: str, value: Any) -> None:
        self._file.write({**self._file.read(), self._key: {**self._read(), name: value}})

    def clear(self) -> None:
        kept = self._file.read()
        if kept.pop(self._key, None) is not None:
            self._file.write(kept)

    async def get_tokens(self) -> OAuthToken | None:
        stored = self._read().get("tokens")
        return None if stored is None else OAuthToken.model_validate(stored)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._write("tokens", tokens.model_dump(mode="json", exclude_none=True))
        self._write("expires_at", calculate_token_expiry(tokens.expires_in))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        stored = self._read().get("client")
        return None if stored is None else OAuthClientInformationFull.model_validate(stored)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._write("client", client_info.model_dump(mode="json", exclude_none=True))


def token_key(spec: ServerSpec) -> str:
    """Tokens belong to a name and an address: another server under the same name must not get them."""
    return f"{spec.name} {spec.url}"


def stored_login(spec: ServerSpec, file: LoginTokens | None) -> httpx2.Auth | None:
    """The authorization by an earlier login; None if there is none."""
    if file is None or not (tokens := StoredTokens(file, spec)).exist:
        return None
    provider = OAuthClientProvider(spec.url, client_metadata("http://localhost/callback"), tokens, refuse)
    tokens.restore(provider.context)
    return provider


async def refuse(address: str) -> None:
    """Connections do not log in by themselves."""
    raise NeedsAuth("the server requires a new login")


def client_metadata(redirect_uri: str, scope: str | None = None) -> OAuthClientMetadata:
    return OAuthClientMetadata.model_validate(
        {
            "client_name": "Parley",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": scope,
        }
    )


def configured_client(spec: ServerSpec, redirect_uri: str) -> OAuthClientInformationFull | None:
    """The client that the configuration names; None if one is to be registered."""
    config = spec.oauth or {}
    if not config.get("clientId"):
        return None
    secret = config.get("clientSecret")
    return OAuthClientInformationFull.model_validate(
        {
            "client_id": config["clientId"],
            "client_secret": secret,
            "redirect_uris": [redirect_uri],
            "token_endpoint_auth_method": "client_secret_basic" if secret else "none",
            "issuer": config.get("issuer"),
        }
    )


class ChallengedAuth(httpx2.Auth):
    """A provider that takes an earlier refusal for the answer to the first request."""

    requires_response_body = True

    def __init__(self, provider: OAuthClientProvider, challenge: Challenge) -> None:
        self._provider = provider
        self._challenge: Challenge | None = challenge

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = self._provider.async_auth_flow(request)
        try:
            sent = await anext(flow)
            while True:
                challenge, self._challenge = self._challenge, None
                if challenge is None:
                    response = yield sent
                else:
                    headers = {"www-authenticate": challenge.www_authenticate}
                    response = httpx2.Response(challenge.status, headers=headers, request=sent, content=b"")
                sent = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()


class Login:
    """One attempt to log in to one server."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec
        loop = asyncio.get_running_loop()
        self._shown: asyncio.Future[str] = loop.create_future()
        self._redirected: asyncio.Future[AuthorizationCodeResult] = loop.create_future()
        self._listener: asyncio.Server | None = None
        self.address: str | None = None
        """Where the user approves the login; None if the server requires none."""
        self.port: int | None = None
        """The port of the listener, if there is one."""

    @classmethod
    async def start(
        cls,
        spec: ServerSpec,
        connect: Callable[[httpx2.Auth], httpx2.AsyncClient],
        file: LoginTokens,
        redirect_uri: str | None = None,
        challenge: Challenge | None = None,
    ) -> Login:
        """Start, and wait for the address. Raises LoginRefused or ConnectionLost."""
        login = cls(spec)
        if redirect_uri is None:
            redirect_uri = await login._listen()
        tokens = StoredTokens(file, spec)
        metadata = client_metadata(redirect_uri, tokens.scope)
        tokens.clear()  # a new attempt registers its own redirect URI
        if (client := configured_client(spec, redirect_uri)) is not None:
            await tokens.set_client_info(client)
        login.done = asyncio.create_task(login._run(connect, tokens, metadata, challenge))
        waits: set[asyncio.Future[Any]] = {login.done, login._shown}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if login._shown.done():
            login.address = login._shown.result()
        else:
            await login.done
        return login

    done: asyncio.Task[None]
    """Ends when the tokens are stored. Raises LoginRefused or ConnectionLost."""

    @property
    def state(self) -> str:
        """What the browser's redirect must repeat."""
        return first_values(self.address or "").get("state", "")

    def accept(self, callback_url: str) -> None:
        """Take the address that the browser was redirected to. Raises LoginRefused; then the login still waits."""
        values = first_values(callback_url)
        if "error" in values:
            reason = clean(values.get("error_description") or values["error"])
            if not self._redirected.done():
                self._redirected.set_exception(LoginRefused(f"the login was refused: {reason}"))
            return
        if "code" not in values:
            raise LoginRefused(
                "the callback URL has no authorization code; pass the full URL that the browser was redirected to"
            )
        if values.get("state") != self.state:
            raise LoginRefused("the callback URL belongs to another login (its state differs)")
        if not self._redirected.done():
            self._redirected.set_result(
                AuthorizationCodeResult(code=values["code"], state=values["state"], iss=values.get("iss"))
            )

    async def cancel(self) -> None:
        self.done.cancel()
        await asyncio.gather(self.done, return_exceptions=True)

    async def _run(
        self,
        connect: Callable[[httpx2.Auth], httpx2.AsyncClient],
        tokens: StoredTokens,
        metadata: OAuthClientMetadata,
        challenge: Challenge | None,
    ) -> None:
        try:
            document = (self._spec.oauth or {}).get("clientMetadataUrl")
            provider = OAuthClientProvider(
                self._spec.url, metadata, tokens, self._show, self._wait_for_redirect, client_metadata_url=document
            )
            auth = provider if challenge is None else ChallengedAuth(provider, challenge)
            async with asyncio.timeout(LOGIN_SECONDS), connect(auth) as client:
                headers = {"Accept": "application/json, text/event-stream"}
                async with client.stream("POST", self._spec.url, json=PROBE, headers=headers) as response:
                    status = response.status_code
            tokens.keep_issuer(provider.context.oauth_metadata)
        except TimeoutError:
            raise LoginRefused(f"the login was not completed within {LOGIN_SECONDS:g} s") from None
        except (httpx2.HTTPError, OSError) as exc:
            raise ConnectionLost(f"cannot reach the server: {exc}") from None
        except (ConnectionLost, LoginRefused):
            raise
        except Exception as exc:
            raise LoginRefused(f"the login failed: {clean(str(exc))}") from None
        finally:
            if self._listener is not None:
                self._listener.close()
            self._redirected.cancel()
        if status in (401, 403):
            raise LoginRefused(f"the server rejects the login (HTTP {status})")

    async def _show(self, address: str) -> None:
        if not self._shown.done():
            self._shown.set_result(address)

    async def _wait_for_redirect(self) -> AuthorizationCodeResult:
        return await self._redirected

    # The listener.

    async def _listen(self) -> str:
        """Listen on this machine; returns the redirect URI."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=MAX_REQUEST_BYTES)
        self.port = self._listener.sockets[0].getsockname()[1]
        return f"http://localhost:{self.port}/callback"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            status, text = self._answer(head.split(b"\r\n")[0].decode("latin-1"))
            page = PAGE.format(text=text).encode()
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
                f"Content-Length: {len(page)}\r\nConnection: close\r\n\r\n".encode()
                + page
            )
            await writer.drain()
        writer.close()

    def _answer(self, request_line: str) -> tuple[str, str]:
        """The status and text of the page that the browser shows."""
        method, _, rest = request_line.partition(" ")
        target = rest.partition(" ")[0]
        if method != "GET" or urlsplit(target).path != "/callback":
            return "404 Not Found", "There is no page at this address."
        try:
            self.accept(target)
        except LoginRefused:
            return "400 Bad Request", "This response does not belong to the login in progress."
        return "200 OK", "The login is complete. You can close this window."


def first_values(address: str) -> dict[str, str]:
    try:
        return {key: values[0] for key, values in parse_qs(urlsplit(address).query).items()}
    except ValueError:
        return {}
