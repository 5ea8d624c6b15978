"""The answers to the host's requests about MCP servers. Those that take time are awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.engine.approval.input_digest import digest
from parley.errors import NotPossible, ToolError
from parley.permissions.base import Deny, Request
from parley.protocol.base import Json
from parley.protocol.messages import requests as ask
from parley.tools.base import server_name

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.mcp.server import Server

MOST_NAME_CHARS = 200
HINTS = {"readOnlyHint": "readOnly", "destructiveHint": "destructive", "openWorldHint": "openWorld"}


def mcp_status(session: Session, request: ask.McpStatus) -> ask.McpStatusAnswer:
    return ask.McpStatusAnswer(mcpServers=[status(server) for server in session.servers])


def status(server: Server) -> Json:
    from parley.mcp.content import clean  # whoever has a server has loaded it

    spec = server.spec
    facts: Json = {"name": spec.name, "status": server.status}
    if server.info:
        facts["serverInfo"] = {key: server.info[key] for key in ("name", "version") if key in server.info}
    if server.reason:
        facts["error"] = server.reason
    if server.stderr:
        facts["stderr"] = server.stderr
    if spec.shown:
        facts["config"] = spec.shown
    facts |= {"transport": spec.kind, "scope": spec.scope, "source": spec.source}
    if spec.required:
        facts["required"] = True
    if server.status == "connected":
        names = [(clean(tool["name"])[:MOST_NAME_CHARS], hints_of(tool)) for tool in server.tools]
        facts["tools"] = [{"name": name, "annotations": hints} for name, hints in names]
    return facts


def hints_of(tool: Json) -> Json:
    hints = tool.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    return {ours: hints[theirs] for theirs, ours in HINTS.items() if isinstance(hints.get(theirs), bool)}


def known(session: Session, name: str) -> Server:
    server = session.servers.find(name)
    if server is None:
        raise NotPossible(f"Server not found: {name}")
    return server


async def mcp_reconnect(session: Session, request: ask.McpReconnect) -> None:
    server = known(session, request.serverName)
    await server.reconnect()
    must_be_there(server)


async def mcp_toggle(session: Session, request: ask.McpToggle) -> None:
    server = known(session, request.serverName)
    if not request.enabled:
        await server.disable()
        return
    await server.enable()
    must_be_there(server)


def must_be_there(server: Server) -> None:
    if server.status != "connected":
        why = f": {server.reason}" if server.reason else ""
        raise NotPossible(f"{server.spec.name}: {server.status}{why}", "mcp_not_connected")


async def mcp_set_servers(session: Session, request: ask.McpSetServers) -> Json:
    return await session.servers.replace(request.servers)


def mcp_message(session: Session, request: ask.McpMessage) -> Json:
    """What a server of the host says of its own accord."""
    if not session.servers.hear(request.server_name, request.message):
        raise NotPossible(f"Server not found: {request.server_name}")
    return {}


async def mcp_call(session: Session, request: ask.McpCall) -> Json:
    """A call by the host itself, which is its consent; a rule that denies the tool holds all the same."""
    arguments = request.arguments if isinstance(request.arguments, dict) else {}
    tool = session.setup.tools.get(request.tool)
    server = "" if tool is None else server_name(tool)
    asked = Request(tool=request.tool, input=arguments, cwd=session.setup.cwd, reads_only=False, server=server)
    decision = session.asker.permits.decide(asked, session.mode)
    denied = isinstance(decision, Deny) and decision.rule is not None
    session.record.note(
        "permission",
        {
            "tool_use_id": f"host-{session.stamp.new_uuid()}",
            "tool": request.tool,
            "decision": "deny" if denied else "allow",
            "source": "rule" if denied else "host",
            "reason": "the host calls it",
            "mode": session.mode,
            "asked": False,
            "cwd": session.setup.cwd,
            "input_sha256": digest(arguments),
            "elapsed_ms": 0,
        },
    )
    if isinstance(decision, Deny) and denied:
        raise NotPossible(decision.message, "permission_denied")
    seconds = request.timeout_ms / 1000 if isinstance(request.timeout_ms, int | float) else None
    try:
        return await session.servers.call(request.tool, arguments, seconds)
    except ToolError as flaw:
        raise NotPossible(str(flaw), "mcp_call_failed") from None


async def mcp_read_resource(session: Session, request: ask.McpReadResource) -> Json:
    if not request.uri.startswith("ui://"):
        raise NotPossible("only resources with ui:// addresses can be read this way")
    try:
        return {"contents": await known(session, request.serverName).read(request.uri)}
    except ToolError as flaw:
        raise NotPossible(str(flaw), "mcp_call_failed") from None
