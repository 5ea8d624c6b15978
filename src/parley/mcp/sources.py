"""The MCP servers of a session, from all configuration sources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from parley.host import Host
from parley.mcp.base import McpTimeouts, ParsedServers, ServerSources, ServerSpec, ServerTransport
from parley.protocol.base import Json

DEFAULT_TOKENS = 25_000


class DeclaredServers(Protocol):
    """The servers of one configuration source."""

    @property
    def source(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def servers(self) -> Json: ...

    @property
    def by_tree(self) -> bool:
        """Whether it comes from the working tree."""

    @property
    def by_client(self) -> bool:
        """Whether it comes from the command line, so that its policies may allow calls."""

    @property
    def is_added(self) -> bool:
        """Whether a flag of the client adds it."""


class ServerParser:
    """Parses configurations. `config.py` is imported on demand, because most sessions have no servers."""

    def __init__(
        self,
        own_variables: Mapping[str, str],
        child_variables: Mapping[str, str],
        check: Callable[[ServerSpec], str] = lambda spec: "",
    ) -> None:
        """`check` returns why a server may not be used, or an empty string."""
        self._own_variables = own_variables
        self._child_variables = child_variables
        self._check = check

    def _checked(self, spec: ServerSpec) -> ServerSpec:
        reason = "" if spec.problem else self._check(spec)
        return msgspec.structs.replace(spec, problem=reason) if reason else spec

    def _checked_all(self, found: ParsedServers) -> ParsedServers:
        specs = tuple(map(self._checked, found.specs))
        refused = [
            f"the MCP server {after.name!a} is not used: {after.problem}"
            for before, after in zip(found.specs, specs, strict=True)
            if after is not before
        ]
        return ParsedServers(specs=specs, problems=(*found.problems, *refused)) if refused else found

    def gather(self, declared: Sequence[DeclaredServers]) -> ParsedServers:
        """All servers, strongest source first. Project configurations cannot read our keys, even if trusted."""
        if not declared:
            return ParsedServers()
        from parley.mcp.config import merge_sources, parse_servers

        found = [
            parse_servers(
                one.servers,
                source=one.source,
                path=one.path,
                variables=self._child_variables if one.by_tree else self._own_variables,
                may_allow=one.by_client,
            )
            for one in declared
        ]
        specs = merge_sources(
            mark(part, by_project=one.by_tree, added_by="client" if one.is_added else "").specs
            for one, part in zip(declared, found, strict=True)
        )
        problems = tuple(problem for part in found for problem in part.problems)
        return self._checked_all(ParsedServers(specs=tuple(specs.values()), problems=problems))

    def parse(self, servers: Json) -> ParsedServers:
        from parley.mcp.config import parse_servers

        found = parse_servers(
            servers, source="dynamic", path="mcp_set_servers", variables=self._own_variables, may_allow=True
        )
        return self._checked_all(mark(found, by_project=False, added_by="client"))

    def parse_agent(self, servers: Json, path: str, by_project: bool) -> ParsedServers:
        """Parse the servers of an agent. Agent definitions cannot read our keys."""
        from parley.mcp.config import parse_servers

        found = parse_servers(servers, source="dynamic", path=path, variables=self._child_variables)
        return self._checked_all(mark(found, by_project=by_project, added_by="agent"))

    def build_host_specs(self, names: Sequence[str], configs: Json | None) -> Sequence[ServerSpec]:
        from parley.mcp.config import build_host_specs

        return [self._checked(spec) for spec in build_host_specs(names, configs)]


def mark(found: ParsedServers, *, by_project: bool, added_by: Literal["", "client", "agent"]) -> ParsedServers:
    if not by_project and not added_by:
        return found
    specs = [msgspec.structs.replace(spec, by_project=by_project, added_by=added_by) for spec in found.specs]
    return ParsedServers(specs=tuple(specs), problems=found.problems)


def build_sources(
    parser: ServerParser,
    specs: tuple[ServerSpec, ...],
    open_transport: Callable[[ServerSpec, Host], Awaitable[ServerTransport]],
    *,
    number: Callable[[str], int | None],
    denied: tuple[str, ...],
) -> ServerSources:
    """`number` reads a variable. MCP_TIMEOUT and MCP_TOOL_TIMEOUT are milliseconds; 0 for tools means no limit."""
    defaults, connect, call = McpTimeouts(), number("MCP_TIMEOUT"), number("MCP_TOOL_TIMEOUT")
    return ServerSources(
        open_transport=open_transport,
        parse=parser.parse,
        build_host_specs=parser.build_host_specs,
        parse_agent=parser.parse_agent,
        specs=specs,
        timeouts=McpTimeouts(
            connect_seconds=connect / 1000 if connect else defaults.connect_seconds,
            call_seconds=defaults.call_seconds if call is None else call / 1000,
        ),
        denied=denied,
        max_output_tokens=number("MAX_MCP_OUTPUT_TOKENS") or DEFAULT_TOKENS,
    )
