"""All rules of a session, and the folders it works in.

    rules.matching("deny", "Write", path="/w/.env", view=view)       # the rule that fits, or None

Rules on paths are said with Read and Edit and bind every tool that reads or edits. A
Read rule that denies also denies writing: who may not see a file may not replace it.

Not here: the order in which kinds of rules count (decision.py).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any, get_args

from parley.permissions import web_hosts, wildcards
from parley.permissions.base import Recorded, View, Way
from parley.permissions.budget import OverBudget
from parley.permissions.paths import patterns
from parley.permissions.paths.filesystem import Glance
from parley.permissions.rule import BOUND_TOOLS, Behavior, Rule
from parley.protocol.base import Json, Struct
from parley.tools.selection import known_as
from parley.workspace.base import WORKTREES

READERS = frozenset({"Read", "NotebookRead", "Grep", "Glob", "LS"})
EDITORS = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit"})
DELEGATES = {"Task": "subagent_type", "Skill": "skill"}
"""Tools whose contents name who does the work, and the parameter that says so."""
DEFAULT_AGENT = "general-purpose"
PARAMETERS = {"shell_id": "task_id", "bash_id": "task_id"}
"""Older names of parameters, as tools still take them."""
BEHAVIORS: tuple[Behavior, ...] = get_args(Behavior)
IN_WORKTREE = re.compile(rf"(?:/{re.escape('/'.join(WORKTREES))}/[^/]+)+(?:/|$)", re.IGNORECASE)
"""What denies a file of a checkout denies it in every worktree that was made of it for an agent."""
MCP = "mcp__"
DEEP = 32
MOST_KEPT = 512
"""Names of tools come from the model: what is kept of them has an end."""


class Rules(Struct, frozen=True, kw_only=True, dict=True):
    cwd: str
    """The session's working directory: where bare path patterns start."""
    rules: tuple[Rule, ...] = ()
    folders: tuple[str, ...] = ()
    """Further working directories."""
    readable: tuple[str, ...] = ()
    """Where the session itself puts what the model shall read: long output, the plan."""
    repository: Recorded | None = None
    """The repository that the session was started in, if it was in one."""

    def working(self) -> tuple[str, ...]:
        return (self.cwd, *self.folders)

    @functools.cached_property
    def _by_behavior(self) -> dict[Behavior, tuple[Rule, ...]]:
        return {wanted: tuple(rule for rule in self.rules if rule.behavior == wanted) for wanted in BEHAVIORS}

    @functools.cached_property
    def _known(self) -> dict[tuple[str, ...], tuple[Rule, ...]]:
        """What was found for a tool: several facts of one call need it, and so do the next calls of the tool."""
        return {}

    def _kept(self, key: tuple[str, ...], find: Callable[[], Iterable[Rule]]) -> tuple[Rule, ...]:
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            found = self._known[key] = tuple(find())
        return found

    def of(self, behavior: Behavior) -> tuple[Rule, ...]:
        return self._by_behavior[behavior]

    def for_tool(self, behavior: Behavior, tool: str, server: str = "") -> tuple[Rule, ...]:
        """The rules that name a tool or, with `*` or a server's name, some tools of which it is one."""
        key = ("all", behavior, tool, server)
        if (known := self._known.get(key)) is not None:
            return known
        return self._kept(
            key,
            lambda: (rule for rule in self.of(behavior) if names_tool(rule.tool, tool, behavior, server)),
        )

    def bare(self, behavior: Behavior, tool: str, server: str = "") -> Rule | None:
        """The rule for every call of a tool."""
        for rule in self.for_tool(behavior, tool, server):
            if rule.spec is None:
                return rule
        return None

    def whole(self, way: Way, tool: str) -> Rule | None:
        """The rule for every call of a file tool, where it means some files only."""
        return None

    def specific(self, behavior: Behavior, tool: str, server: str = "") -> tuple[Rule, ...]:
        """The rules for some calls of a tool."""
        key = ("some", behavior, tool, server)
        if (known := self._known.get(key)) is not None:
            return known
        return self._kept(
            key,
            lambda: (rule for rule in self.for_tool(behavior, tool, server) if rule.spec is not None),
        )

    # Paths.

    def on_paths(self, behavior: Behavior, tool: str, *, writing: bool) -> tuple[Rule, ...]:
        """The rules with path patterns that bind a tool."""
        key = ("write" if writing else "read", behavior, tool)
        if (known := self._known.get(key)) is not None:
            return known
        return self._kept(
            key,
            lambda: (rule for rule in self.of(behavior) if rule.spec is not None and binds(rule, tool, writing)),
        )

    def against(self, behavior: Behavior, way: Way, tool: str, view: View, *, writing: bool) -> Rule | None:
        """The deny or ask rule that fits any name of a file."""
        binding = self.on_paths(behavior, tool, writing=writing)
        if not binding:
            return None
        spend(view, len(binding) * weight(way))
        for rule in binding:
            if any(self._denies(rule, name, view) for name in way.names):
                return rule
        return None

    def in_favour(self, way: Way, tool: str, view: View, *, writing: bool) -> Rule | None:
        """The allow rule that fits every name of a file."""
        binding = self.on_paths("allow", tool, writing=writing)
        if not binding:
            return None
        spend(view, len(binding) * weight(way))
        for rule in binding:
            if way.real is not None and all(self._allows(rule, name, view) for name in way.names):
                return rule
        return None

    def hides(self, path: str, view: View) -> bool:
        """Whether a file may not even be mentioned. Raises OverBudget within a decision."""
        denying = self.on_paths("deny", "Read", writing=False)
        if not denying:
            return False
        if not isinstance(view, Glance):
            try:
                return self.hides(path, Glance(view))
            except OverBudget:
                return True
        way = view.way(path)
        view.spend(len(denying) * weight(way))
        return any(self._denies(rule, name, view) for name in way.names for rule in denying)

    def count_in(self, cwd: Way | None) -> bool:
        """Whether rules that allow some commands mean those that run in this folder; None if it is not known."""
        return True

    def _denies(self, rule: Rule, path: str, view: View) -> bool:
        original = IN_WORKTREE.sub("/", path) if WORKTREES[-1] in path.lower() else path
        return self._fits(rule, path, view) or (original != path and self._fits(rule, original, view))

    def _fits(self, rule: Rule, path: str, view: View) -> bool:
        return patterns.denies(
            rule.spec or "", path, root=rule.root, cwds=spellings(self.working(), view), home=view.home
        )

    def _allows(self, rule: Rule, path: str, view: View) -> bool:
        return patterns.allows(rule.spec or "", path, root=rule.root, cwd=self.cwd, home=view.home)

    def is_inside(self, way: Way, view: View) -> bool:
        """Whether every name of a file lies in a working directory."""
        return lies_in(way, self.working(), view)

    def is_at_hand(self, way: Way, view: View) -> bool:
        """Whether a file may be read without a rule."""
        if self.is_inside(way, view):
            return True
        # A folder of our own counts where it was put: not if a link leads from there to another place.
        own = tuple([folder for folder in self.readable if view.way(folder).real in self.readable])
        return lies_in(way, own, view)

    # Hosts, delegates, parameters.

    def on_host(self, behavior: Behavior, tool: str, host: str) -> Rule | None:
        return next((rule for rule in self.specific(behavior, tool) if web_hosts.fits(rule.spec or "", host)), None)

    def on_input(self, behavior: Behavior, tool: str, input: Json, server: str = "") -> Rule | None:
        """Rules on who shall do the work, or on one parameter."""
        by_name = names_delegate if behavior == "allow" else may_name_delegate
        fits = by_name if tool in DELEGATES else has_parameter
        return next(
            (rule for rule in self.specific(behavior, tool, server) if fits(rule.spec or "", tool, input)), None
        )


