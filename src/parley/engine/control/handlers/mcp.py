"""Handlers of requests about MCP servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.engine.approval.input_digest import input_digest
from parley.errors import NotPossible, ToolError
from parley.permissions.base import Deny, ToolRequest
from parley.protocol.base import Json
from parley.protocol.messages import requests
from parley.tools.base import server_name

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.mcp.server import McpServer

MAX_NAME_CHARS = 200
HINTS = {"readOnlyHint": "readOnly", "destructiveHint": "destructive", "openWorldHint": "openWorld"}


def mcp_status(session: Session, request: requests.McpStatus) -> requests.McpStatusAnswer:
    return requests.McpStatusAnswer(mcpServers=[server_status(server) for server in session.servers])


def server_status(server: McpServer) -> Json:
    from parley.mcp.content import clean  # loaded with the first server

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
        names = [(clean(tool["name"])[:MAX_NAME_CHARS], tool_hints(tool)) for tool in server.tools]
        facts["tools"] = [{"name": name, "annotations": hints} for name, hints in names]
    return facts


def tool_hints(tool: Json) -> Json:
    hints = tool.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    return {ours: hints[theirs] for theirs, ours in HINTS.items() if isinstance(hints.get(theirs), bool)}


def find_server(session: Session, name: str) -> McpServer:
    server = session.servers.find(name)
    if server is None:
        raise NotPossible(f"Server not found: {name}")
    return server


async def mcp_reconnect(session: Session, request: requests.McpReconnect) -> None:
    server = find_server(session, request.serverName)
    await server.reconnect()
    check_connected(server)


async def mcp_toggle(session: Session, request: requests.McpToggle) -> None:
    server = find_server(session, request.serverName)
    if not request.enabled:
        await server.disable()
        return
    await server.enable()
    check_connected(server)


def check_connected(server: McpServer) -> None:
    if server.status != "connected":
        why = f": {server.reason}" if server.reason else ""
        raise NotPossible(f"{server.spec.name}: {server.status}{why}", "mcp_not_connected")


async def mcp_set_servers(session: Session, request: requests.McpSetServers) -> Json:
    return await session.servers.replace(request.servers)


def mcp_message(session: Session, request: requests.McpMessage) -> Json:
    """A notification of a server that the client runs."""
    if not session.servers.receive(request.server_name, request.message):
        raise NotPossible(f"Server not found: {request.server_name}")
    return {}


async def mcp_call(session: Session, request: requests.McpCall) -> Json:
    """A call by the client, which needs no approval. A deny rule still applies."""
    arguments = request.arguments if isinstance(request.arguments, dict) else {}
    tool = session.config.tools.get(request.tool)
    server = "" if tool is None else server_name(tool)
    asked = ToolRequest(tool=request.tool, input=arguments, cwd=session.config.cwd, reads_only=False, server=server)
    decision = session.gate.policy.decide(asked, session.mode)
    denied = isinstance(decision, Deny) and decision.rule is not None
    session.journal.append_event(
        "permission",
        {
            "tool_use_id": f"host-{session.clock.new_uuid()}",
            "tool": request.tool,
            "decision": "deny" if denied else "allow",
            "source": "rule" if denied else "host",
            "reason": "the host calls it",
            "mode": session.mode,
            "asked": False,
            "cwd": session.config.cwd,
            "input_sha256": input_digest(arguments),
            "elapsed_ms": 0,
        },
    )
    if isinstance(decision, Deny) and denied:
        raise NotPossible(decision.message, "permission_denied")
    seconds = request.timeout_ms / 1000 if isinstance(request.timeout_ms, int | float) else None
    try:
        return await session.servers.call_tool(request.tool, arguments, seconds)
    except ToolError as exc:
        raise NotPossible(str(exc), "mcp_call_failed") from None


async def mcp_read_resource(session: Session, request: requests.McpReadResource) -> Json:
    if not request.uri.startswith("ui://"):
        raise NotPossible("only resources with ui:// addresses can be read this way")
    try:
        return {"contents": await find_server(session, request.serverName).read(request.uri)}
    except ToolError as exc:
        raise NotPossible(str(exc), "mcp_call_failed") from None
