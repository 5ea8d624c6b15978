"""The decision: one pure function for every tool call.

    deny rule > ask rule > run by the client > out of the sandbox > critical > allow rule > in the sandbox > mode > ask

`decide` assesses the call (which rules match it, and what it would touch) and looks the answer up in the table of
modes. docs/permissions.md shows the same table. There is one assessing function per kind of tool; Bash has its own
module (command.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from parley.permissions.base import (
    ENDLESS,
    KEYS,
    OUTSIDE,
    PROTECTED,
    RESTRICTING,
    Allow,
    Ask,
    Assessment,
    Decision,
    Deny,
    OverBudget,
    ToolRequest,
)
from parley.permissions.filesystem import CachedFilesystem, Filesystem, ResolvedPath, has_protected_target
from parley.permissions.patterns import is_local, parse_host
from parley.permissions.rules import (
    RuleSet,
    suggest_delegate,
    suggest_edit,
    suggest_fetch,
    suggest_read,
    suggest_tool,
)
from parley.protocol.base import Json
from parley.tools.catalog import FILE_EFFECTS, SHELL, Effect, canonical_name, find_traits
from parley.workspace.base import Scope
from parley.workspace.globs import split_prefix
from parley.workspace.sensitive_names import holds_keys

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
LOCAL_HOST = "The host is, or may be, a local or private address"
IN_SANDBOX = "It runs in the sandbox"
PLAN_MODE = "Plan mode allows no changes before the plan is approved"


def decide(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Decision:
    """The first line that applies wins. An unknown mode counts as `default`."""
    if (listed := canonical_name(request.tool)) != request.tool:
        request = msgspec.structs.replace(request, tool=listed)
    assessment = assess_within_budget(request, rules, mode, fs)
    runs_commands = find_traits(request.tool).effect == "runs_commands"
    if (rule := assessment.deny) is not None:
        kind = "subcommandResults" if runs_commands and rule.spec is not None else "rule"
        text = f"{request.tool} was denied: the rule {rule.text} ({rule.source}) forbids it."
        return Deny(message=text, source="rule", reason=rule.text, reason_type=kind, rule=rule)
    if request.asks_user:
        return ask_or_deny(request, assessment, mode, "")
    if assessment.ask is not None:
        reason = f"The ask rule {assessment.ask.text} ({assessment.ask.source}) matches"
        return ask_or_deny(request, assessment, mode, reason, "rule")
    if request.runs_elsewhere:
        return Allow(input=request.input, source="client", reason=RUN_BY_CLIENT, reason_type="other")
    outside = rules.sandbox is not None and runs_commands and request.input.get("dangerouslyDisableSandbox") is True
    if outside and rules.sandbox is not None:  # a command that asks to run outside needs approval in every mode
        from parley.permissions.boundary import NOT_OUTSIDE, WANTS_OUTSIDE

        if not rules.sandbox.allows_outside:
            return Deny(message=NOT_OUTSIDE, source="mode", reason=WANTS_OUTSIDE, reason_type="sandboxOverride")
        return ask_or_deny(request, assessment, mode, WANTS_OUTSIDE, "sandboxOverride")
    if assessment.critical:
        return ask_or_deny(request, assessment, mode, assessment.critical, "safetyCheck")
    if mode == "plan" and request.plan_file is not None and assessment.scope.files == (request.plan_file,):
        return Allow(
            input=request.input, source="mode", reason="plan file", reason_type="other", scope=assessment.scope
        )
    confined = msgspec.structs.replace(assessment.scope, confined=assessment.confined)
    if assessment.allow is not None and not assessment.hazard and not (mode == "plan" and assessment.can_change):
        return Allow(
            input=request.input,
            source="rule",
            reason=assessment.allow.text,
            reason_type=assessment.allow_type,
            rule=assessment.allow,
            scope=confined if assessment.allow_type != "rule" else assessment.scope,
        )
    if not assessment.hazard and not (mode == "plan" and assessment.can_change) and is_in_sandbox(request, rules, fs):
        scope = msgspec.structs.replace(assessment.scope, confined="sandbox")
        return Allow(input=request.input, source="mode", reason=IN_SANDBOX, reason_type="other", scope=scope)
    verdict = MODES.get(mode, MODES["default"])["hazard" if assessment.hazard else assessment.category]
    if verdict == "allow" and runs_commands and mode != "bypassPermissions":
        return Allow(input=request.input, source="mode", reason=mode, reason_type="subcommandResults", scope=confined)
    if verdict == "allow":
        # Deny rules hold in every mode, so the scope of a call on one file stays that file.
        searches = mode == "bypassPermissions" and bool(assessment.scope.folders)
        scope = Scope(anywhere=True) if searches else assessment.scope
        return Allow(input=request.input, source="mode", reason=mode, reason_type="mode", scope=scope)
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


def is_in_sandbox(request: ToolRequest, rules: RuleSet, fs: Filesystem) -> bool:
    """Whether `autoAllowBashIfSandboxed` allows a command, because it will run in the sandbox."""
    traits, command = find_traits(request.tool), request.input.get("command")
    if rules.sandbox is None or not rules.sandbox.auto_allows or not isinstance(command, str):
        return False
    if traits.effect != "runs_commands" or traits.is_external:
        return False
    from parley.permissions.boundary import list_excluded

    return not list_excluded(command, rules.sandbox.excluded, fs.home if request.home is None else request.home)


def assess_within_budget(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    """The assessment; over budget, only the reason and the rules for the whole tool."""
    try:
        return assess(request, rules, mode, CachedFilesystem(fs))
    except OverBudget as exc:
        deny, ask = rules.find_tool_rule("deny", request.tool), rules.find_tool_rule("ask", request.tool)
        touches_files = find_traits(request.tool).effect in FILE_EFFECTS
        return Assessment(deny=deny, ask=ask, critical=str(exc), scope=Scope(anywhere=not touches_files))


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
    text = f"This call of {request.tool} needs approval, and the mode {mode} denies such calls."
    text += f" Approval is required: {reason}." if reason else ""
    return Deny(message=text, source="mode", reason=mode, reason_type="mode", suggestions=suggestions)


# The assessment.


def assess(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    """Everything that the decision needs. Rules for a whole tool come before rules for some of its calls."""
    tool, server, traits = request.tool, request.server, find_traits(request.tool)
    assess_call = ASSESSORS.get(traits.effect, assess_other)
    if traits.effect == "unknown" and traits.path_fields:
        assess_call = assess_undeclared
    assessment = assess_call(request, rules, mode, fs)
    deny, ask = rules.find_tool_rule("deny", tool, server), rules.find_tool_rule("ask", tool, server)
    allow = rules.find_tool_rule("allow", tool, server)
    if traits.effect == "runs_commands" and tool != SHELL:
        # A rule for all commands holds for every tool that runs them; it allows only our own.
        deny, ask = deny or rules.find_tool_rule("deny", SHELL), ask or rules.find_tool_rule("ask", SHELL)
        allow = allow or (None if traits.is_external else rules.find_tool_rule("allow", SHELL))
    if deny is None and ask is None and allow is None:
        return assessment
    return msgspec.structs.replace(
        assessment,
        deny=deny or assessment.deny,
        ask=ask or assessment.ask,
        allow=allow or assessment.allow,
        allow_type="rule" if allow else assessment.allow_type,
    )


def assess_shell(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    from parley.permissions.command import assess_command

    return assess_command(request, rules, mode, fs)


# Files.


def assess_read(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    paths = target_paths(request)
    resolved_paths = [fs.resolve(path) for path in paths]
    inside = all(rules.is_readable(resolved, fs) for resolved in resolved_paths)
    endless = any(resolved.real is None for resolved in resolved_paths)
    has_keys = any(holds_keys(name) for resolved in resolved_paths for name in resolved.names)
    searches = find_traits(request.tool).effect == "searches_files"
    allowing = [rules.find_allow(resolved, request.tool, fs, writing=False) for resolved in resolved_paths]
    return Assessment(
        **find_restrictions(request, rules, resolved_paths, fs, writing=False),
        hazard=ENDLESS if endless else "",
        allow=allowing[-1] if all(allowing) else None,
        category="harmless" if inside and not has_keys else "other",
        can_change=False,
        reason=OUTSIDE if not inside else KEYS if has_keys else "",
        reason_type="workingDir" if not inside else "other" if has_keys else "",
        scope=build_scope(resolved_paths, beneath=searches),
        suggestions=suggest_read(paths[-1] if searches else os.path.dirname(paths[-1])),
    )


def find_restrictions(
    request: ToolRequest, rules: RuleSet, paths: Sequence[ResolvedPath], fs: Filesystem, *, writing: bool
) -> dict[str, Any]:
    """The first deny and the first ask rule that match one of these files."""
    return {
        behavior: next(
            filter(None, (rules.find_restriction(behavior, path, request.tool, fs, writing=writing) for path in paths)),
            None,
        )
        for behavior in RESTRICTING
    }


def assess_edit(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    paths = target_paths(request)
    resolved_paths = [fs.resolve(path) for path in paths]
    inside = all(rules.is_inside(resolved, fs) for resolved in resolved_paths)
    hazard = next(filter(None, (find_write_hazard(resolved, request, fs) for resolved in resolved_paths)), "")
    allowing = [
        rules.find_allow(resolved, request.tool, fs, writing=True)
        or rules.find_tool_rule_for_file(resolved, request.tool)
        for resolved in resolved_paths
    ]
    return Assessment(
        **find_restrictions(request, rules, resolved_paths, fs, writing=True),
        hazard=hazard,
        allow=allowing[-1] if all(allowing) else None,
        category="edit" if inside and not hazard else "other",
        reason="" if inside else OUTSIDE,
        reason_type="" if inside else "workingDir",
        scope=build_scope(resolved_paths, beneath=False),
        suggestions=() if hazard else suggest_edit(paths[-1], mode, inside=inside),
    )


def assess_undeclared(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    """A tool that names files but not what it does with them: its paths are judged as written, and it asks."""
    assessment = assess_edit(request, rules, mode, fs)
    return msgspec.structs.replace(assessment, allow=None, category="other", suggestions=suggest_tool(request.tool))


def find_write_hazard(resolved: ResolvedPath, request: ToolRequest, fs: Filesystem) -> str:
    """Why no rule, and no mode but bypassPermissions, approves writing a file."""
    if resolved.real is None:
        return ENDLESS
    if has_protected_target((resolved,), fs):
        return PROTECTED
    from parley.permissions.proven_command import explain_shadowing

    return explain_shadowing([resolved], request, fs)


def target_paths(request: ToolRequest) -> list[str]:
    """The absolute paths that a file tool accesses; the working directory if the call names none."""
    traits = find_traits(request.tool)
    values = [request.input.get(field) for field in traits.path_fields]
    given = [path for value in values for path in (value if isinstance(value, list) else [value])]
    paths = [os.path.join("/", request.cwd, path) for path in given if isinstance(path, str) and path] or [request.cwd]
    pattern = request.input.get(traits.pattern_field) if traits.pattern_field else None
    if isinstance(pattern, str) and (prefix := split_prefix(pattern)[0]):
        # A pattern may contain `..` or start at the root.
        return [*paths, *(os.path.join(path, prefix) for path in paths)]
    return paths


def build_scope(resolved_paths: Sequence[ResolvedPath], *, beneath: bool) -> Scope:
    """Exactly the assessed paths: a name that leads elsewhere a moment later is not followed."""
    reals = tuple(resolved.real for resolved in resolved_paths if resolved.real is not None)
    return Scope(folders=reals, files=reals) if beneath else Scope(files=reals)


# The network, delegates, and all other tools.


def assess_web_fetch(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    url = request.input.get("url")
    host = parse_host(url) if isinstance(url, str) else None
    if host is None:
        return Assessment(hazard="The URL is not valid", can_change=False)
    at_home = is_local(host)
    return Assessment(
        deny=rules.find_host_rule("deny", request.tool, host),
        ask=rules.find_host_rule("ask", request.tool, host),
        hazard=LOCAL_HOST if at_home else "",
        allow=rules.find_host_rule("allow", request.tool, host),
        can_change=False,
        suggestions=() if at_home else suggest_fetch(host),
    )


def assess_delegate(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    """The calls of a subagent get decisions of their own, so starting one is harmless. A skill adds foreign text."""
    assessment, traits = assess_input(request, rules), find_traits(request.tool)
    return msgspec.structs.replace(
        assessment,
        category="harmless" if traits.effect == "delegates" else "other",
        can_change=False,
        suggestions=suggest_delegate(request.tool, request.input.get(traits.subject_field)),
    )


def assess_other(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    traits = find_traits(request.tool)
    # A server or a package may claim that its tool changes nothing: then plan mode permits it, but it still asks.
    is_foreign = request.tool.startswith("mcp__") or traits.is_external
    harmless = traits.effect == "session" or (request.reads_only and not is_foreign)
    return msgspec.structs.replace(
        assess_input(request, rules),
        category="harmless" if harmless else "other",
        can_change=not request.reads_only and traits.effect not in UNCHANGING,
        suggestions=suggest_tool(request.tool),
    )


def assess_input(request: ToolRequest, rules: RuleSet) -> Assessment:
    return Assessment(
        deny=rules.find_input_rule("deny", request.tool, request.input, request.server),
        ask=rules.find_input_rule("ask", request.tool, request.input, request.server),
        allow=rules.find_input_rule("allow", request.tool, request.input, request.server),
    )


UNCHANGING: frozenset[Effect] = frozenset({"session", "searches_web"})
"""Effects that change nothing outside the session; a web search sends words out, and still asks."""
ASSESSORS: dict[Effect, Callable[[ToolRequest, RuleSet, str, Filesystem], Assessment]] = {
    "reads_files": assess_read,
    "searches_files": assess_read,
    "writes_files": assess_edit,
    "runs_commands": assess_shell,
    "fetches_urls": assess_web_fetch,
    "delegates": assess_delegate,
    "loads_skills": assess_delegate,
}
