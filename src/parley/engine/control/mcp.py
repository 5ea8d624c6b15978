"""Requests about MCP servers, and calls of their tools by the client.

A client calls a tool for others, such as a page that it shows. With `check_permissions` the call is decided as one of
the model is: rules, mode, hooks and, if necessary, the client. The decision is recorded.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec

from parley.engine.approval.gate import Approval
from parley.engine.approval.request import input_digest
from parley.engine.turn.tool_executor import ToolExecutor
from parley.errors import NotPossible, ToolError
from parley.mcp.base import PREFIX
from parley.mcp.content import convert_result
from parley.permissions.base import Deny, ToolRequest
from parley.protocol.base import Json
from parley.protocol.blocks import ToolUse
from parley.protocol.messages import panel_requests, requests
from parley.protocol.messages.panel_requests import McpCall
from parley.tools.base import Context, Tool, ToolOutput
from parley.workspace.base import Scope

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.mcp.server_connection import McpServer


MAX_NAME_CHARS = 200
UI_SCHEME = "ui://"
AUDIENCES = frozenset({"model", "app"})
MAX_UI_BYTES = 16_384
OVERRIDE_MODES = ("default", "auto")
HINTS = {"readOnlyHint": "readOnly", "destructiveHint": "destructive", "openWorldHint": "openWorld"}


def mcp_status(session: Session, request: panel_requests.McpStatus) -> panel_requests.McpStatusAnswer:
    return panel_requests.McpStatusAnswer(mcpServers=[server_status(server) for server in session.servers])


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
        facts["tools"] = [
            {"name": clean(tool["name"])[:MAX_NAME_CHARS], "annotations": tool_hints(tool), **ui_fields(tool)}
            for tool in server.tools
        ]
    return facts


def tool_hints(tool: Json) -> Json:
    hints = tool.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    return {ours: hints[theirs] for theirs, ours in HINTS.items() if isinstance(hints.get(theirs), bool)}


def ui_fields(tool: Json) -> Json:
    """What a client needs to show the tool's own page, as far as it is valid."""
    meta = tool.get("_meta")
    if not isinstance(meta, dict):
        return {}
    shown: Json = {}
    if (ui := meta.get("ui")) is not None:
        found = check_ui(ui)
        shown |= {} if found is None else {"ui": found}
    address = meta.get("ui/resourceUri")
    if isinstance(address, str) and address.startswith(UI_SCHEME) and len(address) <= MAX_UI_BYTES:
        shown["ui/resourceUri"] = address
    return {"_meta": shown} if shown else {}


def check_ui(ui: Any) -> Json | None:
    """The object; of an invalid one, only who may see the tool."""
    if not isinstance(ui, dict):
        return {"visibility": []}
    address, visibility = ui.get("resourceUri"), ui.get("visibility")
    is_address = address is None or (isinstance(address, str) and address.startswith(UI_SCHEME))
    is_visibility = visibility is None or (isinstance(visibility, list) and set(map(str, visibility)) <= AUDIENCES)
    if is_address and is_visibility and len(msgspec.json.encode(ui)) <= MAX_UI_BYTES:
        return ui
    if visibility is None:
        return None
    listed = visibility if isinstance(visibility, list) else []
    return {"visibility": [one for one in listed if isinstance(one, str) and one in AUDIENCES]}


def find_server(session: Session, name: str) -> McpServer:
    server = session.servers.find(name)
    if server is None:
        raise NotPossible(f"Server not found: {name}")
    return server


async def mcp_reconnect(session: Session, request: panel_requests.McpReconnect) -> None:
    server = find_server(session, request.serverName)
    await server.reconnect()
    check_connected(server)


async def mcp_toggle(session: Session, request: panel_requests.McpToggle) -> None:
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


async def mcp_set_servers(session: Session, request: panel_requests.McpSetServers) -> Json:
    return await session.servers.replace(request.servers)


