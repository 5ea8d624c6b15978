"""Limits that no rule, mode or approval lifts: the working directories as a boundary, and the sandbox.

`permissions.blockReadsOutsideWorkingDirectories` and `permissions.blockWritesOutsideWorkingDirectories` refuse file
tools outside the working directories. A command is refused unless every file that it touches is known and inside.
Tools of MCP servers and of the client are not bound.

`RestrictedPolicy` is the policy of a restricted session: its file tools stay inside the folders that it started with,
whatever the rules allow, and it has no other tools that touch files (compose/tools.py).

Where commands run in the sandbox, `autoAllowBashIfSandboxed` allows those that no deny or ask rule matches and that no
safety check stops. A call that asks to run outside always needs approval.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from parley.permissions.base import (
    Decision,
    Deny,
    InvalidUpdate,
    OverBudget,
    PathsAndHosts,
    SandboxRules,
    ToolRequest,
)
from parley.permissions.decision import build_scope, target_paths
from parley.permissions.filesystem import CachedFilesystem, Filesystem, ResolvedPath
from parley.permissions.patterns import anchor, relative_parts
from parley.permissions.policy import AddDirectories, SessionPolicy, parse_updates
from parley.permissions.rule import Rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell.arguments import CD_COMMANDS
from parley.permissions.shell.command_rules import matches
from parley.permissions.shell.readers import reads_only
from parley.permissions.shell.strict_parser import CommandLine, SimpleCommand, parse_strict
from parley.protocol.base import Json, Struct
from parley.settings.base import MergedSettings
from parley.tools.catalog import FILE_EFFECTS, find_traits
from parley.workspace.base import Scope
from parley.workspace.globs import WILD

READS, WRITES = "blockReadsOutsideWorkingDirectories", "blockWritesOutsideWorkingDirectories"
EXEMPT, AS_GIVEN = "blockReadsExemptPaths", "workingDirectoriesAsGiven"
SETTINGS_FILES = ("settings.json", "settings.local.json")
OUTSIDE = "The session is restricted to its working directories"


class Boundary(Struct, frozen=True, kw_only=True):
    blocks_reads: bool = False
    blocks_writes: bool = False
    exempt: tuple[str, ...] = ()
    """Paths that may be read nevertheless, as they are written."""
    settings_folder: str = ""
    """The folder with the user's settings, which may not be changed either."""

    @classmethod
    def from_settings(cls, merged: MergedSettings, settings_folder: str) -> Boundary | None:
        """The boundary; None if there is none."""
        reads, writes = merged.is_on(f"permissions.{READS}"), merged.is_on(f"permissions.{WRITES}")
        if not reads and not writes:
            return None
        exempt = merged.get(f"permissions.{EXEMPT}", ())
        return cls(
            blocks_reads=reads,
            blocks_writes=writes,
            exempt=tuple(path for path in exempt if is_plain(path) and path != "/"),
            settings_folder=settings_folder,
        )

    def check(self, request: ToolRequest, decision: Decision, rules: RuleSet, mode: str, fs: Filesystem) -> Decision:
        """The decision, or a denial if the call crosses the boundary."""
        if isinstance(decision, Deny) or request.runs_elsewhere:
            return decision
        traits = find_traits(request.tool)
        try:
            if traits.effect == "runs_commands":
                key = self._check_command(request, rules, mode, CachedFilesystem(fs))
            elif traits.path_fields or traits.effect in ("reads_files", "searches_files", "writes_files"):
                return self._check_files(request, decision, rules, CachedFilesystem(fs))
            else:
                return decision
        except OverBudget:
            key = READS if self.blocks_reads else WRITES
        return decision if key is None else deny_outside(request, key)

    def _check_files(self, request: ToolRequest, decision: Decision, rules: RuleSet, fs: Filesystem) -> Decision:
        """The decision about a file tool. Its scope becomes exactly the paths that were checked."""
        effect = find_traits(request.tool).effect
        reads, writes = effect in ("reads_files", "searches_files"), effect == "writes_files"
        resolved = [fs.resolve(path) for path in target_paths(request)]
        if self.blocks_reads and not writes and not all(self._may_read(path, rules, fs) for path in resolved):
            return deny_outside(request, READS)
        if self.blocks_writes and not reads and not all(self._may_write(path, request, rules, fs) for path in resolved):
            return deny_outside(request, WRITES)
        if isinstance(decision, Deny) or (reads and not self.blocks_reads) or (writes and not self.blocks_writes):
            return decision
        return msgspec.structs.replace(decision, scope=build_scope(resolved, beneath=effect == "searches_files"))

    def _check_command(self, request: ToolRequest, rules: RuleSet, mode: str, fs: Filesystem) -> str | None:
        """The key that refuses a command line, or None."""
        from parley.permissions.command import find_shell_home
        from parley.permissions.proven_command import build_proven_command

        value, unproven = request.input.get("command"), READS if self.blocks_reads else WRITES
        line = parse_strict(value if isinstance(value, str) else "", find_shell_home(request, fs))
        if not isinstance(line, CommandLine):
            return unproven
        command = build_proven_command(line, request, rules, mode, fs)
        files = command.files
        if not self.blocks_reads and not files.writes and not command.untrusted and all(map(reads_only, line.commands)):
            return None
        if files.unknown or files.merges_folders or command.untrusted:
            return unproven
        if not all(self._may_write(path, request, rules, fs) for path in files.writes) and self.blocks_writes:
            return WRITES
        touched = (fs.resolve(request.cwd), *files.reads, *files.writes)
        return READS if self.blocks_reads and not all(self._may_read(path, rules, fs) for path in touched) else None

    def _may_read(self, resolved: ResolvedPath, rules: RuleSet, fs: Filesystem) -> bool:
        if rules.is_readable(resolved, fs):
            return True
        return resolved.real is not None and all(is_below(name, self.exempt) for name in resolved.names)

    def _may_write(self, resolved: ResolvedPath, request: ToolRequest, rules: RuleSet, fs: Filesystem) -> bool:
        if request.plan_file is not None and resolved.real == fs.resolve(request.plan_file).real:
            return True
        return rules.is_inside(resolved, fs) and not any(map(self._is_settings_file, resolved.names))

    def _is_settings_file(self, path: str) -> bool:
        folder, name = os.path.split(path)
        is_settings = name.lower() in SETTINGS_FILES
        return is_settings and (os.path.basename(folder).lower() == ".claude" or folder == self.settings_folder)


