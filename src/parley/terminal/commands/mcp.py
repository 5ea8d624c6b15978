"""`/mcp`: the MCP servers of the session, their state and tools; reconnect, enable or disable one."""

from __future__ import annotations

from functools import partial
from typing import Any

from parley.protocol.base import Json
from parley.terminal.base import View
from parley.terminal.interfaces.dialogs import Row
from parley.terminal.rendering.text import reveal_line, reveal_text, shorten, wrap

MARKS = {"connected": "✓", "failed": "✗", "needs-auth": "!", "pending": "…", "disabled": "○"}
MAX_ERROR_LINES = 6
ADD = "No MCP servers. `parley mcp add NAME COMMAND` adds one, or a file .mcp.json in the project."


async def manage_servers(view: View, argument: str) -> None:
    """Shows the servers until the person leaves."""
    while True:
        servers = await list_servers(view)
        if not servers:
            view.say(ADD)
            return
        rows = [describe_server(server) for server in servers]
        picked = await view.choose("MCP servers", rows, preview=partial(preview, servers))
        if picked is None:
            return
        server = next(one for one in servers if one["name"] == picked.key)
        await manage_server(view, server)


async def list_servers(view: View) -> list[Json]:
    found: Any = await view.client.get_mcp_status()
    servers: list[Json] = found.get("mcpServers") or []
    return servers


def describe_server(server: Json) -> Row:
    tools = server.get("tools")
    count = "" if tools is None else f", {len(tools)} tool{'s' * (len(tools) != 1)}"
    detail = f"{server.get('status', '')}{count} ({server.get('scope') or server.get('transport', '')})"
    return Row(str(server["name"]), str(server["name"]), detail, MARKS.get(str(server.get("status")), "?"))


def preview(servers: list[Json], row: Row) -> str:
    """Why a server failed, or the names of its tools."""
    server = next(one for one in servers if one["name"] == row.key)
    tools = [str(tool.get("name", "")) for tool in server.get("tools") or ()]
    return str(server.get("error") or "") or ", ".join(tools)


async def manage_server(view: View, server: Json) -> None:
    name, status = str(server["name"]), server.get("status")
    switch = Row("e", "enable") if status == "disabled" else Row("d", "disable")
    rows = [Row("t", "show its tools"), Row("r", "connect again"), switch]
    picked = await view.choose(f"{reveal_line(name)}: {reveal_line(str(status))}", rows, search=False)
    if picked is None:
        return
    if picked.key == "t":
        view.print(format_server(server, view))
        return
    if picked.key == "r":
        await view.client.reconnect_mcp_server(name)
    else:
        await view.client.toggle_mcp_server(name, picked.key == "e")
    after = next((one for one in await list_servers(view) if one["name"] == name), server)
    view.print(format_server(after, view)[:1])


def format_server(server: Json, view: View) -> list[str]:
    """Its state, where it is configured, why it failed, and its tools."""
    styles, row = view.styles, describe_server(server)
    lines = [styles.bold(shorten(f"{row.mark} {reveal_line(row.label)}: {reveal_line(row.detail)}", view.width))]
    if server.get("error"):
        reason = wrap(reveal_text(str(server["error"])), view.width - 2)[:MAX_ERROR_LINES]
        lines += [f"  {styles.bad(line)}" for line in reason]
    for tool in server.get("tools") or ():
        hints = [hint for hint, is_so in (tool.get("annotations") or {}).items() if is_so is True]
        about = f" ({', '.join(hints)})" if hints else ""
        lines.append(shorten(f"  {reveal_line(str(tool.get('name', '')))}{reveal_line(about)}", view.width))
    return lines