def mcp_message(session: Session, request: requests.McpMessage) -> Json:
    """A notification of a server that the client runs."""
    if not session.servers.receive(request.server_name, request.message):
        raise NotPossible(f"Server not found: {request.server_name}")
    return {}


def set_mcp_permission_mode_override(session: Session, request: panel_requests.SetMcpPermissionModeOverride) -> Json:
    """A mode for the tools of one server. It applies while the session's own mode allows without asking."""
    if request.mode is None:
        session.gate.mode_overrides.pop(request.serverName, None)
    elif request.mode in OVERRIDE_MODES:
        session.gate.mode_overrides[request.serverName] = request.mode
    else:
        choices = ", ".join(OVERRIDE_MODES)
        raise NotPossible(f"mode {request.mode!r:.100} cannot be set for a server (choose from {choices}, null)")
    if session.servers.find(request.serverName) is None:
        return {"warning": f"there is no MCP server {request.serverName!r:.200} yet"}
    return {}


async def mcp_call(session: Session, request: panel_requests.McpCall) -> Json:
    """A call by the client, which needs no approval unless it asks for one. A deny rule always applies."""
    check_call(request, session.clock.seconds())
    arguments = request.arguments if isinstance(request.arguments, dict) else {}
    seconds = request.timeout_ms / 1000 if isinstance(request.timeout_ms, int | float) else None
    if request.check_permissions is True:
        answer = await run_checked(session, request.tool, arguments, seconds)
    else:
        answer = await run_allowed(session, request.tool, arguments, seconds)
    return check_result(request, answer)


