"""The servers a session begins with, and the way to more, from everything that is written about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from parley.host import Host
from parley.mcp.base import McpTimeouts, ParsedServers, ServerSources, ServerSpec, ServerTransport
from parley.protocol.base import Json

DEFAULT_TOKENS = 25_000


class DeclaredServers(Protocol):
    """Some servers, as somebody wrote them."""

    @property
    def source(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def servers(self) -> Json: ...

    @property
    def by_tree(self) -> bool:
        """Whether the working tree says so."""


class ServerParser:
    """Reads what is written. Loaded with the first server: most sessions have none."""

    def __init__(self, ours: Mapping[str, str], childrens: Mapping[str, str]) -> None:
        self._own_variables = ours
        self._child_variables = childrens

    def gather(self, written: Sequence[DeclaredServers]) -> ParsedServers:
        """All servers, the strongest source first. A project does not get at our keys, however trusted it is."""
        if not written:
            return ParsedServers()
        from parley.mcp.config import merge_sources, parse_servers

        found = [
            parse_servers(
                one.servers,
                source=one.source,
                path=one.path,
                variables=self._child_variables if one.by_tree else self._own_variables,
            )
            for one in written
        ]
        specs = merge_sources(part.specs for part in found)
        return ParsedServers(
            specs=tuple(specs.values()), problems=tuple(flaw for part in found for flaw in part.problems)
        )

    def parse(self, servers: Json) -> ParsedServers:
        from parley.mcp.config import parse_servers

        return parse_servers(servers, source="dynamic", path="mcp_set_servers", variables=self._own_variables)

    def parse_agent(self, servers: Json, place: str) -> ParsedServers:
        """What an agent brings. Whoever wrote it does not get at our keys."""
        from parley.mcp.config import parse_servers

        return parse_servers(servers, source="dynamic", path=place, variables=self._child_variables)

    def build_host_specs(self, names: Sequence[str], configs: Json | None) -> Sequence[ServerSpec]:
        from parley.mcp.config import build_host_specs

        return build_host_specs(names, configs)


def build_sources(
    maker: ServerParser,
    specs: tuple[ServerSpec, ...],
    open_wire: Callable[[ServerSpec, Host], Awaitable[ServerTransport]],
    *,
    number: Callable[[str], int | None],
    denied: tuple[str, ...],
) -> ServerSources:
    """`number` looks a variable up: MCP_TIMEOUT and MCP_TOOL_TIMEOUT are milliseconds, and 0 for a tool is any time."""
    usual, connect, call = McpTimeouts(), number("MCP_TIMEOUT"), number("MCP_TOOL_TIMEOUT")
    return ServerSources(
        open_transport=open_wire,
        parse=maker.parse,
        build_host_specs=maker.build_host_specs,
        parse_agent=maker.parse_agent,
        specs=specs,
        timeouts=McpTimeouts(
            connect_seconds=connect / 1000 if connect else usual.connect_seconds,
            call_seconds=usual.call_seconds if call is None else call / 1000,
        ),
        denied=denied,
        max_output_tokens=number("MAX_MCP_OUTPUT_TOKENS") or DEFAULT_TOKENS,
    )
