"""What a decision on a tool call is about, and the `can_use_tool` request that asks the client for one.

See also: `gate.py` decides and reads the reply.
"""

from __future__ import annotations

import os

import msgspec

from parley.permissions.base import Ask, ToolRequest
from parley.protocol.base import UNSET, Json, Struct, UnsetType
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.requests import CanUseTool
from parley.tools.base import Context, Tool, always_asks, display_name, runs_elsewhere, server_name, server_of
from parley.tools.catalog import JUDGED_BY_CALL, find_traits

SUBJECTS = ("description", "command", "url", "query")
"""Input fields that describe a call, best first."""
PATHS = ("file_path", "notebook_path", "path")
BINDING_REASONS = frozenset({"rule", "safetyCheck"})
"""Reasons to ask that neither a hook nor an allow rule can override, so no rule is offered."""


class PendingCall(Struct, frozen=True, kw_only=True):
    """A tool call that waits for its decision."""

    call: ToolUse
    tool: Tool
    request: ToolRequest
    """The facts that the rules judge."""
    agent: Json | None = None
    """The subagent that calls, as hooks see it; None for the session's own model."""

    @property
    def agent_id(self) -> str | None:
        return None if self.agent is None else self.agent["agent_id"]


def permission_request(tool: Tool, input: Json, context: Context) -> ToolRequest:
    """The facts about a call that the rules judge."""
    return ToolRequest(
        tool=tool.name,
        input=input,
        cwd=context.state.cwd,
        reads_only=tool.reads_only,
        asks_user=always_asks(tool),
        plan_file=context.plan_file,
        runs_elsewhere=runs_elsewhere(tool),
        worktree=context.worktree,
        server=server_name(tool),
        search_path=context.environment.get("PATH", ""),
        home=context.environment.get("HOME", ""),
    )


def input_digest(input: Json) -> str:
    """SHA-256 of the input as JSON with sorted keys and no spaces, in UTF-8.

    It binds an approval to exactly the input that was shown: it is part of the request and of the journalled decision,
    and is checked again right before the tool runs.
    """
    import hashlib

    return hashlib.sha256(msgspec.json.encode(input, order="sorted")).hexdigest()


def build_can_use_tool(question: Ask, pending: PendingCall) -> CanUseTool:
    """The request that asks the client about a call."""
    call, tool = pending.call, pending.tool
    asks_person = always_asks(tool)
    shown = display_name(tool, call.name)
    about = description(pending.request)
    if not (about.isascii() and about.isprintable()):
        from parley.mcp.content import reveal

        about = reveal(about)
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
        agent_id=pending.agent_id or UNSET,
        requires_user_interaction=true_or_unset(asks_person),
        server_policy_ask_only=true_or_unset(is_about_tool_kind(question, call.name, asks_person)),
        suppress_always_allow_rule=true_or_unset(question.reason_type in BINDING_REASONS),
        default_to_no=true_or_unset(question.reason_type == "safetyCheck"),
    )


def true_or_unset(condition: bool) -> bool | UnsetType:
    """False is left out of the line."""
    return True if condition else UNSET


def is_about_tool_kind(question: Ask, name: str, asks_person: bool) -> bool:
    """Whether the client is asked only because of the tool, or the directory, and not because of the input."""
    return (
        find_traits(name).effect not in JUDGED_BY_CALL
        and not asks_person
        and question.reason_type in ("", "workingDir")
    )


def title(name: str, shown: str, about: str) -> str:
    """One sentence for a person. Text of the model appears only where it cannot be mistaken for ours."""
    template = find_traits(name).title
    if "{about}" in template and not about:
        template = ""
    return (template or "Use {shown}?").format(about=about, shown=shown)


def describe_call(call: ToolUse, cwd: str) -> str:
    """What a call is about: the command, not what the model says about it."""
    command = call.input.get("command")
    return command if isinstance(command, str) else description(ToolRequest(tool=call.name, input=call.input, cwd=cwd))


def description(request: ToolRequest) -> str:
    """What a call is about, in a few words. Paths are relative to the working directory."""
    input = request.input
    fields = (*find_traits(request.tool).path_fields, *PATHS)
    if path := next((input[key] for key in fields if isinstance(input.get(key), str)), ""):
        inner = os.path.relpath(path, request.cwd) if path.startswith("/") else path
        return path if inner.startswith("..") else inner
    return next((input[key] for key in SUBJECTS if isinstance(input.get(key), str) and input[key]), "")
