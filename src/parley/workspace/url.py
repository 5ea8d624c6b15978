"""Parse URLs, and tell public addresses from private ones.

Checks can be bypassed if two parsers read the same URL differently, so URLs are parsed only here. The host that is
checked, connected to and requested comes from one `Url`.

See also: `web.py` for name resolution and fetching.
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
"""The characters of a path or query that are not escaped, besides letters and digits."""


class Url(Struct, frozen=True, kw_only=True):
    scheme: str
    host: str
    """A name in ASCII and lower case, or an address without brackets."""
    port: int
    target: str
    """Path and query, escaped."""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    def joined(self, location: str) -> Url:
        """Resolve a link or redirect relative to this URL. Raises ToolError."""
        from urllib.parse import urljoin

        try:
            return read_url(urljoin(str(self), location))
        except ValueError as exc:
            raise ToolError(f"{location!r} is not a valid URL: {exc}") from None

    def leads_elsewhere(self, other: Url) -> bool:
        """Whether a redirect leads to another host or from https to http, and so needs a new decision."""
        return other.host != self.host or (self.scheme, other.scheme) == ("https", "http")


def read_url(url: str) -> Url:
    """Parse a URL. Raises ToolError."""
    from urllib.parse import quote, urlsplit

    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError as exc:
        raise ToolError(f"{url!r} is not a valid URL: {exc}") from None
    if parts.scheme not in PORTS:
        raise ToolError(f"Only http:// and https:// URLs can be fetched, not {url!r}.")
    if "@" in parts.netloc:
        raise ToolError("The URL contains a user name. Pages that need a login cannot be fetched.")
    query = f"?{parts.query}" if parts.query else ""
    return Url(
        scheme=parts.scheme,
        host=ascii_host(host),
        port=PORTS[parts.scheme] if port is None else port,
        target=quote((parts.path or "/") + query, safe=KEPT),
    )


def ascii_host(host: str) -> str:
    """The host name for the lookup, in ASCII. Raises ToolError for an invalid name."""
    try:
        encoded = host if host.isascii() else host[: LONGEST_HOST + 1].encode("idna").decode("ascii").lower()
    except UnicodeError:
        encoded = ""
    if len(encoded) > LONGEST_HOST or not (re.fullmatch(HOST, encoded) or re.fullmatch(ADDRESS, encoded)):
        raise ToolError(f"The URL's host {host!r} is not a valid host name.")
    return encoded


def is_public(address: str) -> bool:
    """Whether an IP address is public, not of this machine or a local network."""
    import ipaddress

    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        # An embedded IPv4 address is checked as IPv4.
        nat64 = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in ipaddress.IPv6Network("64:ff9b::/96") else None
        inner = ip.ipv4_mapped or ip.sixtofour or nat64
        if inner is not None:
            return is_public(str(inner))
        if ip not in ipaddress.IPv6Network("2000::/3"):
            return False
    return ip.is_global and not ip.is_multicast
