"""Assess a tool call: which rules match it, and what it would touch.

    assessment = assess(request, rules, mode, fs)

There is one function per kind of tool; Bash has its own module (command.py). The decision is in decision.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

import msgspec

from parley.permissions import suggestions, web_hosts
from parley.permissions.base import (
    ENDLESS,
    KEYS,
    OUTSIDE,
    PROTECTED,
    RESTRICTING,
    Assessment,
    Filesystem,
    ResolvedPath,
    ToolRequest,
)
from parley.permissions.paths.protected import holds_keys, is_protected
from parley.permissions.rule import Rule
from parley.permissions.rules import DELEGATE_PARAMETERS, EDIT_TOOLS, READ_TOOLS, RuleSet
from parley.workspace.base import Scope
from parley.workspace.globs import split_prefix

SEARCH_TOOLS = frozenset({"Grep", "Glob", "LS"})
PATH_PARAMETERS = {
    **dict.fromkeys(SEARCH_TOOLS, "path"),
    "NotebookEdit": "notebook_path",
    "NotebookRead": "notebook_path",
}
"""Which parameter names the file, where it is not `file_path`."""
LOCAL_HOST = "The host is, or may be, a local or private address"


def assess(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    """Everything that the decision needs. Rules for a whole tool come before rules for some of its calls."""
    assessment = find_assessor(request.tool)(request, rules, mode, fs)
    tool, server = request.tool, request.server
    deny, ask = rules.find_tool_rule("deny", tool, server), rules.find_tool_rule("ask", tool, server)
    allow = rules.find_tool_rule("allow", tool, server)
    if deny is None and ask is None and allow is None:
        return assessment
    return msgspec.structs.replace(
        assessment,
        deny=deny or assessment.deny,
        ask=ask or assessment.ask,
        allow=allow or assessment.allow,
        allow_type="rule" if allow else assessment.allow_type,
    )


def find_assessor(tool: str) -> Callable[[ToolRequest, RuleSet, str, Filesystem], Assessment]:
    if tool == "Bash" and tool not in ASSESSORS:
        from parley.permissions.command import assess_command

        ASSESSORS[tool] = assess_command
    return ASSESSORS.get(tool, assess_other)


# Files.


def assess_read(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    paths = target_paths(request)
    resolved_paths = [fs.resolve(path) for path in paths]
    inside = all(rules.is_readable(resolved, fs) for resolved in resolved_paths)
    endless = any(resolved.real is None for resolved in resolved_paths)
    has_keys = any(holds_keys(name) for resolved in resolved_paths for name in resolved.names)
    searches = request.tool in SEARCH_TOOLS
    restricting = {
        behavior: first_rule(
            rules.find_restriction(behavior, resolved, request.tool, fs, writing=False) for resolved in resolved_paths
        )
        for behavior in RESTRICTING
    }
    allowing = [rules.find_allow(resolved, request.tool, fs, writing=False) for resolved in resolved_paths]
    return Assessment(
        deny=restricting["deny"],
        ask=restricting["ask"],
        hazard=ENDLESS if endless else "",
        allow=allowing[-1] if all(allowing) else None,
        category="harmless" if inside and not has_keys else "other",
        can_change=False,
        reason=OUTSIDE if not inside else KEYS if has_keys else "",
        reason_type="workingDir" if not inside else "other" if has_keys else "",
        scope=build_scope(resolved_paths, beneath=searches),
        suggestions=suggestions.suggest_read(paths[-1] if searches else os.path.dirname(paths[-1])),
    )


def first_rule(found: Iterable[Rule | None]) -> Rule | None:
    return next((rule for rule in found if rule is not None), None)


def assess_edit(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    [path] = target_paths(request)
    resolved = fs.resolve(path)
    inside = rules.is_inside(resolved, fs)
    hazard = find_write_hazard(resolved, request, fs)
    protected = hazard != ""
    return Assessment(
        deny=rules.find_restriction("deny", resolved, request.tool, fs, writing=True),
        ask=rules.find_restriction("ask", resolved, request.tool, fs, writing=True),
        hazard=hazard,
        allow=rules.find_allow(resolved, request.tool, fs, writing=True)
        or rules.find_tool_rule_for_file(resolved, request.tool),
        category="edit" if inside and not protected else "other",
        reason="" if inside else OUTSIDE,
        reason_type="" if inside else "workingDir",
        scope=build_scope([resolved], beneath=False),
        suggestions=() if protected else suggestions.suggest_edit(path, mode, inside=inside),
    )


def find_write_hazard(resolved: ResolvedPath, request: ToolRequest, fs: Filesystem) -> str:
    """Why no rule, and no mode but bypassPermissions, approves writing a file."""
    if resolved.real is None:
        return ENDLESS
    if any(map(is_protected, resolved.names)):
        return PROTECTED
    from parley.permissions.paths.programs import explain_shadowing

    return explain_shadowing([resolved], request, fs)


def target_paths(request: ToolRequest) -> list[str]:
    """The absolute paths that a file tool accesses."""
    input = request.input
    value = input.get(PATH_PARAMETERS.get(request.tool, "file_path"))
    given = value if isinstance(value, str) else ""
    path = os.path.join("/", request.cwd, given) if given else request.cwd
    pattern = input.get("pattern")
    if request.tool == "Glob" and isinstance(pattern, str) and (prefix := split_prefix(pattern)[0]):
        # A pattern may contain `..` or start at the root.
        return [path, os.path.join(path, prefix)]
    return [path]


def build_scope(resolved_paths: Sequence[ResolvedPath], *, beneath: bool) -> Scope:
    """Exactly the assessed paths: a name that leads elsewhere a moment later is not followed."""
    reals = tuple(resolved.real for resolved in resolved_paths if resolved.real is not None)
    return Scope(folders=reals, files=reals) if beneath else Scope(files=reals)


# The network, delegates, and all other tools.


def assess_web_fetch(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    url = request.input.get("url")
    host = web_hosts.parse_host(url) if isinstance(url, str) else None
    if host is None:
        return Assessment(hazard="The URL is not valid", can_change=False)
    is_local = web_hosts.is_local(host)
    return Assessment(
        deny=rules.find_host_rule("deny", request.tool, host),
        ask=rules.find_host_rule("ask", request.tool, host),
        hazard=LOCAL_HOST if is_local else "",
        allow=rules.find_host_rule("allow", request.tool, host),
        can_change=False,
        suggestions=() if is_local else suggestions.suggest_fetch(host),
    )


def assess_delegate(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    """The calls of a subagent get decisions of their own, so starting one is harmless. A skill adds foreign text."""
    assessment = assess_input(request, rules)
    return msgspec.structs.replace(
        assessment,
        category="harmless" if request.tool == "Task" else "other",
        can_change=False,
        suggestions=suggestions.suggest_delegate(request.tool, request.input.get(DELEGATE_PARAMETERS[request.tool])),
    )


def assess_other(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    is_mcp = request.tool.startswith("mcp__")
    # A server's own claim that its tool only reads matters in plan mode, but does not replace approval.
    harmless = request.tool in SESSION_TOOLS or (request.reads_only and not is_mcp)
    return msgspec.structs.replace(
        assess_input(request, rules),
        category="harmless" if harmless else "other",
        can_change=not request.reads_only and request.tool not in SESSION_TOOLS | READING_TOOLS,
        suggestions=suggestions.suggest_tool(request.tool),
    )


def assess_input(request: ToolRequest, rules: RuleSet) -> Assessment:
    return Assessment(
        deny=rules.find_input_rule("deny", request.tool, request.input, request.server),
        ask=rules.find_input_rule("ask", request.tool, request.input, request.server),
        allow=rules.find_input_rule("allow", request.tool, request.input, request.server),
    )


SESSION_TOOLS = frozenset({"TaskStop", "TaskOutput", "TodoWrite", "EnterPlanMode"})
"""They act on what the session itself has started or noted down."""
READING_TOOLS = frozenset({"WebSearch"})
"""They carry words out of the machine, but change nothing."""
ASSESSORS: dict[str, Callable[[ToolRequest, RuleSet, str, Filesystem], Assessment]] = {
    **dict.fromkeys(READ_TOOLS, assess_read),
    **dict.fromkeys(EDIT_TOOLS, assess_edit),
    **dict.fromkeys(DELEGATE_PARAMETERS, assess_delegate),
    "WebFetch": assess_web_fetch,
}
