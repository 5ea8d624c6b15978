"""The rules of a session for an agent that works in a worktree of its own.

What may be done there is what may be done in the person's checkout: a rule means a file by the name that it has there.
The person's checkout itself is for the agent to read, as far as it may, and to change only if somebody is asked. A rule
that allows a whole file tool (`Write`) means the worktree and the further working directories.

Not here: worktrees themselves (workspace/worktrees.py).
"""

from __future__ import annotations

from parley.permissions.base import View, Way
from parley.permissions.paths.patterns import beneath
from parley.permissions.rule import Behavior, Rule
from parley.permissions.rules import EDITORS, Rules, lies_in
from parley.workspace.base import Worktree


class Apart(Rules, frozen=True, kw_only=True, dict=True):
    around: Rules
    """The session's own."""
    worktree: Worktree

    @classmethod
    def made(cls, rules: Rules, worktree: Worktree) -> Apart:
        return cls(
            cwd=worktree.cwd,
            rules=rules.rules,
            folders=rules.folders,
            readable=(*rules.readable, rules.cwd),
            repository=rules.repository,
            around=rules,
            worktree=worktree,
        )

    def is_at_hand(self, way: Way, view: View) -> bool:
        return super().is_at_hand(way, view) or lies_in(way, (self.around.cwd,), view)

    def count_in(self, cwd: Way | None) -> bool:
        """Commands in the person's checkout are for somebody to be asked about."""
        return cwd is not None and not any(map(self.worktree.is_left_alone, cwd.names))

    def bare(self, behavior: Behavior, tool: str, server: str = "") -> Rule | None:
        return None if behavior == "allow" and tool in EDITORS else super().bare(behavior, tool, server)

    def whole(self, way: Way, tool: str) -> Rule | None:
        is_ours = way.real is not None and all(map(self._is_place_to_work, way.names))
        return super().bare("allow", tool) if is_ours else None

    def _is_place_to_work(self, path: str) -> bool:
        places = (self.worktree.path, *self.folders)
        return not self.worktree.is_left_alone(path) and any(beneath(path, place) is not None for place in places)

    def _denies(self, rule: Rule, path: str, view: View) -> bool:
        names = dict.fromkeys((path, self.worktree.original(path)))
        return any(self.around._denies(rule, name, view) for name in names)

    def _allows(self, rule: Rule, path: str, view: View) -> bool:
        return not self.worktree.is_left_alone(path) and self.around._allows(rule, self.worktree.original(path), view)
