"""Git worktrees for agents with `isolation: worktree`. Nested agents share their caller's worktree.

    worktree = await worktrees.open(task_id, parent_context)
    worktrees.enter(task_id, worktree)
    is_kept = await worktrees.leave(task_id)    # removed after its last agent has left, if nothing was changed

Every agent leaves its worktree, also one that is stopped; then nothing waits for the removal.

See also: `workspace/worktrees.py` for git, `permissions/rules.py` for rules in a worktree.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from parley.engine.context.conversation import Conversation
from parley.engine.hooks.registry import HookRegistry
from parley.engine.session.config import SessionConfig
from parley.errors import ToolError
from parley.protocol.base import convert, to_builtins
from parley.tools.agent import AgentInput
from parley.tools.base import AgentState, Context
from parley.workspace.base import Worktree, WorktreeChanges

if TYPE_CHECKING:
    from parley.protocol.messages.requests import AgentDefinition
    from parley.workspace.base import Worktrees


WORKTREE = "worktree"
KIND = "worktree"


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
        path = await self._hooks.events.create_worktree(name)
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
        if worktree.path in self._made_by_hook:
            # Only the hook that removes it knows whether it may go.
            return not await self._hooks.events.remove_worktree(worktree.path)
        is_kept = await self._worktrees.leave(worktree)
        if not is_kept:
            await self._hooks.events.remove_worktree(worktree.path)
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


class SessionWorktree:
    def __init__(self, conversation: Conversation) -> None:
        self._config = conversation.config
        self._hooks = conversation.hooks
        self._journal = conversation.journal
        self._executor = conversation.tool_executor
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
        cwd, made = self._config.cwd, await self._hooks.events.create_worktree(name)
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
        if self._made_by_hook:
            if not await self._hooks.events.remove_worktree(worktree.path):
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
        await self._hooks.events.remove_worktree(worktree.path)
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
