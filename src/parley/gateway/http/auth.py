"""Who sends a request: the token, the origin of the page and the host name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection

from parley.gateway.refusal import Refusal
from parley.gateway.reporting import WHO
from parley.gateway.security.access import Principal, Quotas
from parley.gateway.security.quotas import OpenConnections, Peer, RateLimiter, TokenUse
from parley.gateway.security.tokens import LOCAL, OWN_NAMES, Tokens, digest
from parley.gateway.server_config import Limits
from parley.protocol.base import Struct

SUBPROTOCOL = "parley"
TOKEN_SUBPROTOCOL = "parley.token."
"""Browsers cannot set headers of a WebSocket: they offer the protocols `parley` and `parley.token.TOKEN`."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PEER = "parley.peer"
"""The key of an ASGI scope with the connection."""
ADMITTED = "parley.admitted"
"""The key of an ASGI scope with what the gate knows of a connection whose token was accepted."""


class Credential(Struct, frozen=True, kw_only=True):
    type: str = "oauth"
    token: str


class Auth(Struct, frozen=True, kw_only=True, tag_field="type", tag="auth"):
    """The first frame of a client that can set neither headers nor subprotocols."""

    credential: Credential


class Admitted(Struct, frozen=True):
    """A connection of a token."""

    principal: Principal
    use: TokenUse
    is_current: Callable[[], bool]
    """Whether the token still allows what it did."""
    count: Callable[[], None]
    """Counts a line or a request. Raises Refusal if there were too many."""
    line_bytes: int
    """How long a body or a line may be."""

    def check_current(self) -> None:
        """Raises Refusal."""
        if not self.is_current():
            raise Refusal("unauthorized", "the token is not valid any more")


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
    connections: OpenConnections = msgspec.field(default_factory=OpenConnections)

    def __post_init__(self) -> None:
        self.tokens.on_change = self.connections.end_invalid

    async def end_invalid(self) -> None:
        """End the connections of tokens that have expired."""
        self.connections.end_invalid()

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
            return self._admit(connection, Principal.administrator(LOCAL), lambda: True)
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
        principal = self.tokens.find(token)
        if principal is None:
            network = find_network(connection.client.host if connection.client else "")
            if not self.limiter.allow(f"address {network}", self.limits.wrong_tokens_per_minute):
                raise Refusal("rate_limited", "too many wrong tokens came from this address; wait a minute")
            raise Refusal("unauthorized", "the token is unknown")
        given = digest(token)
        return self._admit(connection, principal, lambda: self.tokens.is_current(given, principal))

    def _admit(self, connection: HTTPConnection, holder: Principal, is_current: Callable[[], bool]) -> Principal:
        """Hold the connection to the limits of its token. Raises Refusal."""
        principal = msgspec.structs.replace(holder, quotas=fill_quotas(holder, self.limits))
        connection.scope[WHO] = principal.name
        self._count(principal)
        peer: Peer | None = connection.scope.get(PEER)
        if peer is not None:
            line_bytes = self.limits.line_bytes
            use = self.connections.add(principal, peer, is_current, line_bytes)
            count = partial(self._count, principal)
            connection.scope[ADMITTED] = Admitted(principal, use, is_current, count, line_bytes)
        return principal

    def _count(self, principal: Principal) -> None:
        """Raises Refusal."""
        per_minute = principal.quotas.requests_per_minute
        per_minute = self.limits.requests_per_minute if per_minute is None else per_minute
        if not self.limiter.allow(f"token {principal.name}", per_minute):
            text = f"the token {principal.name!r} has reached its limit of {per_minute} requests and lines per minute"
            raise Refusal("rate_limited", text)


def fill_quotas(principal: Principal, limits: Limits) -> Quotas:
    """The quotas of a token, with the limits of the server where it has none."""
    quotas, is_own = principal.quotas, principal.name in OWN_NAMES
    return msgspec.structs.replace(
        quotas,
        connections=limits.connections_per_token if quotas.connections is None else quotas.connections,
        bytes=limits.bytes_per_token if quotas.bytes is None else quotas.bytes,
        sessions=limits.sessions_per_token if quotas.sessions is None and not is_own else quotas.sessions,
    )


def find_network(address: str) -> str:
    """What counts as one sender of wrong tokens; empty for what is not an address.

    A client can send any text as `X-Forwarded-For`, and the holder of an IPv6 address has 2**64 of them.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    return (getattr(found, "ipv4_mapped", None) or found).packed[:8].hex()


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