def spellings(folders: tuple[str, ...], view: View) -> tuple[str, ...]:
    """The folders as they are given, and what they are called without links."""
    if isinstance(view, Glance):
        return view.spellings(folders)
    return tuple(dict.fromkeys([*folders, *(view.way(folder).real or folder for folder in folders)]))


def spend(view: View, steps: int) -> None:
    """Count the work of a decision; a view that is not for one decision has no budget."""
    if isinstance(view, Glance):
        view.spend(steps)


def weight(way: Way) -> int:
    """What it costs to compare a file with a rule: long names cost more, and deeper ones than anyone has much more."""
    depths = [name.count("/") for name in way.names]
    return sum([1 + depth // 8 if depth < DEEP else depth for depth in depths])


def lies_in(way: Way, folders: tuple[str, ...], view: View) -> bool:
    """Whether every name of a file lies in one of some folders, whatever these are called."""
    if way.real is None:
        return False
    known = dict.fromkeys([name for folder in folders for name in view.way(folder).names])
    for name in way.names:
        if name not in known and not any(patterns.beneath(name, folder) is not None for folder in known):
            return False
    return True


def names_tool(pattern: str, tool: str, behavior: Behavior = "deny", server: str = "") -> bool:
    """Whether a rule's name means a tool under any of the names it goes by."""
    if tool.startswith(MCP):
        means = names_to_allow if behavior == "allow" else names_to_deny
        return (
            means(pattern.removeprefix(MCP), tool.removeprefix(MCP), server)
            if pattern.startswith(MCP)
            else ("*" in pattern and wildcards.fits(pattern, tool))
        )
    return any(wildcards.fits(pattern, name) if "*" in pattern else pattern == name for name in known_as(tool))


def names_to_allow(pattern: str, tool: str, server: str) -> bool:
    """Whether an allow rule means a tool of a server: `server`, `server__tool`, `server__get_*`.

    What stands before the first `__` is the server, so that the rule for the tool `b` of `a` never means the server
    `a__b`. All tools of such a server can be allowed one by one only, by their full names.
    """
    if pattern == tool:
        return True
    if not server:
        server, _, rest = tool.partition("__")
        if "__" in rest or rest.startswith("_"):
            return False  # whose tool it is can be read in more than one way
    wanted, separator, rest = pattern.partition("__")
    if wanted != server:
        return False
    return not separator or ("*" in rest and wildcards.fits(rest, tool.removeprefix(f"{server}__")))


def names_to_deny(pattern: str, tool: str, server: str) -> bool:
    """Whether a deny or ask rule means a tool of a server. Where the server is not known, any reading will do.

    A server may be named as in its configuration, `a.b` for `a_b`.
    """
    pattern = re.sub(r"[^a-zA-Z0-9_*-]", "_", pattern)
    if "*" in pattern:
        return wildcards.fits(pattern, tool)
    return pattern in (tool, server) or (not server and tool.startswith(f"{pattern}__"))


def binds(rule: Rule, tool: str, writing: bool) -> bool:
    """Whether a rule on paths counts for a tool that reads or writes them."""
    if rule.tool == "Edit":
        return writing
    if rule.tool == "Read":
        return not writing or rule.behavior != "allow"
    return rule.tool == tool and tool in BOUND_TOOLS


def names_delegate(spec: str, tool: str, input: Json) -> bool:
    """`name`, or `name:*` for the name and whatever is said behind it."""
    return is_named(spec, delegate(tool, input))


def may_name_delegate(spec: str, tool: str, input: Json) -> bool:
    """The same in any case and Unicode spelling: to deny."""
    return is_named(patterns.folded(spec), patterns.folded(delegate(tool, input)))


def delegate(tool: str, input: Json) -> str:
    given = input.get(DELEGATES[tool]) or (DEFAULT_AGENT if tool == "Task" else "")
    return str(given).strip().removeprefix("/")


def is_named(spec: str, given: str) -> bool:
    if spec.endswith(":*"):
        name = spec[:-2]
        return given == name or given.startswith((f"{name} ", f"{name}:"))
    return given == spec


def has_parameter(spec: str, tool: str, input: Json) -> bool:
    name, _, value = spec.partition(":")
    wanted = PARAMETERS.get(name, name)
    return any(spelled(given) == value for key, given in input.items() if PARAMETERS.get(key, key) == wanted)


def spelled(given: Any) -> str | None:
    """A parameter's value as a rule spells it."""
    return None if given is None else str(given).lower() if isinstance(given, bool) else str(given)
