"""One permission rule: `Tool` or `Tool(contents)`, as in settings, on a command line or in an update.

    parse_rule("Bash(git push:*)", "deny", "user", "/home/me")    # Rule(tool="Bash", spec="git push:*", ...)
    parse_rule("Bash(git push", "deny", "user", "/home/me")       # MalformedRule

A malformed rule grants nothing and is reported. `Tool`, `Tool()` and `Tool(*)` match every call of the tool. Within the
parentheses, a backslash escapes a parenthesis or a backslash.

See also: what contents mean (shell/command_rules.py, patterns.py), which rule wins (decision.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from parley.protocol.base import Json, Struct
from parley.tools.catalog import RuleContents, canonical_name, find_traits

Behavior = Literal["allow", "deny", "ask"]
SOURCES = ("managed", "flag", "local", "project", "user", "session", "server")
NAME = r"[A-Za-z_*][\w.*-]*"
MCP_ALLOW = r"mcp__(?!_)[\w.-]+?(__[\w.*-]+)?"
DOMAIN = r"domain:(\*|(\*\.)?[\w*-]+(\.[\w*-]+)*\.?|\[?[0-9a-fA-F:.]+\]?)"
PARAMETER = r"(?s:\w+:.+)"
TO_ESCAPE = r"[\\()]"
ESCAPE = r"\\\g<0>"
ESCAPED = r"\\([\\()])"
CONTROL = r"[\x00-\x08\x0b-\x1f\x7f]"


class Rule(Struct, frozen=True):
    """What happens to the calls that match."""

    behavior: Behavior
    tool: str
    """The canonical name of the tool; in a deny or ask rule it may contain `*`."""
    spec: str | None
    """The contents of the parentheses; None for every call of the tool."""
    source: str
    """Where the rule comes from, one of SOURCES."""
    root: str
    """The folder that a leading `/` in a path pattern means."""
    text: str
    """The rule as it was written."""


class MalformedRule(Struct, frozen=True):
    """A text that is not a valid rule. It neither grants nor denies anything."""

    text: str
    reason: str
    source: str


def parse_rule(text: str, behavior: Behavior, source: str, root: str) -> Rule | MalformedRule:
    name, spec = split_rule(text.strip())
    reason = find_problem(name, spec, behavior)
    if reason:
        return MalformedRule(text, reason, source)
    return Rule(behavior, canonical_name(name), spec, source, root, text.strip())


def split_rule(text: str) -> tuple[str, str | None]:
    """The name and the contents; the whole text is the name if the parentheses are not balanced."""
    begin = text.find("(")
    if begin < 0:
        return text, None
    inside = text[begin + 1 : -1]
    backslashes = len(inside) - len(inside.rstrip("\\"))
    if not text.endswith(")") or backslashes % 2:
        return text, None
    spec = re.sub(ESCAPED, r"\1", inside)
    return text[:begin], None if spec in ("", "*") else spec


def find_problem(name: str, spec: str | None, behavior: Behavior) -> str:
    """What is wrong with a rule; empty if it is valid."""
    if not re.fullmatch(NAME, name):
        return "expected Tool or Tool(contents)"
    if behavior == "allow" and "*" in name and not re.fullmatch(MCP_ALLOW, name):
        return "an allow rule can use * only for the tools of one MCP server, as in mcp__server__*"
    if spec is None:
        return ""
    if re.search(CONTROL, spec):
        return "it contains a control character"
    return CHECKS[find_traits(name).rule_contents](spec, behavior)


def check_path(spec: str, behavior: Behavior) -> str:
    from parley.workspace.globs import BadGlob, PathGlob

    if spec.startswith("!"):
        return "a path pattern cannot be negated"
    try:
        PathGlob.of(spec)
    except BadGlob as exc:
        return str(exc)
    return ""


def check_bound_path(spec: str, behavior: Behavior) -> str:
    if behavior == "allow":
        return "use Read(...) or Edit(...) to allow files"
    return check_path(spec, behavior)


def check_host(spec: str, behavior: Behavior) -> str:
    return "" if re.fullmatch(DOMAIN, spec) else "the contents must be domain:HOST"


def check_words(spec: str, behavior: Behavior) -> str:
    return "" if spec.strip() else "the parentheses are empty"


def check_parameter(spec: str, behavior: Behavior) -> str:
    return "" if re.fullmatch(PARAMETER, spec) else "the contents must be PARAMETER:VALUE"


CHECKS: dict[RuleContents, Callable[[str, Behavior], str]] = {
    "parameter": check_parameter,
    "words": check_words,
    "host": check_host,
    "read_paths": check_path,
    "write_paths": check_path,
    "own_paths": check_bound_path,
}


def format_rule(tool: str, spec: str | None) -> str:
    """The text of a rule, as `parse_rule` reads it."""
    return tool if spec is None else f"{tool}({re.sub(TO_ESCAPE, ESCAPE, spec)})"


def split_alternatives(updates: Sequence[Json]) -> list[list[Json]]:
    """Groups of suggested updates, the narrowest first. Each group is enough to allow the call.

    A rule is enough, and so is the mode beside it. Without a rule everything is needed: to edit a file outside the
    working directories, its folder and the mode.
    """
    rules = [update for update in updates if update.get("type") == "addRules"]
    modes = [update for update in updates if update.get("type") == "setMode"]
    return [group for group in ((rules, modes) if rules else (list(updates),)) if group]
