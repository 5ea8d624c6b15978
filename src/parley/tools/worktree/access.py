"""How the tools find the worktree of their session."""

from __future__ import annotations

from parley.errors import ToolError
from parley.tools.base import Context
from parley.tools.worktree.base import SessionWorktrees


def open_worktrees(context: Context) -> SessionWorktrees:
    """Raises ToolError if the session has none."""
    if context.session.open_worktrees is None:
        raise ToolError("Git worktrees are not available in this session.")
    return context.session.open_worktrees()