def is_plain(path: str) -> bool:
    """Whether a path is absolute and normalized."""
    return path.startswith("/") and path == path.strip() and path == os.path.normpath(path) and path[:2] != "//"


def is_below(path: str, folders: Iterable[str]) -> bool:
    return any(relative_parts(path, folder) is not None for folder in folders)


def deny_outside(request: ToolRequest, key: str) -> Deny:
    kind = "reads" if key == READS else "writes"
    text = f"{request.tool} was denied: the settings refuse {kind} outside the working directories ({key})."
    if find_traits(request.tool).effect == "runs_commands":
        text += " A command runs only if all files that it touches are known and inside them."
    return Deny(message=text, source="rule", reason=f"permissions.{key}", reason_type="workingDir")


class RestrictedPolicy(SessionPolicy):
    def __init__(self, roots: Iterable[str], *args: Any) -> None:
        super().__init__(*args)
        self._roots = tuple(os.path.realpath(root) for root in roots)

    def decide(self, request: ToolRequest, mode: str) -> Decision:
        decision = super().decide(request, mode)
        is_exempt = find_traits(request.tool).effect not in FILE_EFFECTS or request.runs_elsewhere
        if is_exempt or isinstance(decision, Deny) or self._contains(decision.scope):
            return decision
        text = f"{request.tool} was denied: this session is restricted to its working directories."
        return Deny(message=text, source="mode", reason=OUTSIDE, reason_type="workingDir")

    def _contains(self, scope: Scope) -> bool:
        """Whether every file of a call is in the working directories."""
        paths = map(os.path.realpath, (*scope.files, *scope.folders))
        return not scope.anywhere and all(is_below(path, self._roots) for path in paths)

    def update(self, updates: Sequence[Json], *, may_bypass: bool = False) -> str | None:
        for update in parse_updates(updates):
            for folder in update.directories if isinstance(update, AddDirectories) else ():
                path = os.path.realpath(os.path.join(self._roots[0], os.path.expanduser(folder)))
                if not is_below(path, self._roots):
                    raise InvalidUpdate(
                        f"{folder!r:.200} is outside the directories that this session is restricted to"
                    )
        return super().update(updates, may_bypass=False)


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


def list_excluded(command: str, patterns: tuple[str, ...], home: str) -> tuple[str, ...]:
    """The programs of a line, if every command in it matches a pattern, and the line does nothing else.

    A pattern without a blank means a program with any arguments. Only a line that the strict parser proves can be
    excluded: what it does not know could be anything.
    """
    if not patterns:
        return ()
    line = parse_strict(command, home)
    if not isinstance(line, CommandLine) or not all(matches_any(simple, patterns) for simple in line.commands):
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
        simple.argv[0] == pattern if not set(pattern) & set(" *:") else matches(pattern, simple.text)
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
        about_hosts = (rule for rule in rules if find_traits(rule.tool).rule_contents == "host")
        found = (rule.spec or "" for rule in about_hosts if rule.behavior == behavior)
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


def rule_path(rule: Rule, cwd: str, home: str) -> str:
    base, pattern, floats = anchor(rule.spec or "", rule.root, cwd, home)
    name = pattern.removesuffix("/**").rstrip("/")
    if not name or name in ("*", "**"):
        return base
    if floats and "/" not in name and rule.behavior == "deny":
        return os.path.join(base, "**", name)
    return os.path.normpath(os.path.join(base, name))
