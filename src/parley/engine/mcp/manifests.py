"""The handshakes of MCP servers that a client delivers with `initialize`, until its servers connect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from parley.mcp.base import ServerTransport
from parley.mcp.host_transport import Manifest, ReplayTransport, parse_manifest
from parley.protocol.base import Json

if TYPE_CHECKING:
    from parley.mcp.server_connection import McpServer


class ParkedManifests:
    """Each manifest is for the first connection that follows its request."""

    def __init__(self) -> None:
        self._parked: dict[str, Manifest] = {}

    def park(self, entries: Json, names: list[str], servers: Mapping[str, McpServer]) -> dict[str, str]:
        """Keep the manifests of these servers. Returns what became of each entry."""
        self._parked.clear()
        return {name: self._park(name, entries[name], servers.get(name)) for name in entries if name in names}

    def _park(self, name: str, entry: object, server: McpServer | None) -> str:
        manifest = parse_manifest(entry)
        if manifest is None:
            return "malformed"
        if server is None or server.spec.kind != "sdk":
            return "not_honoured"
        if server.is_started:
            return "already_connected" if server.status == "connected" else "not_honoured"
        if not manifest.has_our_version:
            return "protocol_version_mismatch"
        self._parked[name] = manifest
        return "parked"

    def wrap(self, name: str, transport: ServerTransport) -> ServerTransport:
        """The transport of a server, with its manifest if there is one."""
        manifest = self._parked.pop(name, None)
        return transport if manifest is None else ReplayTransport(transport, manifest)
