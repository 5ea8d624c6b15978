"""A URL, taken apart once, and which addresses are the public's.

Two readers of one URL are how guards are fooled, so a URL is read here and nowhere
else: what is judged, connected to and asked for are the parts of one `Url`.

Not here: resolving names and fetching (web.py).
"""

from __future__ import annotations

import re

from parley.errors import ToolError
from parley.protocol.base import Struct

PORTS = {"http": 80, "https": 443}
HOST = r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?"
ADDRESS = r"[0-9a-f:.]*:[0-9a-f:.]*"
LONGEST_HOST = 253
KEPT = "!#$%&'()*+,/:;=?@[]~"
"""What stands in a path or a query as it is; the rest is escaped."""


class Url(Struct, frozen=True, kw_only=True):
    scheme: str
    host: str
    """A name in ASCII and lower case, or an address without brackets."""
    port: int
    target: str
    """Path and query, escaped."""

    @property
    def authority(self) -> str:
        """How the Host header spells it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    def joined(self, location: str) -> Url:
        """Where a link or a redirect on this page leads. Raises ToolError."""
        from urllib.parse import urljoin

        try:
            return read_url(urljoin(str(self), location))
        except ValueError as exc:
            raise ToolError(f"{location!r} is no URL: {exc}") from None

    def leads_elsewhere(self, other: Url) -> bool:
        """Whether going there is more than was asked for: another host, or a line anybody can read."""
        return other.host != self.host or (self.scheme, other.scheme) == ("https", "http")


def read_url(url: str) -> Url:
    """Take a URL apart. Raises ToolError."""
    from urllib.parse import quote, urlsplit

    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError as exc:
        raise ToolError(f"{url!r} is no URL: {exc}") from None
    if parts.scheme not in PORTS:
        raise ToolError(f"Only http:// and https:// URLs can be fetched, and this is {url!r}.")
    if "@" in parts.netloc:
        raise ToolError("The URL has a user name before its host. Pages that need a login cannot be fetched.")
    query = f"?{parts.query}" if parts.query else ""
    return Url(
        scheme=parts.scheme,
        host=ascii_host(host),
        port=PORTS[parts.scheme] if port is None else port,
        target=quote((parts.path or "/") + query, safe=KEPT),
    )


def ascii_host(host: str) -> str:
    """The host as it is looked up. Raises ToolError if no host is called that."""
    try:
        spelled = host if host.isascii() else host[: LONGEST_HOST + 1].encode("idna").decode("ascii").lower()
    except UnicodeError:
        spelled = ""
    if len(spelled) > LONGEST_HOST or not (re.fullmatch(HOST, spelled) or re.fullmatch(ADDRESS, spelled)):
        raise ToolError(f"The URL's host {host!r} is not a host name.")
    return spelled


def is_public(address: str) -> bool:
    """Whether an address belongs to the public network, not to this machine or its neighbours."""
    import ipaddress

    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        # An IPv4 address in IPv6 clothes is judged as what it is.
        nat64 = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in ipaddress.IPv6Network("64:ff9b::/96") else None
        inner = ip.ipv4_mapped or ip.sixtofour or nat64
        if inner is not None:
            return is_public(str(inner))
        if ip not in ipaddress.IPv6Network("2000::/3"):
            return False
    return ip.is_global and not ip.is_multicast
