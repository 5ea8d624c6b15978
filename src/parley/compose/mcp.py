"""The MCP servers of a session, and how their transports are opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from parley.compose.launch_context import LaunchContext
from parley.compose.permissions import prompt_tool
from parley.compose.registry import TRANSPORTS
from parley.compose.tools import denied_tools
from parley.host import Host
from parley.mcp.base import ConnectionLost, ServerSources, ServerSpec, ServerTransport
from parley.mcp.sources import ServerParser, build_sources
from parley.models.endpoint import is_loopback
from parley.settings.base import Plugin, printable
from parley.settings.env_vars import read_int
from parley.tools.base import Context

if TYPE_CHECKING:
    from parley.compose.certificates import Trust
    from parley.settings.mcp_files import ServerDeclaration

TRANSPORT_OPENERS: dict[str, Callable[[Any, ServerSpec, Host, Context, str, Trust], ServerTransport]] = {
    "sdk": lambda cls, spec, host, context, project, trust: cls(spec.name, host),
    "stdio": lambda cls, spec, host, context, project, trust: cls(
        spec, context.processes, project, context.environment
    ),
    "sse": lambda cls, spec, host, context, project, trust: cls(spec, find_proxy(spec.url), trust),
    "http": lambda cls, spec, host, context, project, trust: cls(spec, find_proxy(spec.url), trust),
}
"""The working directory is the project folder, so a restarted server is the same after the model changed directory."""

MCP_PACKAGES = ("mcp", "mcp_types")
MCP_NEEDED = "servers reached by URL need the package mcp 2.3 or later: pip install 'parley-agent[mcp]'"


def find_proxy(url: str) -> str | None:
    """The proxy for a server, if the environment names one; never for a server on this machine."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    try:
        parts = urlsplit(url)
        if is_loopback(url) or proxy_bypass(parts.hostname or ""):
            return None
    except ValueError:  # opening it reports what is wrong
        return None
    proxies = getproxies()
    named = proxies.get(parts.scheme) or proxies.get("all")
    return named if named is None or "://" in named else f"http://{named}"


def server_sources(launch: LaunchContext, context: Context, plugins: Callable[[], list[Plugin]]) -> ServerSources:
    """Raises UsageError."""
    options = launch.options
    given = () if options.safe_mode else options.mcp_config or ()
    strict = options.strict_mcp_config or options.safe_mode
    written, problems = launch.settings.servers(given, launch.cwd, strict=strict)
    if not options.strict_mcp_config:
        written += [plugin_servers(plugin) for plugin in plugins() if plugin.servers]
    maker = ServerParser(launch.environment, context.environment)
    found = maker.gather(written)
    for error in (*problems, *found.problems):
        launch.warn(error)

    async def open_wire(spec: ServerSpec, host: Host) -> ServerTransport:
        if options.offline and spec.url and not is_loopback(spec.url):
            raise ConnectionLost("this session runs with --offline, and the server is not on this machine")
        from parley.compose.certificates import make_trust

        trusted = make_trust(launch.environment, launch.warn)
        # A transport's package may take a second to load; the loop must not wait for it.
        cls = load_transport(spec.kind) if spec.kind == "sdk" else await asyncio.to_thread(load_transport, spec.kind)
        made: ServerTransport = TRANSPORT_OPENERS[spec.kind](cls, spec, host, context, launch.cwd, trusted)
        return made

    # The tool that answers permission questions is not for the model.
    denied = (*denied_tools(launch), *filter(None, [prompt_tool(launch)]))
    return build_sources(
        maker, found.specs, open_wire, number=lambda name: read_int(launch.environment, name), denied=denied
    )


def load_transport(kind: str) -> Any:
    """The class of a kind of transport. Raises ConnectionLost if the extra that it needs is not installed."""
    module, _, name = TRANSPORTS[kind].partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as exc:  # also for names that an older version of the package does not have
        if (exc.name or "").partition(".")[0] not in MCP_PACKAGES:
            raise
        raise ConnectionLost(MCP_NEEDED) from None


def plugin_servers(plugin: Plugin) -> ServerDeclaration:
    from parley.settings.mcp_files import ServerDeclaration

    return ServerDeclaration(source="dynamic", path=printable(plugin.path), servers=plugin.servers)
