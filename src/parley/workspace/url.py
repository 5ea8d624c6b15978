"""Parse URLs, and tell public addresses from private ones.

Checks can be bypassed if two parsers read the same URL differently, so URLs are parsed only here. The host that is
checked, connected to and requested comes from one `Url`. An address has many spellings (`127.1`, `0x7f000001`,
`::ffff:7f00:1`); `read_address` returns the one that is compared.

See also: `web.py` for name resolution and fetching.
"""

from __future__ import annotations

import ipaddress
import re
import socket

from parley.errors import ToolError
from parley.protocol.base import Struct

PORTS = {"http": 80, "https": 443}
HOST = r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?"
ADDRESS = r"[0-9a-f:.]*:[0-9a-f:.]*"
LONGEST_HOST = 253
NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+", re.ASCII)
"""The last part of a host that is an IPv4 address and not a name."""
KEPT = "!#$%&'()*+,/:;=?@[]~"
"""The characters of a path or query that are not escaped, besides letters and digits."""


class Url(Struct, frozen=True, kw_only=True):
    scheme: str
    host: str
    """A name in ASCII and lower case, or an address in its shortest form, without brackets."""
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
    if (address := read_address(encoded)) is not None:
        return address
    if is_numeric(encoded):
        raise ToolError(f"The URL's host {host!r} is not a valid address.")
    return encoded


def is_numeric(host: str) -> bool:
    """Whether a host can only be an address: no name ends in a number."""
    return ":" in host or NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]) is not None


def read_address(host: str) -> str | None:
    """The shortest form of an address, in whatever form resolvers accept; None if the host is a name.

    An IPv4 address that is mapped into IPv6 is the same address.
    """
    host = host.lower().removesuffix(".").removeprefix("[").removesuffix("]")
    if not is_numeric(host):
        return None
    try:
        if ":" not in host:
            return socket.inet_ntoa(socket.inet_aton(host))
        found = ipaddress.IPv6Address(host)
    except (OSError, ValueError):
        return None
    # The name of an interface means nothing here.
    return None if found.scope_id is not None else str(found.ipv4_mapped or found)


def matches_host(pattern: str, host: str) -> bool:
    """Whether a pattern matches a host: `*` for any, `*.example.com` for those below it, or `a*.com` within a label."""
    if pattern == "*":
        return True
    labels, found = pattern.split("."), host.split(".")
    if pattern.startswith("*."):
        labels, found = labels[1:], found[-len(labels) + 1 :] if len(found) >= len(labels) else []
    forms = ("[^.]*".join(map(re.escape, label.split("*"))) for label in labels)
    return len(labels) == len(found) and all(map(re.fullmatch, forms, found))


def list_equal_addresses(host: str) -> tuple[str, ...]:
    """A host from `read_url` or `read_address`, and the IPv4 address that an IPv6 address may lead to."""
    if ":" not in host:
        return (host,)
    try:
        found = find_embedded(ipaddress.IPv6Address(host.partition("%")[0]))
    except ValueError:
        return (host,)
    return (host,) if found is None else (host, str(found))


def find_embedded(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address in an IPv6 address: mapped, 6to4, NAT64 or compatible."""
    if inner := ip.ipv4_mapped or ip.sixtofour:
        return inner
    is_embedded = any(ip in ipaddress.IPv6Network(network) for network in ("64:ff9b::/96", "::/96"))
    return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if is_embedded and int(ip) > 1 else None


def is_public(address: str) -> bool:
    """Whether an IP address is public, not of this machine or a local network."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = find_embedded(ip)
        if inner is not None and not is_public(str(inner)):
            return False
        if ip not in ipaddress.IPv6Network("2000::/3") and ip not in ipaddress.IPv6Network("64:ff9b::/96"):
            return ip.ipv4_mapped is not None
        if inner is not None:
            return True
    return ip.is_global and not ip.is_multicast
