"""Ask the client whether a sandboxed command may connect to a host."""

from __future__ import annotations

import msgspec

from parley.engine.approval.gate import ApprovalGate
from parley.engine.approval.request import input_digest
from parley.errors import SessionError
from parley.host import HostError, HostGone
from parley.permissions.base import Deny, InvalidUpdate, ToolRequest
from parley.permissions.rules import suggest_fetch
from parley.protocol.base import convert
from parley.protocol.messages.requests import CanUseTool, PermissionAnswer

NETWORK_TOOL = "SandboxNetworkAccess"
"""Not a tool: the name under which the client is asked."""


async def ask_about_host(gate: ApprovalGate, host: str, port: int, call_id: str) -> bool:
    """Whether the client allows it. Its answer may contain a rule, so that it is not asked again. Does not raise."""
    input = {"host": host}
    asked = CanUseTool(
        tool_name=NETWORK_TOOL,
        display_name=NETWORK_TOOL,
        title=f"Let a sandboxed command connect to {host}:{port}?",
        input=input,
        input_sha256=input_digest(input),
        description=f"Allow network connection to {host}?",
        permission_suggestions=list(suggest_fetch(host)),
        decision_reason="The host is not in sandbox.network.allowedDomains",
        decision_reason_type="other",
        tool_use_id=call_id,
    )
    try:
        answer = await gate.ask_client(asked)
        reply: PermissionAnswer = convert(answer, PermissionAnswer)
        if reply.behavior != "allow":
            return False
        gate.apply_updates(reply.updatedPermissions)
    except (HostGone, HostError, InvalidUpdate, SessionError, msgspec.ValidationError):
        return False
    request = ToolRequest(tool="WebFetch", input={"url": f"https://{host}/"}, cwd="/")
    return not isinstance(gate.policy.decide(request, "default"), Deny)
