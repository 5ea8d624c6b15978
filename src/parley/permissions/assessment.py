"""Assess a tool call: which rules match it, and what it would touch.

    assessment = assess(request, rules, mode, fs)

There is one function per kind of tool; Bash has its own module (command.py). The decision is in decision.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

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
from parley.permissions.rules import RuleSet
from parley.tools.catalog import Effect, find_traits
from parley.tools.selection import SHELL
from parley.workspace.base import Scope
from parley.workspace.globs import split_prefix

LOCAL_HOST = "The host is, or may be, a local or private address"


def assess(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    """Everything that the decision needs. Rules for a whole tool come before rules for some of its calls."""
    assessment = find_assessor(request.tool)(request, rules, mode, fs)
    tool, server = request.tool, request.server
    deny, ask = rules.find_tool_rule("deny", tool, server), rules.find_tool_rule("ask", tool, server)
    allow = rules.find_tool_rule("allow", tool, server)
    traits = find_traits(tool)
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


def find_assessor(tool: str) -> Callable[[ToolRequest, RuleSet, str, Filesystem], Assessment]:
    traits = find_traits(tool)
    if traits.effect == "unknown" and traits.path_fields:
        return assess_undeclared
    return ASSESSORS.get(traits.effect, assess_other)


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
    paths = target_paths(request)
    resolved_paths = [fs.resolve(path) for path in paths]
    inside = all(rules.is_inside(resolved, fs) for resolved in resolved_paths)
    hazard = next(filter(None, (find_write_hazard(resolved, request, fs) for resolved in resolved_paths)), "")
    protected = hazard != ""
    restricting = {
        behavior: first_rule(
            rules.find_restriction(behavior, resolved, request.tool, fs, writing=True) for resolved in resolved_paths
        )
        for behavior in RESTRICTING
    }
    allowing = [
        rules.find_allow(resolved, request.tool, fs, writing=True)
        or rules.find_tool_rule_for_file(resolved, request.tool)
        for resolved in resolved_paths
    ]
    return Assessment(
        deny=restricting["deny"],
        ask=restricting["ask"],
        hazard=hazard,
        allow=allowing[-1] if all(allowing) else None,
        category="edit" if inside and not protected else "other",
        reason="" if inside else OUTSIDE,
        reason_type="" if inside else "workingDir",
        scope=build_scope(resolved_paths, beneath=False),
        suggestions=() if protected else suggestions.suggest_edit(paths[-1], mode, inside=inside),
    )


def assess_undeclared(request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> Assessment:
    """A tool that names files but not what it does with them: its paths are judged as written, and it asks."""
    assessment = assess_edit(request, rules, mode, fs)
    return msgspec.structs.replace(
        assessment, allow=None, category="other", suggestions=suggestions.suggest_tool(request.tool)
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
    """The absolute paths that a file tool accesses; the working directory if the call names none."""
    traits = find_traits(request.tool)
    given = [path for field in traits.path_fields for path in list_paths(request.input.get(field))]
    paths = [os.path.join("/", request.cwd, path) for path in given] or [request.cwd]
    pattern = request.input.get(traits.pattern_field) if traits.pattern_field else None
    if isinstance(pattern, str) and (prefix := split_prefix(pattern)[0]):
        # A pattern may contain `..` or start at the root.
        return [*paths, *(os.path.join(path, prefix) for path in paths)]
    return paths


def list_paths(value: Any) -> list[str]:
    """The paths that an input field holds: one, or several in a list."""
    values = value if isinstance(value, list) else [value]
    return [path for path in values if isinstance(path, str) and path]


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
    assessment, traits = assess_input(request, rules), find_traits(request.tool)
    return msgspec.structs.replace(
        assessment,
        category="harmless" if traits.effect == "delegates" else "other",
        can_change=False,
        suggestions=suggestions.suggest_delegate(request.tool, request.input.get(traits.subject_field)),
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
        suggestions=suggestions.suggest_tool(request.tool),
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
