"""All rules of a session, its working directories, and the rules that are suggested.

    rules.find_restriction("deny", path, "Write", fs, writing=True)      # the rule that matches, or None

Path rules are written as Read and Edit rules and apply to every tool that reads or edits. A Read rule that denies also
denies writing: a file that may not be read may not be replaced.

A suggestion is a PermissionUpdate in wire format. The host may return it with an approval, so that the same call does
not need approval again. Nothing is suggested that would not help: no rule for a file that rules cannot approve, and
none that would match more than it seems to.

`WorktreeRules` are the rules for an agent that works in its own git worktree. A file of the worktree has the
permissions that the same file has in the user's checkout. The agent may read the user's checkout as far as the session
may; to change it, it needs approval. A rule that allows a whole file tool (`Write`) covers the worktree and the
additional working directories.

See also: the order in which kinds of rules apply (decision.py), the names of files that no rule approves in advance
(workspace/sensitive_names.py), worktrees themselves (workspace/worktrees.py).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

from parley.permissions.base import RESTRICTING, OverBudget, SandboxRules, SessionRepository
from parley.permissions.filesystem import CachedFilesystem, Filesystem, ResolvedPath
from parley.permissions.patterns import (
    matches_narrowly,
    matches_rule_host,
    matches_text,
    matches_widely,
    relative_parts,
)
from parley.permissions.rule import Behavior, Rule
from parley.protocol.base import Json, Struct
from parley.tools.catalog import find_traits, names_of
from parley.workspace.base import WORKTREES, Worktree
from parley.workspace.sensitive_names import normalize_name
from parley.workspace.url import list_equal_addresses

PARAMETER_ALIASES = {"shell_id": "task_id", "bash_id": "task_id"}
"""Older names of parameters, as tools still take them."""
BEHAVIORS: tuple[Behavior, ...] = get_args(Behavior)
IN_WORKTREE = re.compile(rf"(?:/{re.escape('/'.join(WORKTREES))}/[^/]+)+(?:/|$)", re.IGNORECASE)
"""A rule that denies a file of a checkout also denies it in the agent worktrees of that checkout."""
MCP = "mcp__"
DEEP_PATH = 32
MAX_CACHED = 512
"""Tool names come from the model, so the cache has a limit."""
SUBCOMMAND = re.compile(r"[a-z][a-z0-9_-]*")
"""A subcommand: `git push`, `npm test`."""
MAX_RULE_CHARACTERS = 500
ACCEPT_EDITS: Json = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}


class RuleSet(Struct, frozen=True, kw_only=True, dict=True):
    cwd: str
    """The session's working directory; path patterns without an anchor start here."""
    rules: tuple[Rule, ...] = ()
    folders: tuple[str, ...] = ()
    """Additional working directories."""
    readable: tuple[str, ...] = ()
    """Folders in which the session stores files for the model: long output, the plan."""
    repository: SessionRepository | None = None
    """The repository in which the session started, if any."""
    sandbox: SandboxRules | None = None
    """What the settings say about the sandbox; None if commands do not run in one."""
    confinement: Callable[[], str] = lambda: "none"
    """What confines commands that are allowed because they only edit: `bubblewrap`, `landlock` or `none`."""
    as_given: frozenset[str] = frozenset()
    """Working directories whose symlinks are not followed: one that a symlink replaces has no files."""

    def working_directories(self) -> tuple[str, ...]:
        return (self.cwd, *self.folders)

    @functools.cached_property
    def _by_behavior(self) -> dict[Behavior, tuple[Rule, ...]]:
        return {each: tuple(rule for rule in self.rules if rule.behavior == each) for each in BEHAVIORS}

    @functools.cached_property
    def _cache(self) -> dict[tuple[str, ...], tuple[Rule, ...]]:
        """The rules found for a tool: one assessment needs them several times, and later calls need them again."""
        return {}

    def _keep(self, key: tuple[str, ...], found: Iterable[Rule]) -> tuple[Rule, ...]:
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        rules = self._cache[key] = tuple(found)
        return rules

    def with_behavior(self, behavior: Behavior) -> tuple[Rule, ...]:
        return self._by_behavior[behavior]

    def rules_for_tool(self, behavior: Behavior, tool: str, server: str = "") -> tuple[Rule, ...]:
        """The rules that match a tool by name, by `*` or by the name of its server."""
        key = ("all", behavior, tool, server)
        if (known := self._cache.get(key)) is not None:
            return known
        of_behavior = self.with_behavior(behavior)
        return self._keep(key, (rule for rule in of_behavior if matches_tool(rule.tool, tool, behavior, server)))

    def find_tool_rule(self, behavior: Behavior, tool: str, server: str = "") -> Rule | None:
        """The rule for every call of a tool."""
        for rule in self.rules_for_tool(behavior, tool, server):
            if rule.spec is None:
                return rule
        return None

    def find_tool_rule_for_file(self, resolved: ResolvedPath, tool: str) -> Rule | None:
        """The rule for every call of a file tool, if it covers this file but not all files."""
        return None

    def specific_rules(self, behavior: Behavior, tool: str, server: str = "") -> tuple[Rule, ...]:
        """The rules for some calls of a tool."""
        key = ("some", behavior, tool, server)
        if (known := self._cache.get(key)) is not None:
            return known
        return self._keep(key, [rule for rule in self.rules_for_tool(behavior, tool, server) if rule.spec is not None])

    # Paths.

    def path_rules(self, behavior: Behavior, tool: str, *, writing: bool) -> tuple[Rule, ...]:
        """The rules with path patterns that apply to a tool."""
        key = ("write" if writing else "read", behavior, tool)
        if (known := self._cache.get(key)) is not None:
            return known
        with_paths = (rule for rule in self.with_behavior(behavior) if rule.spec is not None)
        return self._keep(key, (rule for rule in with_paths if applies_to(rule, tool, writing)))

    def restricting_rules(self, *, writing: bool) -> tuple[Rule, ...]:
        """The deny and ask rules on files that commands read, or on files that they write."""
        key = ("restricting", "write" if writing else "read")
        if (known := self._cache.get(key)) is not None:
            return known
        tool = "Edit" if writing else "Read"
        return self._keep(key, [rule for each in RESTRICTING for rule in self.path_rules(each, tool, writing=writing)])

    def find_restriction(
        self, behavior: Behavior, resolved: ResolvedPath, tool: str, fs: Filesystem, *, writing: bool
    ) -> Rule | None:
        """The deny or ask rule that matches any name of a file."""
        path_rules = self.path_rules(behavior, tool, writing=writing)
        if not path_rules:
            return None
        fs.spend(len(path_rules) * comparison_cost(resolved))
        for rule in path_rules:
            if any(self.restricts(rule, name, fs) for name in resolved.names):
                return rule
        return None

    def find_allow(self, resolved: ResolvedPath, tool: str, fs: Filesystem, *, writing: bool) -> Rule | None:
        """The allow rule that matches every name of a file."""
        path_rules = self.path_rules("allow", tool, writing=writing)
        if not path_rules:
            return None
        fs.spend(len(path_rules) * comparison_cost(resolved))
        for rule in path_rules:
            if resolved.real is not None and all(self._rule_allows(rule, name, fs) for name in resolved.names):
                return rule
        return None

    def is_hidden(self, path: str, fs: Filesystem) -> bool:
        """Whether even the name of a file must not be shown. Raises OverBudget within a decision."""
        denying = self.path_rules("deny", "Read", writing=False)
        if not denying:
            return False
        if not isinstance(fs, CachedFilesystem):
            try:
                return self.is_hidden(path, CachedFilesystem(fs))
            except OverBudget:
                return True
        resolved = fs.resolve(path)
        fs.spend(len(denying) * comparison_cost(resolved))
        return any(self.restricts(rule, name, fs) for name in resolved.names for rule in denying)

    def allows_commands_in(self, cwd: ResolvedPath | None) -> bool:
        """Whether rules for some commands apply to commands in this folder. None is an unknown folder."""
        return True

    def restricts(self, rule: Rule, path: str, fs: Filesystem) -> bool:
        """Whether a deny or ask rule matches one absolute path."""
        original = IN_WORKTREE.sub("/", path) if WORKTREES[-1] in path.lower() else path
        return self._matches_widely(rule, path, fs) or (original != path and self._matches_widely(rule, original, fs))

    def _matches_widely(self, rule: Rule, path: str, fs: Filesystem) -> bool:
        return matches_widely(
            rule.spec or "", path, root=rule.root, cwds=fs.folder_aliases(self.working_directories()), home=fs.home
        )

    def _rule_allows(self, rule: Rule, path: str, fs: Filesystem) -> bool:
        return matches_narrowly(rule.spec or "", path, root=rule.root, cwd=self.cwd, home=fs.home)

    def is_inside(self, resolved: ResolvedPath, fs: Filesystem) -> bool:
        """Whether every name of a file is in a working directory."""
        return is_within(resolved, self.working_directories(), fs, self.as_given)

    def is_readable(self, resolved: ResolvedPath, fs: Filesystem) -> bool:
        """Whether a file may be read without a rule."""
        if self.is_inside(resolved, fs):
            return True
        # A folder of the session must not be a symlink to another one.
        own = tuple([folder for folder in self.readable if fs.resolve(folder).real in self.readable])
        return is_within(resolved, own, fs)

    # Hosts, delegates, parameters.

    def find_host_rule(self, behavior: Behavior, tool: str, host: str) -> Rule | None:
        """The rule on a host; what is denied or asked about for one tool that fetches is so for those of others.

        An IPv4 address that is part of an IPv6 address can be denied or asked about by itself."""
        binding = self.specific_rules(behavior, tool)
        if behavior != "allow" and find_traits(tool).is_external:
            about_hosts = (rule for rule in self.with_behavior(behavior) if rule.spec is not None)
            binding = tuple(rule for rule in about_hosts if find_traits(rule.tool).rule_contents == "host")
        names = (host,) if behavior == "allow" else list_equal_addresses(host)
        return next((rule for rule in binding for name in names if matches_rule_host(rule.spec or "", name)), None)

    def find_input_rule(self, behavior: Behavior, tool: str, input: Json, server: str = "") -> Rule | None:
        """The rule that matches the delegate (subagent or skill), or one parameter."""
        by_name = matches_delegate if behavior == "allow" else may_match_delegate
        fits = by_name if find_traits(tool).effect in ("delegates", "loads_skills") else matches_parameter
        return next(
            (rule for rule in self.specific_rules(behavior, tool, server) if fits(rule.spec or "", tool, input)), None
        )


