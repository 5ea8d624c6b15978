"""Fetch web pages with limits, and without access to private networks.

    page = await web.fetch("https://example.com/a")     # a WebPage, or Moved if it is on another host

A host name is resolved once, all its addresses are checked, and the connection goes to a checked address. The name is
only used in the Host header and the TLS handshake, so DNS rebinding has no effect. Every redirect is checked again; a
redirect to another host is reported, not followed.

httpx2 is imported in a thread when the first page is fetched, as in models/backends/anthropic.py. Proxies from the
environment are not used, because the address behind a proxy cannot be checked.

See also: `url.py` for parsing and public addresses, `tools/web_page.py` for the content of pages.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.url import Url, is_public, read_address, read_url

if TYPE_CHECKING:
    import ssl

    import httpx2

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a host to its IP addresses. Raises OSError."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
COMPRESSIONS = ("gzip", "x-gzip", "deflate")
HEADERS = {
    "accept": "text/html, text/markdown, text/*, application/json, application/xml;q=0.9, */*;q=0.5",
    "accept-encoding": "gzip, deflate",
    "user-agent": "parley",
}


class FetchLimits(Struct, frozen=True, kw_only=True):
    max_bytes: int = 10_000_000
    """The size limit of the decompressed content."""
    seconds: float = 30
    """The timeout from the first lookup to the last byte."""
    connect_seconds: float = 8
    redirects: int = 5


class WebPage(Struct, frozen=True, kw_only=True):
    """The response of a server."""

    url: str
    """The final URL, after redirects."""
    code: int
    reason: str
    content_type: str
    body: bytes


class Moved(Struct, frozen=True, kw_only=True):
    """A redirect to another host, which needs a new permission decision."""

    url: str
    to: str
    code: int
    reason: str


class FetchPolicy(Struct, frozen=True, kw_only=True):
    """Which addresses may be fetched."""

    allow_private: bool = False
    """Whether this machine and its local network may be fetched, too."""
    offline: bool = False
    """Whether nothing may be fetched (`--offline`)."""
    is_public: Callable[[str], bool] = is_public
    find_rule: Callable[[str], str] = lambda address: ""
    """The rule that denies an address, or asks about it; empty if none does."""


class Web:
    """Fetches pages."""

    def __init__(
        self,
        policy: FetchPolicy | None = None,
        *,
        ca_file: str | None = None,
        search_url: str | None = None,
        limits: FetchLimits | None = None,
        resolve: Resolver | None = None,
    ) -> None:
        self._policy = policy or FetchPolicy()
        self._ca_file = ca_file
        """Certificates to trust in addition to the system's."""
        self.search_url = search_url
        """The search endpoint that the user configured: a URL that contains `{query}`."""
        self._limits = limits or FetchLimits()
        self._resolve = resolve or resolve_host
        self._ssl_context: ssl.SSLContext | None = None

    async def fetch(self, text: str, *, own: bool = False) -> WebPage | Moved:
        """Fetch a URL. `own`: the user, not the model, chose it, so it may be private. Raises ToolError."""
        url = read_url(text)
        if self._policy.offline:
            raise ToolError(f"{url} was not fetched: this session runs with --offline.")
        try:
            async with asyncio.timeout(self._limits.seconds):
                for _ in range(self._limits.redirects + 1):
                    # A new client for every step, so that no cookies or connections are reused.
                    async with await self._client(url.scheme) as client:
                        found = await self._step(client, url, own)
                    if not isinstance(found, Url):
                        return found
                    url = found
        except TimeoutError:
            raise ToolError(f"{url} did not respond within {self._limits.seconds:g} seconds.") from None
        raise ToolError(f"{text} redirects more than {self._limits.redirects} times.")

    async def post(self, text: str, headers: Mapping[str, str], body: bytes, *, own: bool = False) -> WebPage:
        """Post to a URL, under the same checks. Redirects are not followed. Raises ToolError."""
        url = read_url(text)
        if self._policy.offline:
            raise ToolError(f"{url} was not called: this session runs with --offline.")
        try:
            async with asyncio.timeout(self._limits.seconds), await self._client(url.scheme) as client:
                response = await self._send(client, url, own, "POST", headers, body)
                try:
                    return await self._page(response, url)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise ToolError(f"{url} did not respond within {self._limits.seconds:g} seconds.") from None

    async def _step(self, client: httpx2.AsyncClient, url: Url, own: bool) -> WebPage | Moved | Url:
        """Request one URL. Returns the page, a redirect to report, or the Url to request next."""
        response = await self._send(client, url, own)
        try:
            if response.status_code not in REDIRECTS or "location" not in response.headers:
                return await self._page(response, url)
        finally:
            await response.aclose()
        target = url.joined(response.headers["location"])
        if url.leads_elsewhere(target):
            return Moved(url=str(url), to=str(target), code=response.status_code, reason=response.reason_phrase)
        return target

    async def _page(self, response: httpx2.Response, url: Url) -> WebPage:
        return WebPage(
            url=str(url),
            code=response.status_code,
            reason=response.reason_phrase,
            content_type=response.headers.get("content-type", ""),
            body=await self._read(response, url),
        )

    async def _send(
        self,
        client: httpx2.AsyncClient,
        url: Url,
        own: bool,
        method: str = "GET",
        more_headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> httpx2.Response:
        """Send the request. The body of the response is not read yet."""
        import httpx2

        error: Exception | None = None
        for address in await self._addresses(url, own):
            try:
                # Connect to the checked address; the name is only sent to the server.
                address_url = httpx2.URL(scheme=url.scheme, host=address, port=url.port, raw_path=url.target.encode())
                headers = {**HEADERS, **(more_headers or {}), "host": url.authority}
                request = client.build_request(
                    method, address_url, headers=headers, content=body, extensions={"sni_hostname": url.host}
                )
                return await client.send(request, stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
                error = exc
            except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
                raise unreachable(url, exc) from None
        raise unreachable(url, error)

    async def _addresses(self, url: Url, own: bool) -> list[str]:
        """The addresses of a host. If one of them is private or a rule is about it, all are refused.

        What a name resolves to is not known when a call is decided. The decision covers an address in the URL itself.
        """
        try:
            found = await self._resolve(url.host, url.port)
        except (OSError, UnicodeError) as exc:
            raise ToolError(f"The host {url.host} was not found: {exc}") from None
        private_addresses = [address for address in found if not self._policy.is_public(address)]
        if private_addresses and not (own or self._policy.allow_private):
            raise ToolError(
                f"{url.host} was not fetched, because its address {private_addresses[0]} is not public. "
                "The user can allow private addresses with PARLEY_WEBFETCH_ALLOW_PRIVATE=1."
            )
        for address in found if not own else ():
            if read_address(url.host) is None and (rule := self._policy.find_rule(address)):
                raise ToolError(
                    f"{url.host} was not fetched: its address is {address}, and the rule {rule} is about that address."
                )
        return found

    async def _read(self, response: httpx2.Response, url: Url) -> bytes:
        import httpx2

        body = BodyDecoder(response.headers.get("content-encoding", ""), self._limits.max_bytes)
        try:
            async for chunk in response.aiter_raw():
                body.add(chunk)
        except httpx2.HTTPError as exc:
            raise unreachable(url, exc) from None
        except zlib.error as exc:
            raise ToolError(f"The content of {url} cannot be decompressed: {exc}") from None
        return bytes(body.content)

    async def _client(self, scheme: str) -> httpx2.AsyncClient:
        if scheme == "https" and self._ssl_context is None:
            self._ssl_context = await asyncio.to_thread(make_ssl_context, self._ca_file)
        await asyncio.to_thread(__import__, "httpx2")
        import httpx2

        times = httpx2.Timeout(None, connect=self._limits.connect_seconds)
        verify = self._ssl_context if self._ssl_context is not None else False  # False only without TLS
        return httpx2.AsyncClient(verify=verify, timeout=times, trust_env=False, follow_redirects=False)


class BodyDecoder:
    """Decompresses content up to the limit, because a small response may decompress to a huge one."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        encoding_name = encoding.strip().lower()
        if encoding_name not in (*COMPRESSIONS, "", "identity"):
            raise ToolError(f"The content encoding {encoding_name!r} is not supported.")
        self.content = bytearray()
        self._max_bytes = max_bytes
        # Accept both gzip and zlib headers.
        self._decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding_name in COMPRESSIONS else None

    def add(self, chunk: bytes) -> None:
        """Raises ToolError above the size limit, zlib.error for invalid data."""
        room = self._max_bytes - len(self.content)
        self.content += chunk if self._decompressor is None else self._decompressor.decompress(chunk, room + 1)
        if len(self.content) > self._max_bytes:
            raise ToolError(
                f"The content is larger than {self._max_bytes / 1_000_000:g} MB, which is too much to fetch. "
                "Download it to a file with Bash and read a part of it."
            )


def make_ssl_context(ca_file: str | None) -> ssl.SSLContext:
    """The TLS context with trusted certificates. Slow: imports httpx2 and reads the system's certificates."""
    import httpx2

    context = httpx2.create_ssl_context()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as exc:
            raise ToolError(f"The certificates in {ca_file} cannot be read: {exc}") from None
    return context


async def resolve_host(host: str, port: int) -> list[str]:
    """Resolve a host with the system resolver. Numeric forms (2130706433, 0177.0.0.1) become plain addresses."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def unreachable(url: Url, error: Exception | None) -> ToolError:
    return ToolError(f"{url} could not be fetched: {error or 'no address responds'}")
