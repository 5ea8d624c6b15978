"""The decision: one pure function for every tool call.

    deny rule > ask rule > run by the client > critical > allow rule > mode > ask

`decide` assesses the call (assessment.py) and looks the answer up in the table of modes. docs/permissions.md shows the
same table.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from parley.permissions.assessment import assess
from parley.permissions.base import Allow, Ask, Assessment, Decision, Deny, RawFilesystem, ToolRequest
from parley.permissions.budget import OverBudget
from parley.permissions.paths.filesystem import CachedFilesystem
from parley.permissions.rule import Rule
from parley.permissions.rules import RuleSet
from parley.protocol.base import Json
from parley.tools.catalog import FILE_EFFECTS, find_traits
from parley.tools.selection import canonical_name
from parley.workspace.base import Scope

Verdict = Literal["allow", "ask", "deny"]

MODES: dict[str, dict[str, Verdict]] = {
    "default": {"harmless": "allow", "edit": "ask", "other": "ask", "hazard": "ask"},
    "acceptEdits": {"harmless": "allow", "edit": "allow", "other": "ask", "hazard": "ask"},
    "plan": {"harmless": "allow", "edit": "ask", "other": "ask", "hazard": "ask"},
    "bypassPermissions": {"harmless": "allow", "edit": "allow", "other": "allow", "hazard": "allow"},
    "dontAsk": {"harmless": "allow", "edit": "deny", "other": "deny", "hazard": "deny"},
    "auto": {"harmless": "allow", "edit": "allow", "other": "ask", "hazard": "ask"},
}
"""What each mode decides if no rule does. `auto` equals acceptEdits: no model takes part in the decision."""
RUN_BY_CLIENT = "The client runs this tool itself"
PLAN_MODE = "Plan mode changes nothing before the plan is approved"


def decide(request: ToolRequest, rules: RuleSet, mode: str, fs: RawFilesystem) -> Decision:
    """The first line that applies wins. An unknown mode counts as `default`."""
    if (listed := canonical_name(request.tool)) != request.tool:
        request = msgspec.structs.replace(request, tool=listed)
    assessment = assess_within_budget(request, rules, mode, fs)
    if assessment.deny is not None:
        return deny_by_rule(request, assessment.deny)
    if request.asks_user:
        return ask_or_deny(request, assessment, mode, "")
    if assessment.ask is not None:
        reason = f"The ask rule {assessment.ask.text} ({assessment.ask.source}) matches"
        return ask_or_deny(request, assessment, mode, reason, "rule")
    if request.runs_elsewhere:
        return Allow(input=request.input, source="client", reason=RUN_BY_CLIENT, reason_type="other")
    if assessment.critical:
        return ask_or_deny(request, assessment, mode, assessment.critical, "safetyCheck")
    if mode == "plan" and request.plan_file is not None and assessment.scope.files == (request.plan_file,):
        return Allow(
            input=request.input, source="mode", reason="plan file", reason_type="other", scope=assessment.scope
        )
    if assessment.allow is not None and not assessment.hazard and not (mode == "plan" and assessment.can_change):
        return Allow(
            input=request.input,
            source="rule",
            reason=assessment.allow.text,
            reason_type=assessment.allow_type,
            rule=assessment.allow,
            scope=assessment.scope,
        )
    return decide_by_mode(request, assessment, mode)


def assess_within_budget(request: ToolRequest, rules: RuleSet, mode: str, fs: RawFilesystem) -> Assessment:
    """The assessment; over budget, only the reason and the rules for the whole tool."""
    try:
        return assess(request, rules, mode, CachedFilesystem(fs))
    except OverBudget as exc:
        deny, ask = rules.find_tool_rule("deny", request.tool), rules.find_tool_rule("ask", request.tool)
        return Assessment(deny=deny, ask=ask, critical=str(exc), scope=Scope(anywhere=not touches_files(request.tool)))


def touches_files(tool: str) -> bool:
    return find_traits(tool).effect in FILE_EFFECTS


def runs_commands(tool: str) -> bool:
    return find_traits(tool).effect == "runs_commands"


def decide_by_mode(request: ToolRequest, assessment: Assessment, mode: str) -> Decision:
    verdict = MODES.get(mode, MODES["default"])["hazard" if assessment.hazard else assessment.category]
    if verdict == "allow":
        # Deny rules hold in every mode, so the scope of a call on one file stays that file.
        searches = bool(assessment.scope.folders)
        scope = Scope(anywhere=True) if mode == "bypassPermissions" and searches else assessment.scope
        kind = "subcommandResults" if runs_commands(request.tool) and mode != "bypassPermissions" else "mode"
        return Allow(input=request.input, source="mode", reason=mode, reason_type=kind, scope=scope)
    if verdict == "deny":
        suggestions = () if assessment.hazard else assessment.suggestions
        return deny_unapproved(request, mode, assessment.hazard or assessment.reason, suggestions)
    if assessment.hazard:
        return Ask(
            reason=assessment.hazard,
            reason_type="safetyCheck",
            blocked_path=assessment.blocked_path,
            scope=assessment.scope,
        )
    if mode == "plan" and assessment.can_change:
        return Ask(reason=PLAN_MODE, reason_type="mode", scope=assessment.scope)
    return Ask(
        reason=assessment.reason,
        reason_type=assessment.reason_type,
        suggestions=assessment.suggestions,
        blocked_path=assessment.blocked_path,
        scope=assessment.scope,
    )


def ask_or_deny(request: ToolRequest, assessment: Assessment, mode: str, reason: str, kind: str = "") -> Decision:
    """The call needs approval; in dontAsk it is denied instead."""
    if mode == "dontAsk":
        return deny_unapproved(request, mode, reason)
    return Ask(
        reason=reason,
        reason_type=kind,
        rule=assessment.ask,
        blocked_path=assessment.blocked_path,
        scope=assessment.scope,
    )


def deny_unapproved(request: ToolRequest, mode: str, reason: str, suggestions: tuple[Json, ...] = ()) -> Deny:
    text = f"{request.tool} is not approved in advance, and the mode {mode} does not ask for approval."
    text += f" Approval is required: {reason}." if reason else ""
    return Deny(message=text, source="mode", reason=mode, reason_type="mode", suggestions=suggestions)


def deny_by_rule(request: ToolRequest, rule: Rule) -> Deny:
    kind = "subcommandResults" if runs_commands(request.tool) and rule.spec is not None else "rule"
    text = f"{request.tool} was denied: the rule {rule.text} ({rule.source}) forbids it."
    return Deny(message=text, source="rule", reason=rule.text, reason_type=kind, rule=rule)
