"""Which MCP servers may be used: `allowedMcpServers` and `deniedMcpServers`.

    rules = McpServerRules.from_settings(merged)
    rules.find_obstacle(server)      -> "deniedMcpServers" or None

A server is denied if one entry matches its name, its command or its URL. To be allowed, a server with a command must
match an entry with a command if there is one, a server with a URL an entry with a URL; otherwise the name decides.
"""

from __future__ import annotations

import re
from posixpath import normpath
from typing import Protocol
from urllib.parse import unquote, urlsplit

from parley.protocol.base import Json, Struct
from parley.settings.base import MergedSettings
from parley.workspace.url import read_address

PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class DeclaredServer(Protocol):
    """A server with its variables expanded."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def command(self) -> str: ...
    @property
    def args(self) -> tuple[str, ...]: ...
    @property
    def url(self) -> str: ...


class McpServerRules(Struct, frozen=True, kw_only=True):
    allowed: tuple[Json, ...] | None = None
    """None: all servers."""
    denied: tuple[Json, ...] = ()
    provided: frozenset[str] = frozenset()
    """The names of `managedMcpServers`, which need not be allowed."""

    @classmethod
    def from_settings(cls, merged: MergedSettings) -> McpServerRules:
        allowed = merged.get("allowedMcpServers")
        return cls(
            allowed=None if allowed is None else tuple(allowed),
            denied=tuple(merged.get("deniedMcpServers", ())),
            provided=frozenset(merged.get("managedMcpServers", {})),
        )

    @property
    def is_empty(self) -> bool:
        return self.allowed is None and not self.denied

    def find_obstacle(self, server: DeclaredServer) -> str | None:
        """The key that forbids a server, or None."""
        if any(is_denied_by(entry, server) for entry in self.denied):
            return "deniedMcpServers"
        if self.allowed is None or (server.source == "managed" and server.name in self.provided):
            return None
        return None if is_allowed_by(self.allowed, server) else "allowedMcpServers"


def is_denied_by(entry: Json, server: DeclaredServer) -> bool:
    if "serverName" in entry:
        return str(entry["serverName"]).strip().casefold() == server.name.strip().casefold()
    if "serverCommand" in entry:
        return bool(server.command) and entry["serverCommand"] == [server.command, *server.args]
    return bool(server.url) and may_match_url(entry["serverUrl"], server.url)


def is_allowed_by(entries: tuple[Json, ...], server: DeclaredServer) -> bool:
    commands = [entry["serverCommand"] for entry in entries if "serverCommand" in entry]
    urls = [entry["serverUrl"] for entry in entries if "serverUrl" in entry]
    if server.command and commands:
        return [server.command, *server.args] in commands
    if server.url and urls:
        return any(matches_url(pattern, server.url) for pattern in urls)
    return any(entry.get("serverName") == server.name for entry in entries)


# URLs.


def matches_url(pattern: str, url: str) -> bool:
    """Whether a pattern matches a URL for certain: scheme, host and path on their own, so `*` never crosses them."""
    wanted, found = split_url(pattern), split_url(url)
    if wanted is None or found is None:
        return False
    return all(matches_part(part, given) for part, given in zip(wanted, found, strict=True))


def may_match_url(pattern: str, url: str) -> bool:
    """Whether a pattern may be meant for a URL; a URL that cannot be read is."""
    found = split_url(url)
    if found is None or matches_url(pattern, url):
        return True
    spellings = (url, f"{found[0]}://{found[1]}{found[2]}", f"{found[0]}://{found[1].rpartition(':')[0]}{found[2]}")
    return any(matches_part(pattern.lower(), text.lower().rstrip("/")) for text in spellings) or any(
        matches_part(pattern.lower(), text.lower()) for text in spellings
    )


def split_url(url: str) -> tuple[str, str, str] | None:
    """Scheme, host with its port, and path with the query, each in one spelling; None for an invalid URL."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return None
    try:
        parts = urlsplit(f"{scheme.replace('*', 'x').lower() or 'x'}://{rest}")
        host = (parts.hostname or "").rstrip(".")
        host = read_address(host) or host
        name, _, port_text = parts.netloc.rpartition("@")[2].rpartition(":")
        port = "*" if name and port_text == "*" else str(parts.port or PORTS.get(scheme.lower(), 0))
    except ValueError:
        return None
    if not host:
        return None
    path = normpath(unquote(parts.path) or "/") + ("/" if len(parts.path) > 1 and parts.path.endswith("/") else "")
    return scheme.lower(), f"{host}:{port}", path + (f"?{parts.query}" if parts.query else "")


def matches_part(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None
