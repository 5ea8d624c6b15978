"""Permissions and the sandbox: which commands run in it, and what rules for files and hosts mean there.

Permissions are decided first. Where commands run in the sandbox, `autoAllowBashIfSandboxed` allows those that no deny
or ask rule matches and that no safety check stops. A call that asks to run outside always needs approval.
"""

from __future__ import annotations

import os

from parley.permissions import shell
from parley.permissions.base import PathsAndHosts, SandboxRules
from parley.permissions.patterns import anchor
from parley.permissions.rule import Rule
from parley.permissions.shell.arguments import CD_COMMANDS
from parley.permissions.shell.strict_parser import SimpleCommand
from parley.settings.base import MergedSettings
from parley.tools.catalog import find_traits
from parley.workspace.globs import WILD

OUTSIDE_FLAG = "dangerouslyDisableSandbox"
WANTS_OUTSIDE = "The command asks to run outside of the sandbox"
NOT_OUTSIDE = (
    f"Bash was denied: the settings do not allow commands outside of the sandbox. Run it without {OUTSIDE_FLAG}."
)
GIT_RUNS_MORE = ("-c", "--config-env", "--exec-path")
"""Options with which git runs programs that a pattern for git does not mean."""


def read_sandbox_rules(merged: MergedSettings) -> SandboxRules:
    return SandboxRules(
        auto_allows=merged.is_on("sandbox.autoAllowBashIfSandboxed"),
        allows_outside=merged.get("sandbox.allowUnsandboxedCommands") is not False,
        excluded=tuple(merged.get("sandbox.excludedCommands", ())),
    )


def is_confined(rules: SandboxRules, command: object, home: str, *, wants_outside: bool) -> bool:
    """Whether a command will run in the sandbox."""
    outside = wants_outside and rules.allows_outside
    return not outside and isinstance(command, str) and not is_excluded(command, rules.excluded, home)


def is_excluded(command: str, patterns: tuple[str, ...], home: str) -> bool:
    return bool(list_excluded(command, patterns, home))


def list_excluded(command: str, patterns: tuple[str, ...], home: str) -> tuple[str, ...]:
    """The programs of a line, if every command in it matches a pattern, and the line does nothing else.

    A pattern without a blank means a program with any arguments. Only a line that the strict parser proves can be
    excluded: what it does not know could be anything.
    """
    if not patterns:
        return ()
    line = shell.parse_strict(command, home)
    if not isinstance(line, shell.CommandLine) or not all(matches_any(simple, patterns) for simple in line.commands):
        return ()
    return tuple(simple.argv[0] for simple in line.commands)


def matches_any(simple: SimpleCommand, patterns: tuple[str, ...]) -> bool:
    if not simple.argv or simple.assignments or simple.document is not None or simple.argv[0] in CD_COMMANDS:
        return False
    if any(redirect.operator != ">&" for redirect in simple.redirects):
        return False
    if os.path.basename(simple.argv[0]) == "git" and any(word.startswith(GIT_RUNS_MORE) for word in simple.argv[1:]):
        return False
    return any(
        simple.argv[0] == pattern if not set(pattern) & set(" *:") else shell.matches(pattern, simple.text)
        for pattern in patterns
    )


def list_paths_and_hosts(rules: tuple[Rule, ...], cwd: str, home: str) -> PathsAndHosts:
    """What the rules of a session mean for commands in the sandbox."""

    def paths(behavior: str, tools: tuple[str, ...]) -> tuple[str, ...]:
        found = (rule for rule in rules if rule.behavior == behavior and rule.tool in tools and rule.spec)
        return tuple(path for rule in found if (path := rule_path(rule, cwd, home)))

    def roots(tools: tuple[str, ...]) -> tuple[str, ...]:
        parts = (WILD.split(path, maxsplit=1) for path in paths("allow", tools))
        return tuple(first.rpartition("/")[0] if rest else first for first, *rest in parts)

    def hosts(behavior: str) -> tuple[str, ...]:
        found = (rule.spec or "" for rule in rules if rule.behavior == behavior and is_about_hosts(rule))
        return tuple(spec.removeprefix("domain:") for spec in found if spec.startswith("domain:"))

    return PathsAndHosts(
        # A right is never wider than its pattern: one with a `*` inside gives none.
        edit=tuple(path for path in paths("allow", ("Edit", "Write")) if not WILD.search(path)),
        edit_roots=roots(("Edit", "Write")),
        read_roots=roots(("Read",)),
        no_edit=paths("deny", ("Edit", "Write")),
        no_read=paths("deny", ("Read",)),
        hosts=hosts("allow"),
        no_hosts=hosts("deny"),
        asked_hosts=hosts("ask"),
    )


def is_about_hosts(rule: Rule) -> bool:
    return find_traits(rule.tool).rule_contents == "host"


def rule_path(rule: Rule, cwd: str, home: str) -> str:
    base, pattern, floats = anchor(rule.spec or "", rule.root, cwd, home)
    name = pattern.removesuffix("/**").rstrip("/")
    if not name or name in ("*", "**"):
        return base
    if floats and "/" not in name and rule.behavior == "deny":
        return os.path.join(base, "**", name)
    return os.path.normpath(os.path.join(base, name))
