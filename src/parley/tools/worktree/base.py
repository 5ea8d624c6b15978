"""The interface of the session's own worktree for tools. Implemented in engine/agents/worktrees.py."""

from __future__ import annotations

from typing import Protocol

from parley.workspace.base import Worktree, WorktreeChanges


class SessionWorktrees(Protocol):
    async def enter(self, name: str | None, path: str | None) -> Worktree:
        """Create a worktree, or find the one at `path`, and continue in it. Raises ToolError."""

    async def leave(self, *, remove: bool, discard: bool) -> tuple[Worktree, WorktreeChanges]:
        """Return to the session's checkout. Returns the worktree, and what was discarded with it. Raises ToolError."""
