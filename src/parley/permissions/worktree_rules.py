"""The rules of a session for an agent that works in its own git worktree.

A file of the worktree has the permissions that the same file has in the user's checkout. The agent may read the user's
checkout as far as the session may; to change it, it needs approval. A rule that allows a whole file tool (`Write`)
covers the worktree and the additional working directories.

See also: worktrees themselves (workspace/worktrees.py).
"""

from __future__ import annotations

from parley.permissions.base import Filesystem, ResolvedPath
from parley.permissions.patterns import relative_parts
from parley.permissions.rule import Behavior, Rule
from parley.permissions.rules import RuleSet, is_within
from parley.tools.catalog import find_traits
from parley.workspace.base import Worktree


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
