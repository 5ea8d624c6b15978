"""What a host is asked: one call, why it is asked about, and all a person needs to decide.

Not here: who is asked, and what the answer means (gate.py).
"""

from __future__ import annotations

import os

from parley.engine.approval.input_digest import input_digest
from parley.permissions.base import Ask, ToolRequest
from parley.protocol.base import UNSET, UnsetType
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.requests import CanUseTool
from parley.tools.base import Tool, always_asks, display_name, server_of
from parley.tools.catalog import JUDGED_BY_CALL, find_traits

SUBJECTS = ("description", "command", "url", "query")
"""Where an input says best what a call is about."""
PATHS = ("file_path", "notebook_path", "path")
BINDING_REASONS = frozenset({"rule", "safetyCheck"})
"""Reasons that a rule cannot take away: to offer one would be of no use."""


def build_can_use_tool(
    question: Ask, request: ToolRequest, call: ToolUse, tool: Tool, agent_id: str | None = None
) -> CanUseTool:
    from parley.mcp.content import reveal  # few sessions ask

    asks_person = always_asks(tool)
    shown = display_name(tool, call.name)
    about = reveal(description(request))
    return CanUseTool(
        tool_name=call.name,
        mcp_server=server_of(tool) or UNSET,
        display_name=shown,
        title=title(call.name, shown, about),
        input=call.input,
        input_sha256=input_digest(call.input),
        description=about or UNSET,
        permission_suggestions=list(question.suggestions) or UNSET,
        blocked_path=question.blocked_path or UNSET,
        decision_reason=question.reason or UNSET,
        decision_reason_type=question.reason_type or UNSET,
        decision_reason_hook_event="PreToolUse" if question.reason_type == "hook" else UNSET,
        decision_reason_hook_source="settings" if question.reason_type == "hook" else UNSET,
        matched_ask_rule=question.rule.text if question.rule is not None else UNSET,
        tool_use_id=call.id,
        agent_id=agent_id or UNSET,
        requires_user_interaction=true_or_unset(asks_person),
        server_policy_ask_only=true_or_unset(is_about_tool_kind(question, call.name, asks_person)),
        suppress_always_allow_rule=true_or_unset(question.reason_type in BINDING_REASONS),
        default_to_no=true_or_unset(question.reason_type == "safetyCheck"),
    )


def true_or_unset(is_so: bool) -> bool | UnsetType:
    """What is not so is not said."""
    return True if is_so else UNSET


def is_about_tool_kind(question: Ask, name: str, asks_person: bool) -> bool:
    """Whether nothing but the kind of the tool, or the place it reaches for, wants the question."""
    return (
        find_traits(name).effect not in JUDGED_BY_CALL
        and not asks_person
        and question.reason_type in ("", "workingDir")
    )


def title(name: str, shown: str, about: str) -> str:
    """One sentence for a person, without words of the model's where they could pass for ours."""
    wanted = find_traits(name).title
    if "{about}" in wanted and not about:
        wanted = ""
    return (wanted or "Use {shown}?").format(about=about, shown=shown)


def description(request: ToolRequest) -> str:
    """What a call is about, in few words: a path as it is seen from the working directory."""
    input = request.input
    fields = (*find_traits(request.tool).path_fields, *PATHS)
    if path := next((input[key] for key in fields if isinstance(input.get(key), str)), ""):
        inner = os.path.relpath(path, request.cwd) if path.startswith("/") else path
        return path if inner.startswith("..") else inner
    return next((input[key] for key in SUBJECTS if isinstance(input.get(key), str) and input[key]), "")
