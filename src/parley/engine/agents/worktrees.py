"""Where agents work that are to work apart: each in a worktree, together with those that it calls.

    worktree = await lodgings.open(task_id, above)      # its own; or None, if it works where its caller does
    kept = await lodgings.leave(task_id)                # when its last guest leaves, it goes if nothing was changed

A worktree is left whatever becomes of its agent, and whoever waits for that: an agent that is stopped does not wait.

Not here: git (workspace/worktrees.py), which paths rules mean in a worktree (permissions/worktree_rules.py).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from parley.errors import ToolError
from parley.tools.base import Context
from parley.tools.delegation.calls import AgentInput

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.protocol.messages.requests import AgentDefinition
    from parley.workspace.base import Worktree, Worktrees

WORKTREE = "worktree"


class AgentWorktrees:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._worktrees: Worktrees | None = None
        self._occupants: dict[str, Worktree] = {}
        """Who is where, by the ids of agents."""
        self._pending: set[asyncio.Task[bool]] = set()
        self._leaving: dict[str, asyncio.Task[bool]] = {}

    async def open(self, id: str, parent: Context) -> Worktree:
        """A worktree for an agent whose caller is in this place. Raises ToolError."""
        opening = asyncio.create_task(self._create(id, parent))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # Git may be in the middle of it: what it makes is taken away as soon as it is there.
            self._track(asyncio.create_task(self._undo(id, opening)))
            raise

    async def _create(self, id: str, parent: Context) -> Worktree:
        if self._session.config.agents.make_worktrees is None:
            raise ToolError("isolation 'worktree' is not possible in a restricted session: leave it out.")
        if self._worktrees is None:
            self._worktrees = self._session.config.agents.make_worktrees()
        if (leaving := self._leaving.pop(id, None)) is not None:
            await asyncio.wait({leaving})  # it goes on, and has not left yet
        around = parent.worktree
        made = await self._worktrees.open(self._session.config.cwd if around is None else around.cwd, f"agent-{id}")
        # Rules are about the person's checkout, also for an agent of an agent.
        return made if around is None else msgspec.structs.replace(made, top=around.top)

    async def _undo(self, id: str, opening: asyncio.Task[Worktree]) -> bool:
        try:
            self.enter(id, await opening)
        except ToolError:
            return False
        return await self.leave(id)

    def enter(self, id: str, worktree: Worktree | None) -> None:
        """An agent works in a worktree from now on, its own or its caller's, if it does in any."""
        if worktree is not None:
            self._occupants[id] = worktree

    async def leave(self, id: str) -> bool:
        """Whether the worktree of an agent is still there. Does nothing if it has none, or has left."""
        leaving = self._start_leaving(id)
        return leaving is not None and await asyncio.shield(leaving)

    def leave_soon(self, id: str) -> None:
        """The same for an agent that was stopped, or has left already; where its changes are is complained about."""
        worktree, leaving = self._occupants.get(id), self._start_leaving(id)
        if worktree is not None and leaving is not None:
            self._track(asyncio.create_task(self._leave_and_warn(id, worktree, leaving)))

    def _start_leaving(self, id: str) -> asyncio.Task[bool] | None:
        if id in self._occupants:
            self._leaving[id] = self._track(asyncio.create_task(self._remove_if_clean(self._occupants.pop(id))))
        return self._leaving.get(id)

    async def _leave_and_warn(self, id: str, worktree: Worktree, leaving: asyncio.Task[bool]) -> bool:
        kept = await leaving
        if kept and worktree.path not in self._occupied():
            place = f"the git worktree {worktree.path}, on the branch {worktree.branch}"
            self._session.config.warn(f"the agent {id} was stopped; its changes are in {place}")
        return kept

    async def _remove_if_clean(self, worktree: Worktree) -> bool:
        if self._worktrees is None or worktree.path in self._occupied():
            return True
        return await self._worktrees.leave(worktree)

    def _occupied(self) -> set[str]:
        return {worktree.path for worktree in self._occupants.values()}

    def sweep_soon(self) -> None:
        """Take away what engines left behind that were killed."""
        if self._session.config.agents.make_worktrees is not None:
            self._track(asyncio.create_task(self._sweep(self._session.config.agents.make_worktrees())))

    async def _sweep(self, worktrees: Worktrees) -> bool:
        await worktrees.sweep(self._session.config.cwd)
        return False

    async def close(self) -> None:
        """Until all is done that was begun."""
        while self._pending:
            await asyncio.wait(self._pending)

    def _track(self, task: asyncio.Task[bool]) -> asyncio.Task[bool]:
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task


def wants_worktree(call: AgentInput, kind: AgentDefinition) -> bool:
    """Raises ToolError if something else is wanted, which there is not."""
    wanted = call.isolation or kind.isolation
    if wanted and wanted != WORKTREE:
        raise ToolError(f"isolation {wanted!r} is not possible here: 'worktree' is, or leave it out.")
    return bool(wanted)
