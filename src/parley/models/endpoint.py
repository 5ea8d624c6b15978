"""Where a backend is and how it is entered: settings find it, adapters use it."""

from __future__ import annotations

from collections.abc import Mapping

from parley.errors import UsageError
from parley.protocol.base import Json, Struct


class ModelEndpoint(Struct, frozen=True, kw_only=True):
    """A server, and what goes along with every request to it. Its repr shows no secret."""

    base_url: str
    auth: tuple[str, str] | None
    """The header that carries the key; None where no key is needed."""
    headers: Mapping[str, str] = {}
    extra_body: Json = {}
    declared: frozenset[str] = frozenset()
    """The optional fields that this server is said to know. Others it may know are not sent."""

    def __repr__(self) -> str:
        return f"Endpoint({without_userinfo(self.base_url)})"

    def without_key(self, text: str) -> str:
        """The words of a server, without the key that it may repeat."""
        key = self.auth[1].removeprefix("Bearer ").strip() if self.auth else ""
        return text.replace(key, "[redacted]") if key else text

    def url(self, path: str) -> str:
        """The address of one of its services; a query of the base URL stays behind the path."""
        base, mark, query = self.base_url.partition("?")
        return f"{base.rstrip('/')}{path}{mark}{query}"


def check_url(url: str, variable: str) -> str:
    """Raises UsageError if a base URL is none that we can ask."""
    scheme, slashes, rest = url.partition("://")
    if scheme.lower() not in ("http", "https") or not slashes or not rest.strip("/"):
        raise UsageError(f"{variable} must be an address that begins with http:// or https://")
    return url


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
    """A URL fit to be shown: a password may stand before its host, and a key in its query."""
    scheme, slashes, rest = url.partition("?")[0].partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}"