async def run_allowed(session: Session, name: str, arguments: Json, seconds: float | None) -> Json:
    """Call a tool for the client. Raises NotPossible."""
    tool = session.config.tools.get(name)
    server = "" if tool is None else tool.server_name
    asked = ToolRequest(tool=name, input=arguments, cwd=session.config.cwd, reads_only=False, server=server)
    decision = session.gate.policy.decide(asked, session.mode)
    denied = isinstance(decision, Deny) and decision.rule is not None
    session.journal.append_event(
        "permission",
        {
            "tool_use_id": f"host-{session.clock.new_uuid()}",
            "tool": name,
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
    try:
        return await session.servers.call_tool(name, arguments, seconds)
    except ToolError as exc:
        raise NotPossible(str(exc), "mcp_call_failed") from None


async def mcp_read_resource(session: Session, request: panel_requests.McpReadResource) -> Json:
    if not request.uri.startswith("ui://"):
        raise NotPossible("mcp_read_resource reads only resources whose address starts with ui://")
    server = find_server(session, request.serverName)
    if server.spec.kind == "sdk":
        raise NotPossible(
            f"the server {request.serverName!r:.200} runs in the client, which can read the resource without the engine"
        )
    try:
        return {"contents": await server.read(request.uri)}
    except ToolError as exc:
        raise NotPossible(str(exc), "mcp_call_failed") from None


async def mcp_authenticate(session: Session, request: panel_requests.McpAuthenticate) -> Json:
    server = find_server(session, request.serverName)
    redirect_uri = request.redirectUri if isinstance(request.redirectUri, str) else None
    if redirect_uri is not None and "://" not in redirect_uri:
        raise NotPossible(f"redirectUri is not a URL: {redirect_uri!r:.200}")
    return await session.servers.logins().start(server, redirect_uri)


async def mcp_oauth_callback_url(session: Session, request: panel_requests.McpOauthCallbackUrl) -> Json:
    await session.servers.logins().accept(find_server(session, request.serverName), request.callbackUrl)
    return {}


async def mcp_clear_auth(session: Session, request: panel_requests.McpClearAuth) -> Json:
    await session.servers.logins().clear(find_server(session, request.serverName))
    return {}


MAX_RESULT_CHARS = 10_485_760
"""The longest result that is not for a model."""
NOT_RUN = "The tool did not run: "
PLAN_MODE = "plan mode allows no changes before the plan is approved"
FOR_COMMAND = "a slash command allows this call, but only during its own turn"


def check_call(request: McpCall, now: float) -> None:
    """Raises NotPossible if the call asks for something that is not there."""
    for field in ("input_files", "output_files"):
        if getattr(request, field):
            raise NotPossible(
                f"mcp_call.{field} is not supported: files are not synchronized with the client", "unsupported_field"
            )
    if request.expires_at and not is_ahead(request.expires_at, now):
        raise NotPossible("mcp_call.expires_at is in the past or is not a valid time", "expired")


def is_ahead(value: Any, now: float) -> bool:
    try:
        end = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp() > now


def check_result(request: McpCall, answer: Json) -> Json:
    """Raises NotPossible if a result that no one shortens is too long."""
    if request.result_not_for_model is True:
        size = len(msgspec.json.encode(answer).decode())
        if size > MAX_RESULT_CHARS:
            raise NotPossible(f"the result has {size} characters; the limit is {MAX_RESULT_CHARS}", "mcp_call_failed")
    return answer


class HostCall:
    """A tool of a server that keeps its answer as the server gave it."""

    def __init__(self, tool: Any, seconds: float | None) -> None:
        self._tool = tool
        self._seconds = tool.timeout_seconds if seconds is None else seconds
        self.answer: Json = {}
        self.output: ToolOutput | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    async def run(self, call: Json, context: Context, reach: Scope) -> ToolOutput:
        """Raises ToolError."""
        self.answer = await self._tool.server.call(self._tool.own_name, call, meta={}, seconds=self._seconds)
        self.output = convert_result(self.answer)
        return self.output


async def run_checked(session: Session, name: str, arguments: Json, seconds: float | None) -> Json:
    """Call a tool after a decision like that on a call of the model. Raises NotPossible."""
    tool: Any = session.config.tools.get(name)
    if tool is None or not name.startswith(PREFIX):
        try:
            return await session.servers.call_tool(name, arguments, seconds)  # says why there is none
        except ToolError as exc:
            raise NotPossible(str(exc), "mcp_call_failed") from None
    call = ToolUse({"type": "tool_use", "id": f"host-{session.clock.new_uuid()}", "name": name, "input": arguments})
    refusal = find_refusal(session, tool)
    if refusal:
        deny(session, call, tool, refusal)
    held = HostCall(tool, seconds)
    context = session.tool_executor.context
    executor = ToolExecutor({name: cast(Tool, held)}, session.gate, context, session.hooks, session.config.warn)
    # No one is asked in plan mode.
    outcome = await executor.run(call, lambda: "dontAsk" if session.mode == "plan" else session.mode)
    if outcome.denied is not None:
        raise NotPossible(NOT_RUN + outcome.denied.message, "permission_denied")
    if outcome.output is held.output:
        return held.answer
    if held.output is None:
        raise NotPossible(str(outcome.output.content), "mcp_call_failed")
    # A hook replaced the result.
    content = outcome.output.content
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"content": blocks, **({"isError": True} if outcome.output.is_error else {})}


def find_refusal(session: Session, tool: Tool) -> str:
    """Why a call is refused although a rule may allow it."""
    if session.mode == "plan" and not tool.reads_only:
        return PLAN_MODE
    return FOR_COMMAND if session.commands.allows_for_turn(tool.name, tool.server_name) else ""


def deny(session: Session, call: ToolUse, tool: Tool, reason: str) -> None:
    """Record the denial. Raises NotPossible."""
    denial = Deny(message=reason, source="mode", reason=reason, reason_type="other")
    approval = Approval(
        call=call,
        decision=denial,
        input_sha256=input_digest(call.input),
        mode=session.mode,
        cwd=session.tool_executor.context.state.cwd,
        was_asked=False,
        wait_seconds=0,
    )
    session.gate.record(approval, tool, None)
    raise NotPossible(NOT_RUN + reason, "permission_denied")
