"""The git worktree that the session itself works in: EnterWorktree and ExitWorktree.

Inside it the tools of the session have another context: another working directory, and the rules for worktrees, as an
agent with `isolation: worktree` has. A resumed session continues in its worktree.

See also: `worktrees.py` for those of agents, `workspace/worktrees.py` for git.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from parley.engine.hooks.registry import HookRegistry
from parley.engine.session.config import SessionConfig
from parley.engine.session.journal import Journal
from parley.engine.turn.tool_executor import ToolExecutor
from parley.errors import ToolError
from parley.protocol.base import convert, to_builtins
from parley.tools.base import AgentState, Context
from parley.workspace.base import Worktree, WorktreeChanges

if TYPE_CHECKING:
    from parley.workspace.base import Worktrees

KIND = "worktree"


class SessionWorktree:
    def __init__(self, config: SessionConfig, journal: Journal, executor: ToolExecutor, hooks: HookRegistry) -> None:
        self._config = config
        self._hooks = hooks
        self._journal = journal
        self._executor = executor
        self._outside: Context | None = None
        """The context of the tools in the session's own checkout, while they have another."""
        self._was_created = False
        """EnterWorktree created the worktree, so ExitWorktree may remove it."""
        self._made_by_hook = False
        """A WorktreeCreate hook made it instead of git."""
        self._git: Worktrees | None = None

    def resume(self) -> None:
        """Continue in the worktree that the log names."""
        record = self._journal.worktree or {}
        worktree: Worktree = convert(record["at"], Worktree)
        # A remote one is not looked up here: if it is gone, the first call says so.
        if self._config.is_remote or os.path.isdir(worktree.path):
            self._made_by_hook = record.get("by_hook") is True
            self._move(worktree, was_created=record.get("created") is True)
        else:
            self._config.warn(
                f"the worktree {worktree.path} no longer exists; the session continues in {self._config.cwd}"
            )
            self._journal.append_event(KIND, {"left": worktree.path})

    async def enter(self, name: str | None, path: str | None) -> Worktree:
        """Raises ToolError."""
        context, git = self._executor.context, self._open_git()
        if context.worktree is not None:
            raise ToolError(f"The session is already in the worktree {context.worktree.path}: leave it first.")
        if path is not None:
            worktree = await git.find(self._config.cwd, path)
        else:
            worktree = await self._create(git, name or f"session-{context.new_id()}")
        record = {"at": to_builtins(worktree), "created": path is None, "by_hook": self._made_by_hook}
        self._journal.append_event(KIND, record)
        self._move(worktree, was_created=path is None)
        return worktree

    async def _create(self, git: Worktrees, name: str) -> Worktree:
        """Raises ToolError."""
        dispatcher, cwd = self._hooks.dispatcher, self._config.cwd
        made = None if dispatcher is None else await dispatcher.session_hooks.create_worktree(name)
        self._made_by_hook = made is not None
        return await git.create(cwd, name) if made is None else Worktree(top=cwd, path=made, cwd=made, branch=name)

    async def leave(self, *, remove: bool, discard: bool) -> tuple[Worktree, WorktreeChanges]:
        """Raises ToolError."""
        outside, worktree = self._outside, self._executor.context.worktree
        if outside is None or worktree is None:
            raise ToolError("The session is not in a worktree, so there is none to leave.")
        lost = WorktreeChanges()
        if remove:
            lost = await self._remove(worktree, discard=discard)
        self._journal.append_event(KIND, {"left": worktree.path})
        self._executor.context, self._outside = outside, None
        return worktree, lost

    async def _remove(self, worktree: Worktree, *, discard: bool) -> WorktreeChanges:
        """Raises ToolError."""
        if not self._was_created:
            raise ToolError(f"{worktree.path} was not created by EnterWorktree: leave it with action 'keep'.")
        dispatcher = self._hooks.dispatcher
        if self._made_by_hook:
            if dispatcher is None or not await dispatcher.session_hooks.remove_worktree(worktree.path):
                raise ToolError(
                    f"{worktree.path} was created by a hook, and no WorktreeRemove hook removed it: "
                    "leave it with action 'keep'."
                )
            return WorktreeChanges()
        git = self._open_git()
        lost = await git.find_changes(worktree)
        if lost and not discard:
            raise ToolError(
                f"The worktree has {lost.files} uncommitted files and {lost.commits} commits that no other branch has. "
                "Leave it with action 'keep', or set discard_changes if the user agrees to lose them: "
                f"{'; '.join(lost.names)}"
            )
        await git.remove(worktree)
        if dispatcher is not None:
            await dispatcher.session_hooks.remove_worktree(worktree.path)
        return lost

    def _move(self, worktree: Worktree, *, was_created: bool) -> None:
        outside = self._outside = self._executor.context
        self._was_created = was_created
        hides = outside.hides
        self._executor.context = replace(
            outside,
            state=AgentState(cwd=worktree.cwd),
            worktree=worktree,
            hides=lambda path: hides(path) or hides(worktree.original(path)),
        )

    def _open_git(self) -> Worktrees:
        """Raises ToolError."""
        if self._git is None:
            if self._config.agents.make_worktrees is None:
                raise ToolError("Worktrees are not allowed in a restricted session.")
            self._git = self._config.agents.make_worktrees()
        return self._git