def comparison_cost(resolved: ResolvedPath) -> int:
    """The steps to compare a file with a rule: more for long paths, much more for unusually deep ones."""
    depths = [name.count("/") for name in resolved.names]
    return sum([1 + depth // 8 if depth < DEEP_PATH else depth for depth in depths])


def is_within(
    resolved: ResolvedPath, folders: tuple[str, ...], fs: Filesystem, as_given: frozenset[str] = frozenset()
) -> bool:
    """Whether every name of a file is in one of the folders, under any of their names or only `as_given`."""
    if resolved.real is None:
        return False
    known = dict.fromkeys(
        [name for folder in folders for name in ((folder,) if folder in as_given else fs.resolve(folder).names)]
    )
    for name in resolved.names:
        if name not in known and not any(relative_parts(name, folder) is not None for folder in known):
            return False
    return True


def matches_tool(pattern: str, tool: str, behavior: Behavior = "deny", server: str = "") -> bool:
    """Whether the name in a rule matches a tool under any of its names."""
    if tool.startswith(MCP):
        matches = matches_allowed_tool if behavior == "allow" else matches_denied_tool
        return (
            matches(pattern.removeprefix(MCP), tool.removeprefix(MCP), server)
            if pattern.startswith(MCP)
            else ("*" in pattern and matches_text(pattern, tool))
        )
    return any(matches_text(pattern, name) if "*" in pattern else pattern == name for name in names_of(tool))


def matches_allowed_tool(pattern: str, tool: str, server: str) -> bool:
    """Whether an allow rule matches a tool of a server: `server`, `server__tool`, `server__get_*`.

    The part before the first `__` is the server, so a rule for the tool `b` of `a` never matches the server `a__b`.
    The tools of such a server can only be allowed one by one, by their full names.
    """
    if pattern == tool:
        return True
    if not server:
        server, _, rest = tool.partition("__")
        if "__" in rest or rest.startswith("_"):
            return False  # the server is ambiguous
    named_server, separator, rest = pattern.partition("__")
    if named_server != server:
        return False
    return not separator or ("*" in rest and matches_text(rest, tool.removeprefix(f"{server}__")))


def matches_denied_tool(pattern: str, tool: str, server: str) -> bool:
    """Whether a deny or ask rule matches a tool of a server. If the server is unknown, any reading of the name counts.

    A rule may name a server as in its configuration, `a.b` for `a_b`.
    """
    pattern = re.sub(r"[^a-zA-Z0-9_*-]", "_", pattern)
    if "*" in pattern:
        return matches_text(pattern, tool)
    return pattern in (tool, server) or (not server and tool.startswith(f"{pattern}__"))


def applies_to(rule: Rule, tool: str, writing: bool) -> bool:
    """Whether a path rule applies to a tool that reads or writes files."""
    contents = find_traits(rule.tool).rule_contents
    if contents == "write_paths":
        return writing
    if contents == "read_paths":
        return not writing or rule.behavior != "allow"
    return rule.tool == tool and contents == "own_paths"


def matches_delegate(spec: str, tool: str, input: Json) -> bool:
    """`name`, or `name:*` for the name followed by anything."""
    return matches_name(spec, delegate_name(tool, input))


def may_match_delegate(spec: str, tool: str, input: Json) -> bool:
    """As `matches_delegate`, in any case and Unicode spelling: for deny and ask rules."""
    return matches_name(normalize_name(spec), normalize_name(delegate_name(tool, input)))


def delegate_name(tool: str, input: Json) -> str:
    traits = find_traits(tool)
    given = input.get(traits.subject_field) or traits.default_subject
    return str(given).strip().removeprefix("/")


def matches_name(spec: str, name: str) -> bool:
    if spec.endswith(":*"):
        prefix = spec[:-2]
        return name == prefix or name.startswith((f"{prefix} ", f"{prefix}:"))
    return name == spec


def matches_parameter(spec: str, tool: str, input: Json) -> bool:
    name, _, value = spec.partition(":")
    canonical = PARAMETER_ALIASES.get(name, name)
    return any(
        format_value(given) == value for key, given in input.items() if PARAMETER_ALIASES.get(key, key) == canonical
    )


def format_value(given: Any) -> str | None:
    """A parameter value as it is written in a rule."""
    return None if given is None else str(given).lower() if isinstance(given, bool) else str(given)


def add_rules(*contents: tuple[str, str | None], destination: str = "localSettings") -> Json:
    listed = [
        {"toolName": tool} if spec is None else {"toolName": tool, "ruleContent": spec} for tool, spec in contents
    ]
    return {"type": "addRules", "rules": listed, "behavior": "allow", "destination": destination}


def suggest_read(*folders: str) -> tuple[Json, ...]:
    """A rule to read these folders; none for the root folder, which is too much for one click."""
    if any(folder == "/" or "*" in folder for folder in folders):
        return ()
    return (add_rules(*(("Read", f"/{folder}/**") for folder in folders), destination="session"),)


def suggest_edit(path: str, mode: str, *, inside: bool) -> tuple[Json, ...]:
    accept = () if mode in ("acceptEdits", "auto") else (ACCEPT_EDITS,)
    return accept if inside else (add_directory(os.path.dirname(path)), *accept)


def add_directory(folder: str) -> Json:
    return {"type": "addDirectories", "directories": [folder], "destination": "session"}


def suggest_fetch(host: str) -> tuple[Json, ...]:
    return (add_rules(("WebFetch", f"domain:{host}")),)


def suggest_tool(tool: str) -> tuple[Json, ...]:
    return (add_rules((tool, None)),)


def suggest_delegate(tool: str, name: Any) -> tuple[Json, ...]:
    if not isinstance(name, str) or not name or name.endswith(":*") or name == "*":
        return ()
    return (add_rules((tool, name)),)


def suggest_commands(*specs: str | None) -> tuple[Json, ...]:
    """Rules for commands; nothing if one of the commands cannot be matched by a rule."""
    return (add_rules(*(("Bash", spec) for spec in specs)),) if specs and all(specs) else ()


def suggest_write(specs: Sequence[str | None], path: str, mode: str) -> tuple[Json, ...]:
    """Rules for a line that writes in the working directories.

    The folder beside the rules is in recordings of Claude Code. It has no effect, so that people do not see it
    (`split_alternatives` in `rule.py`).
    """
    accept = () if mode in ("acceptEdits", "auto") else (ACCEPT_EDITS,)
    rules = suggest_commands(*specs)
    return (*rules, add_directory(os.path.dirname(path)), *accept) if rules else accept


def prefix_rules(commands: Sequence[Sequence[str]], text: str) -> list[str | None]:
    """`git push *` for a command with a subcommand, else the exact command; empty if one has no such rule."""
    found = [prefix_rule(words, text if len(commands) == 1 else " ".join(words)) for words in commands]
    return list(dict.fromkeys(found)) if all(found) else []


def prefix_rule(words: Sequence[str], text: str) -> str | None:
    if len(words) > 1 and SUBCOMMAND.fullmatch(words[1]) and SUBCOMMAND.fullmatch(words[0]):
        return f"{words[0]} {words[1]} *"
    return exact_rule(text)


def exact_rule(text: str) -> str | None:
    """A rule for exactly this text; None if it would match others as well."""
    return text if "*" not in text and "\\" not in text and len(text) <= MAX_RULE_CHARACTERS else None


class WorktreeRules(RuleSet, frozen=True, kw_only=True, dict=True):
    session_rules: RuleSet
    """The rules of the session."""
    worktree: Worktree

    @classmethod
    def for_worktree(cls, rules: RuleSet, worktree: Worktree) -> WorktreeRules:
        return cls(
            cwd=worktree.cwd,
            rules=rules.rules,
            folders=rules.folders,
            readable=(*rules.readable, rules.cwd),
            repository=rules.repository,
            as_given=rules.as_given,
            confinement=rules.confinement,
            session_rules=rules,
            worktree=worktree,
        )

    def is_readable(self, resolved: ResolvedPath, fs: Filesystem) -> bool:
        return super().is_readable(resolved, fs) or is_within(resolved, (self.session_rules.cwd,), fs)

    def allows_commands_in(self, cwd: ResolvedPath | None) -> bool:
        """Commands in the user's checkout need approval."""
        return cwd is not None and not any(map(self.worktree.is_left_alone, cwd.names))

    def find_tool_rule(self, behavior: Behavior, tool: str, server: str = "") -> Rule | None:
        writes = find_traits(tool).effect == "writes_files"
        return None if behavior == "allow" and writes else super().find_tool_rule(behavior, tool, server)

    def find_tool_rule_for_file(self, resolved: ResolvedPath, tool: str) -> Rule | None:
        is_ours = resolved.real is not None and all(map(self._is_writable, resolved.names))
        return super().find_tool_rule("allow", tool) if is_ours else None

    def _is_writable(self, path: str) -> bool:
        roots = (self.worktree.path, *self.folders)
        return not self.worktree.is_left_alone(path) and any(relative_parts(path, root) is not None for root in roots)

    def restricts(self, rule: Rule, path: str, fs: Filesystem) -> bool:
        names = dict.fromkeys((path, self.worktree.original(path)))
        return any(self.session_rules.restricts(rule, name, fs) for name in names)

    def _rule_allows(self, rule: Rule, path: str, fs: Filesystem) -> bool:
        return not self.worktree.is_left_alone(path) and self.session_rules._rule_allows(
            rule, self.worktree.original(path), fs
        )
