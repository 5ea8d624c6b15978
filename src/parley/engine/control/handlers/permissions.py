"""Permission rules for a client that shows them: what a call would be decided, and changes of rules.

See also: `settings.py` lists the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.engine.approval.explanation import explain
from parley.engine.approval.gate import evaluate, prepare_decision
from parley.engine.approval.request import permission_request
from parley.errors import NotPossible, SessionError
from parley.permissions.base import InvalidUpdate
from parley.protocol.base import Json
from parley.protocol.messages import panel_requests
from parley.protocol.options import MODES
from parley.tools.base import InvalidInput, prepare_input, read_input
from parley.tools.catalog import canonical_name

if TYPE_CHECKING:
    from parley.engine.session.session import Session

ASK_OUTCOME = "the client is asked"


async def check_permission(session: Session, request: panel_requests.CheckPermission) -> Json:
    """Decides on a call without running it, and without its PreToolUse hooks."""
    tools, context = session.config.tools, session.conversation.tool_context
    tool = tools.get(request.tool_name) or tools.get(canonical_name(request.tool_name))
    if tool is None:
        raise NotPossible(f"the session has no tool {request.tool_name!r:.100} (choose from {', '.join(tools)})")
    mode = request.mode if isinstance(request.mode, str) else session.mode
    if mode not in MODES:
        raise NotPossible(f"unknown permission mode {mode!r:.100} (choose from {', '.join(sorted(MODES))})")
    input = prepare_input(tool, request.input, context)
    try:
        read_input(tool, input)
    except InvalidInput as exc:
        raise NotPossible(f"the input is invalid, so there is no decision: {exc}") from None
    facts, policy = permission_request(tool, input, context), session.config.permissions.policy
    await prepare_decision(policy, facts, mode)
    decision = evaluate(policy, facts, mode, guarded=session.config.options.guard)
    settings = session.config.settings
    return explain(decision, facts, mode, settings.merged.rules if settings else (), ASK_OUTCOME).to_json()


def update_permissions(session: Session, request: panel_requests.UpdatePermissions) -> Json:
    """Applies all updates or none; returns the rules as `list_permission_rules` does."""
    try:
        session.gate.apply_updates(request.updates)
    except (InvalidUpdate, SessionError) as exc:
        raise NotPossible(str(exc)) from None
    return {"state": session.config.permissions.policy.list_rules()}
