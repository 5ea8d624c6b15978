"""Where a model server is and how to authenticate.

Endpoints are built from settings in `settings/credentials.py` and used by `backends/`.
"""

from __future__ import annotations

from collections.abc import Mapping

from parley.errors import UsageError
from parley.protocol.base import Json, Struct


class ModelEndpoint(Struct, frozen=True, kw_only=True):
    """A server and what is sent with every request. The repr contains no secret."""

    base_url: str
    auth: tuple[str, str] | None
    """Header name and value of the key; None if no key is needed."""
    headers: Mapping[str, str] = {}
    extra_body: Json = {}
    declared: frozenset[str] = frozenset()
    """Optional fields that the user declared as supported. Other optional fields are not sent."""
    variables: str = "ANTHROPIC"
    """How the names of the server's variables begin."""
    key_source: str = ""
    """Where the key comes from; empty if none is sent."""

    def __repr__(self) -> str:
        return f"ModelEndpoint({without_userinfo(self.base_url)})"

    @property
    def is_messages_api(self) -> bool:
        return self.variables == "ANTHROPIC"

    def url(self, path: str) -> str:
        """The URL of an API path. A query in the base URL is kept at the end."""
        base, mark, query = self.base_url.partition("?")
        return f"{base.rstrip('/')}{path}{mark}{query}"


def check_url(url: str, variable: str) -> str:
    """Return the base URL. Raises UsageError if it is not an HTTP URL."""
    scheme, slashes, rest = url.partition("://")
    if scheme.lower() not in ("http", "https") or not slashes or not rest.strip("/"):
        raise UsageError(f"{variable} must be a URL that starts with http:// or https://")
    port = rest.partition("?")[0].partition("/")[0].rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    if port and not (port.isdecimal() and int(port) < 65536):
        raise UsageError(f"{variable}: the port of a URL must be a number from 0 to 65535")
    return url


def is_loopback(url: str) -> bool:
    """Whether the host is this machine."""
    place = url.partition("://")[2].partition("/")[0].partition("?")[0].partition("#")[0].rpartition("@")[2]
    host = place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]
    return is_loopback_host(host.lower())


def is_loopback_host(host: str) -> bool:
    """Whether a host name or IP address means this machine."""
    if host in ("localhost", "127.0.0.1", "::1"):
        return True
    if not host[:1].isdigit() and ":" not in host:
        return False
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def without_userinfo(url: str) -> str:
    """The URL without user name, password and query, safe to display."""
    scheme, slashes, rest = url.partition("?")[0].partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}"
