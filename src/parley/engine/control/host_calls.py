"""Calls of MCP tools that the client makes for others, such as a page that it shows (`check_permissions`).

They are decided as calls of the model are: rules, mode, hooks and, if necessary, the client. The decision is recorded.
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
from parley.permissions.base import Deny
from parley.protocol.base import Json
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.panel_requests import McpCall
from parley.tools.base import Context, Tool, ToolOutput, server_name
from parley.workspace.base import Scope

if TYPE_CHECKING:
    from parley.engine.session.session import Session

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
    return FOR_COMMAND if session.commands.allows_for_turn(tool.name, server_name(tool)) else ""


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
