"""Git worktrees for agents with `isolation: worktree`. Nested agents share their caller's worktree.

    worktree = await worktrees.open(task_id, parent_context)
    worktrees.enter(task_id, worktree)
    is_kept = await worktrees.leave(task_id)    # removed after its last agent has left, if nothing was changed

Every agent leaves its worktree, also one that is stopped; then nothing waits for the removal.

See also: `workspace/worktrees.py` for git, `permissions/worktree_rules.py` for rules in a worktree.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from parley.engine.hooks.registry import HookRegistry
from parley.engine.session.config import SessionConfig
from parley.errors import ToolError
from parley.tools.agent import AgentInput
from parley.tools.base import Context
from parley.workspace.base import Worktree

if TYPE_CHECKING:
    from parley.protocol.messages.requests import AgentDefinition
    from parley.workspace.base import Worktrees

WORKTREE = "worktree"


class AgentWorktrees:
    def __init__(self, config: SessionConfig, hooks: HookRegistry) -> None:
        self._config = config
        self._hooks = hooks
        self._made_by_hook: set[str] = set()
        """Folders that a WorktreeCreate hook made."""
        self._worktrees: Worktrees | None = None
        self._occupants: dict[str, Worktree] = {}
        """The worktree of each running agent, by agent id."""
        self._pending: set[asyncio.Task[bool]] = set()
        self._leaving: dict[str, asyncio.Task[bool]] = {}

    async def open(self, id: str, parent: Context) -> Worktree:
        """Create a worktree for an agent; `parent` is its caller's context. Raises ToolError."""
        opening = asyncio.create_task(self._create(id, parent))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # Git may still be running: remove the worktree as soon as it exists.
            self._track(asyncio.create_task(self._undo(id, opening)))
            raise

    async def _create(self, id: str, parent: Context) -> Worktree:
        if self._config.agents.make_worktrees is None:
            raise ToolError("isolation 'worktree' is not allowed in a restricted session: leave it out.")
        if self._worktrees is None:
            self._worktrees = self._config.agents.make_worktrees()
        if (leaving := self._leaving.pop(id, None)) is not None:
            await asyncio.wait({leaving})  # a resumed agent that has not left yet
        outer, name = parent.worktree, f"agent-{id}"
        cwd = self._config.cwd if outer is None else outer.cwd
        dispatcher = self._hooks.dispatcher
        path = None if dispatcher is None else await dispatcher.session_hooks.create_worktree(name)
        if path is not None:  # a hook replaces git
            self._made_by_hook.add(path)
            top = cwd if outer is None else outer.top
            return Worktree(top=top, path=path, cwd=path, branch=name)
        made = await self._worktrees.open(cwd, name)
        # Rules refer to the user's checkout, also for nested agents.
        return made if outer is None else msgspec.structs.replace(made, top=outer.top)

    async def _undo(self, id: str, opening: asyncio.Task[Worktree]) -> bool:
        try:
            self.enter(id, await opening)
        except ToolError:
            return False
        return await self.leave(id)

    def enter(self, id: str, worktree: Worktree | None) -> None:
        """Record that an agent works in a worktree: its own, its caller's, or none."""
        if worktree is not None:
            self._occupants[id] = worktree

    async def leave(self, id: str) -> bool:
        """Leave the worktree of an agent. Returns whether it still exists."""
        leaving = self._start_leaving(id)
        return leaving is not None and await asyncio.shield(leaving)

    def leave_soon(self, id: str) -> None:
        """Leave without waiting, for a stopped agent. If its changes are kept, a warning says where."""
        worktree, leaving = self._occupants.get(id), self._start_leaving(id)
        if worktree is not None and leaving is not None:
            self._track(asyncio.create_task(self._leave_and_warn(id, worktree, leaving)))

    def _start_leaving(self, id: str) -> asyncio.Task[bool] | None:
        if id in self._occupants:
            self._leaving[id] = self._track(asyncio.create_task(self._remove_if_clean(self._occupants.pop(id))))
        return self._leaving.get(id)

    async def _leave_and_warn(self, id: str, worktree: Worktree, leaving: asyncio.Task[bool]) -> bool:
        is_kept = await leaving
        if is_kept and worktree.path not in self._occupied():
            place = f"the git worktree {worktree.path}, on the branch {worktree.branch}"
            self._config.warn(f"the agent {id} was stopped; its changes are in {place}")
        return is_kept

    async def _remove_if_clean(self, worktree: Worktree) -> bool:
        if self._worktrees is None or worktree.path in self._occupied():
            return True
        dispatcher = self._hooks.dispatcher
        if worktree.path in self._made_by_hook:
            # Only the hook that removes it knows whether it may go.
            return dispatcher is None or not await dispatcher.session_hooks.remove_worktree(worktree.path)
        is_kept = await self._worktrees.leave(worktree)
        if not is_kept and dispatcher is not None:
            await dispatcher.session_hooks.remove_worktree(worktree.path)
        return is_kept

    def _occupied(self) -> set[str]:
        return {worktree.path for worktree in self._occupants.values()}

    def sweep_soon(self) -> None:
        """Remove unchanged worktrees that killed processes left."""
        if self._config.agents.make_worktrees is not None:
            self._track(asyncio.create_task(self._sweep(self._config.agents.make_worktrees())))

    async def _sweep(self, worktrees: Worktrees) -> bool:
        await worktrees.sweep(self._config.cwd)
        return False

    async def close(self) -> None:
        """Wait for everything that was started."""
        while self._pending:
            await asyncio.wait(self._pending)

    def _track(self, task: asyncio.Task[bool]) -> asyncio.Task[bool]:
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task


def wants_worktree(call: AgentInput, kind: AgentDefinition) -> bool:
    """Raises ToolError for any other kind of isolation."""
    isolation = call.isolation or kind.isolation
    if isolation and isolation != WORKTREE:
        raise ToolError(f"isolation {isolation!r} is not supported here: use 'worktree' or leave it out.")
    return bool(isolation)
