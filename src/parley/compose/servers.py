"""The MCP servers of a session, and the way to more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from parley.compose.basis import Basis
from parley.compose.permissions import prompt_tool
from parley.compose.rows import WIRES
from parley.compose.tools import denied_tools
from parley.host import Host
from parley.mcp.base import Lost, Spec, Supply, Wire
from parley.mcp.supply import Maker, supply
from parley.models.endpoint import is_loopback
from parley.settings.base import Plugin, shown
from parley.settings.variables import whole
from parley.tools.base import Context

if TYPE_CHECKING:
    from parley.compose.certificates import Trust
    from parley.settings.servers import Written

WIRE_OPENERS: dict[str, Callable[[Any, Spec, Host, Context, str, Trust], Wire]] = {
    "sdk": lambda cls, spec, host, context, project, trust: cls(spec.name, host),
    "stdio": lambda cls, spec, host, context, project, trust: cls(
        spec, context.processes, project, context.environment
    ),
    "sse": lambda cls, spec, host, context, project, trust: cls(spec, proxy_before(spec.url), trust),
    "http": lambda cls, spec, host, context, project, trust: cls(spec, proxy_before(spec.url), trust),
}
"""`project` is the project folder: a server that is started again must not be another because the model did a `cd`."""

MCP_PACKAGES = ("mcp", "mcp_types")
MCP_NEEDED = "servers reached by URL need the package mcp 2.3 or later: pip install 'parley-agent[mcp]'"


def proxy_before(url: str) -> str | None:
    """The proxy that our variables name for a server, if one is for it; never for one on this machine."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    try:
        parts = urlsplit(url)
        if is_loopback(url) or proxy_bypass(parts.hostname or ""):
            return None
    except ValueError:  # whoever opens it tells what is wrong with it
        return None
    proxies = getproxies()
    named = proxies.get(parts.scheme) or proxies.get("all")
    return named if named is None or "://" in named else f"http://{named}"


def servers(basis: Basis, context: Context, plugins: Callable[[], list[Plugin]]) -> Supply:
    """Raises UsageError."""
    options = basis.options
    given = () if options.safe_mode else options.mcp_config or ()
    strict = options.strict_mcp_config or options.safe_mode
    written, flaws = basis.settings.servers(given, basis.cwd, strict=strict)
    if not options.strict_mcp_config:
        written += [plugin_servers(plugin) for plugin in plugins() if plugin.servers]
    maker = Maker(basis.environment, context.environment)
    found = maker.gather(written)
    for flaw in (*flaws, *found.flaws):
        basis.complain(flaw)

    async def open_wire(spec: Spec, host: Host) -> Wire:
        if options.offline and spec.url and not is_loopback(spec.url):
            raise Lost("this session runs with --offline, and the server is not on this machine")
        from parley.compose.certificates import trust

        trusted = trust(basis.environment, basis.complain)
        # What a wire stands on may take a second to load; the loop must not wait for it.
        cls = load_wire(spec.kind) if spec.kind == "sdk" else await asyncio.to_thread(load_wire, spec.kind)
        made: Wire = WIRE_OPENERS[spec.kind](cls, spec, host, context, basis.cwd, trusted)
        return made

    # The tool that answers permission questions is not for the model.
    denied = (*denied_tools(basis), *filter(None, [prompt_tool(basis)]))
    return supply(maker, found.specs, open_wire, number=lambda name: whole(basis.environment, name), denied=denied)


def load_wire(kind: str) -> Any:
    """The class of a kind of wire. Raises Lost if the extra that it needs is not installed."""
    module, _, name = WIRES[kind].partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as exc:  # also for names that an older version of the package does not have
        if (exc.name or "").partition(".")[0] not in MCP_PACKAGES:
            raise
        raise Lost(MCP_NEEDED) from None


def plugin_servers(plugin: Plugin) -> Written:
    from parley.settings.servers import Written

    return Written(source="dynamic", place=shown(plugin.path), servers=plugin.servers)
