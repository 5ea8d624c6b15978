"""The door to the network: one page, fetched with limits.

    page = await web.fetch("https://example.com/a")     # a Page, or Moved if it is on another host

A name is resolved once, every address it has is judged, and the connection goes to a
judged address: the name is only in the Host header and in the TLS greeting. So a name
that changes its address between the look and the step (rebinding) gains nothing. Every
redirect is judged anew; one that leads to another host is reported, not followed.

httpx2 is imported when the first page is fetched, in a thread, as models/backends/anthropic.py does.
Proxies of the environment are not used: behind one, nobody knows which address is reached.

Not here: what a URL is and which addresses are public (url.py), what a page says
(tools/web/page.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.workspace.url import Url, is_public, read_url

if TYPE_CHECKING:
    import ssl

    import httpx2

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host. Raises OSError."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PACKED = ("gzip", "x-gzip", "deflate")
HEADERS = {
    "accept": "text/html, text/markdown, text/*, application/json, application/xml;q=0.9, */*;q=0.5",
    "accept-encoding": "gzip, deflate",
    "user-agent": "parley",
}


class Limits(Struct, frozen=True, kw_only=True):
    max_bytes: int = 10_000_000
    """Of the content, unpacked."""
    seconds: float = 30
    """From the first look-up to the last byte."""
    connect_seconds: float = 8
    redirects: int = 5


class Page(Struct, frozen=True, kw_only=True):
    """What a server answered."""

    url: str
    """Where it was found, redirects followed."""
    code: int
    reason: str
    content_type: str
    body: bytes


class Moved(Struct, frozen=True, kw_only=True):
    """What was asked for is on another host; going there takes another decision."""

    url: str
    to: str
    code: int
    reason: str


class Web:
    """Fetches pages. `allow_private` opens this machine and its neighbours as well."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        ca_file: str | None = None,
        search_url: str | None = None,
        limits: Limits | None = None,
        resolve: Resolver | None = None,
        judge: Callable[[str], bool] = is_public,
        closed: bool = False,
    ) -> None:
        self._closed = closed
        """Whether nothing may be fetched at all."""
        self._allow_private = allow_private
        self._judge = judge
        """Whether an address is the public's."""
        self._ca_file = ca_file
        """Certificates to trust besides the machine's own."""
        self.search_url = search_url
        """Where to search: a URL with `{query}` in it, chosen by the person."""
        self._limits = limits or Limits()
        self._resolve = resolve or look_up
        self._trust: ssl.SSLContext | None = None

    async def fetch(self, text: str, *, own: bool = False) -> Page | Moved:
        """The page at a URL; `own` says that the person, not the model, chose it. Raises ToolError."""
        url = read_url(text)
        if self._closed:
            raise ToolError(f"{url} was not fetched: this session runs with --offline.")
        try:
            async with asyncio.timeout(self._limits.seconds):
                for _ in range(self._limits.redirects + 1):
                    # A client for every step: no cookie and no connection is carried over.
                    async with await self._client(url.scheme) as client:
                        found = await self._step(client, url, own or self._allow_private)
                    if not isinstance(found, Url):
                        return found
                    url = found
        except TimeoutError:
            raise ToolError(f"{url} did not answer within {self._limits.seconds:g} seconds.") from None
        raise ToolError(f"{text} redirects too often: more than {self._limits.redirects} times.")

    async def _step(self, client: httpx2.AsyncClient, url: Url, private: bool) -> Page | Moved | Url:
        """The page, or where it is; a Url is one to go on to."""
        answer = await self._get(client, url, private)
        try:
            code, reason, headers = answer.status_code, answer.reason_phrase, answer.headers
            if code not in REDIRECTS or "location" not in headers:
                kind = headers.get("content-type", "")
                body = await self._read(answer, url)
                return Page(url=str(url), code=code, reason=reason, content_type=kind, body=body)
        finally:
            await answer.aclose()
        onward = url.joined(headers["location"])
        if url.leads_elsewhere(onward):
            return Moved(url=str(url), to=str(onward), code=code, reason=reason)
        return onward

    async def _get(self, client: httpx2.AsyncClient, url: Url, private: bool) -> httpx2.Response:
        """The answer, its body still to be read."""
        import httpx2

        flaw: Exception | None = None
        for address in await self._addresses(url, private):
            try:
                # The client sees the address; the name is for the server alone.
                there = httpx2.URL(scheme=url.scheme, host=address, port=url.port, raw_path=url.target.encode())
                headers = {**HEADERS, "host": url.authority}
                request = client.build_request("GET", there, headers=headers, extensions={"sni_hostname": url.host})
                return await client.send(request, stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as failed:
                flaw = failed
            except (httpx2.HTTPError, httpx2.InvalidURL) as failed:
                raise unreachable(url, failed) from None
        raise unreachable(url, flaw)

    async def _addresses(self, url: Url, private: bool) -> list[str]:
        """Where it may be reached. One address that is not the public's spoils them all."""
        try:
            found = await self._resolve(url.host, url.port)
        except (OSError, UnicodeError) as flaw:
            raise ToolError(f"The host {url.host} was not found: {flaw}") from None
        inner = [address for address in found if not self._judge(address)]
        if inner and not private:
            raise ToolError(
                f"{url.host} is at {inner[0]}, which is not an address of the public network, so it is not fetched. "
                "If the user wants it fetched, they can set PARLEY_WEBFETCH_ALLOW_PRIVATE=1."
            )
        return found

    async def _read(self, answer: httpx2.Response, url: Url) -> bytes:
        import zlib

        import httpx2

        body = Unpacking(answer.headers.get("content-encoding", ""), self._limits.max_bytes)
        try:
            async for chunk in answer.aiter_raw():
                body.add(chunk)
        except httpx2.HTTPError as flaw:
            raise unreachable(url, flaw) from None
        except zlib.error as flaw:
            raise ToolError(f"The content of {url} cannot be unpacked: {flaw}") from None
        return bytes(body.content)

    async def _client(self, scheme: str) -> httpx2.AsyncClient:
        if scheme == "https" and self._trust is None:
            self._trust = await asyncio.to_thread(trust, self._ca_file)
        await asyncio.to_thread(__import__, "httpx2")
        import httpx2

        times = httpx2.Timeout(None, connect=self._limits.connect_seconds)
        verify = self._trust if self._trust is not None else False  # False only where there is no TLS
        return httpx2.AsyncClient(verify=verify, timeout=times, trust_env=False, follow_redirects=False)


class Unpacking:
    """Content as it comes in, unpacked as far as the limit allows: a small answer may unpack to a huge one."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        import zlib

        packed = encoding.strip().lower()
        if packed not in (*PACKED, "", "identity"):
            raise ToolError(f"The content is packed as {packed!r}, which cannot be read here.")
        self.content = bytearray()
        self._max_bytes = max_bytes
        # Both kinds of header, gzip's and zlib's.
        self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32) if packed in PACKED else None

    def add(self, chunk: bytes) -> None:
        """Raises ToolError when it is too much, zlib.error when it is broken."""
        room = self._max_bytes - len(self.content)
        self.content += chunk if self._unpacker is None else self._unpacker.decompress(chunk, room + 1)
        if len(self.content) > self._max_bytes:
            raise ToolError(
                f"The content is larger than {self._max_bytes / 1_000_000:g} MB, which is too much to fetch. "
                "Download it to a file with Bash and read a part of it."
            )


def trust(ca_file: str | None) -> ssl.SSLContext:
    """Whom to believe. Slow: it imports httpx2 and reads the machine's certificates."""
    import httpx2

    context = httpx2.create_ssl_context()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as flaw:
            raise ToolError(f"The certificates in {ca_file} cannot be read: {flaw}") from None
    return context


async def look_up(host: str, port: int) -> list[str]:
    """Ask the system. Numbers in any spelling (2130706433, 0177.0.0.1) come back as plain addresses."""
    import socket

    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def unreachable(url: Url, flaw: Exception | None) -> ToolError:
    return ToolError(f"{url} could not be fetched: {flaw or 'nothing answers there'}")
