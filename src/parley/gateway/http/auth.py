"""Who sends a request: the token, the origin of the page and the host name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection

from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal
from parley.gateway.security.quotas import RateLimiter
from parley.gateway.security.tokens import LOCAL, Tokens
from parley.gateway.server_config import Limits
from parley.gateway.server_log import WHO
from parley.protocol.base import Json, Struct

SUBPROTOCOL = "parley"
TOKEN_SUBPROTOCOL = "parley.token."
"""Browsers cannot set headers of a WebSocket: they offer the protocols `parley` and `parley.token.TOKEN`."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Gate(Struct):
    """Lets requests in. Hosts, origins and limits can be changed while the server runs."""

    tokens: Tokens
    is_open: bool = False
    """Whether everybody is the administrator: on a Unix socket that only its owner can connect to."""
    hosts: frozenset[str] | None = None
    """The host names that the server answers to; None for all."""
    origins: frozenset[str] = frozenset()
    """The origins of pages that may connect, besides the server's own."""
    limits: Limits = Limits()
    limiter: RateLimiter = msgspec.field(default_factory=RateLimiter)

    def check_headers(self, connection: HTTPConnection) -> None:
        """Refuse pages of other sites, and names that were made to point here. Raises Refusal."""
        host = connection.headers.get("host", "")
        if self.hosts is not None and read_host(f"//{host}") not in self.hosts:
            raise Refusal("forbidden_host", f"this server does not accept the host name {host!r}; see --allow-host")
        origin = connection.headers.get("origin")
        if origin is None or origin in self.origins:
            return
        if origin.partition("://")[2] != host:
            raise Refusal("forbidden_origin", f"web pages of {origin!r} are not allowed to connect; see --allow-origin")

    def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Who sends a request; None if it has no token. Raises Refusal if the token is wrong."""
        if self.is_open:
            connection.scope[WHO] = LOCAL
            return Principal.administrator(LOCAL)
        token = find_token(connection.headers, connection.scope.get("subprotocols") or ())
        return None if token is None else self.check_token(token, connection)

    def require(self, connection: HTTPConnection) -> Principal:
        """Raises Refusal."""
        self.check_headers(connection)
        principal = self.authenticate(connection)
        if principal is None:
            raise Refusal("unauthorized", "the request has no token; send the header `Authorization: Bearer TOKEN`")
        return principal

    def check_token(self, token: str, connection: HTTPConnection) -> Principal:
        """Raises Refusal."""
        address = connection.client.host if connection.client else ""
        principal = self.tokens.find(token)
        if principal is None:
            if not self.limiter.allow(f"address {address}", self.limits.wrong_tokens_per_minute):
                raise Refusal("rate_limited", "too many wrong tokens came from this address; wait a minute")
            raise Refusal("unauthorized", "the token is unknown")
        connection.scope[WHO] = principal.name
        per_minute = principal.quotas.requests_per_minute or self.limits.requests_per_minute
        if not self.limiter.allow(f"token {principal.name}", per_minute):
            raise Refusal(
                "rate_limited",
                f"the token {principal.name!r} has reached its limit of {per_minute} requests per minute",
            )
        return principal


def read_host(url: str) -> str:
    """The host name of a URL; empty if it has none or is malformed."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def find_token(headers: Mapping[str, str], subprotocols: Sequence[str]) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    for offered in subprotocols:
        if offered.startswith(TOKEN_SUBPROTOCOL):
            return offered.removeprefix(TOKEN_SUBPROTOCOL)
    return None


def token_in_message(message: Json) -> str | None:
    """The token of an `auth` message, the first frame of official clients that cannot set headers."""
    credential = message.get("credential")
    if message.get("type") != "auth" or not isinstance(credential, dict):
        return None
    token = credential.get("token")
    return token if isinstance(token, str) else None
