"""Subagents: conversations that a call of the tool Agent begins, beside the session's own.

A subagent has instructions, tools, a model, a log and a turn of its own. It shares the
session's rules, hooks, callbacks, purse and processes, and each of its lines names the call
it belongs to. Its caller waits for it, unless it is to run in the background: then the call
is over at once, and the end of the agent is news like that of any background task.

A message reaches an agent that runs before its next step. One that is over goes on with it, in
the background and with all it said before, also in another process than the one that began it.

    Subagents(session).delegate_for(None)   -> what the session's own Agent tool calls
    Subagents(session).send_for(None)       -> and its SendMessage

Not here: which kinds there are (registry.py), how one runs (run.py), which of its lines the
host hears (forwarding.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from parley.engine.agents.run import AgentRun
from parley.engine.agents.setup import build_setup
from parley.engine.agents.stats import AgentStats
from parley.engine.agents.task import AgentTask, Parent
from parley.engine.agents.worktrees import AgentWorktrees, wants_worktree
from parley.engine.tasks.task import RUNNING, new_run_id
from parley.errors import SessionError, ToolError
from parley.permissions.base import Allow, ToolRequest
from parley.protocol.base import Json
from parley.tools.base import ToolOutput
from parley.tools.delegation.calls import SEND, AgentInput

if TYPE_CHECKING:
    from parley.engine.session.session import Session

AGENT = "Agent"
MAX_DEPTH = 5
MAX_RUNNING = 200
MAX_NAMED = 20


class Subagents:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.stats = AgentStats()
        self.worktrees = AgentWorktrees(session)
        self._lock = asyncio.Lock()
        """Of two messages to one agent that is over, the first makes it go on, and the second reaches it."""

    def delegate_for(self, parent: Parent | None) -> Callable[[Any, str], Awaitable[ToolOutput]]:
        """What the Agent tool of an agent calls; None is the session itself."""

        async def delegate(call: AgentInput, tool_use_id: str) -> ToolOutput:
            return await self._run(call, tool_use_id, parent)

        return delegate

    def send_for(self, parent: Parent | None) -> Callable[[str, str, str], Awaitable[ToolOutput]]:
        """What the SendMessage tool of an agent calls."""

        async def send(to: str, message: str, tool_use_id: str) -> ToolOutput:
            async with self._lock:
                return await self._send(to, message, tool_use_id, parent)

        return send

    def move_to_background(self, tool_use_id: str | None) -> None:
        """The callers of the agents that run in the foreground, or of one of them, wait no longer."""
        for task in self._tasks() if self._session.tasks.are_allowed else ():
            waited_for = task.status == RUNNING and not task.in_background
            if waited_for and tool_use_id in (None, task.tool_use_id):
                self._session.tasks.move_to_background(task)
                task.moved_to_background.set()

    def _tasks(self) -> list[AgentTask]:
        tasks = self._session.tasks
        return [task for task in map(tasks.find, tasks.ids()) if isinstance(task, AgentTask)]

    # One agent.

    async def _run(self, call: AgentInput, tool_use_id: str, parent: Parent | None) -> ToolOutput:
        """Raises ToolError."""
        task = await self._start_new(call, tool_use_id, parent)
        if task.in_background:
            return task.launch_output()
        moved = asyncio.create_task(task.moved_to_background.wait())
        watcher = task.watcher
        assert watcher is not None
        try:
            await asyncio.wait({watcher, moved}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._session.tasks.stop(task.id)
            await asyncio.wait({watcher})
            raise
        finally:
            moved.cancel()
        return task.launch_output() if task.in_background else task.output()

    async def _start_new(self, call: AgentInput, tool_use_id: str, parent: Parent | None) -> AgentTask:
        """Raises ToolError."""
        id = "a" + self._session.clock.new_uuid().replace("-", "")[-16:]
        meta = {"agentType": call.subagent_type, "toolUseId": tool_use_id, "description": call.description}
        if call.name is not None:
            meta["name"] = call.name
        if call.isolation is not None:
            meta["isolation"] = call.isolation
        return await self._start(id, call, tool_use_id, parent, meta)

    async def _start(
        self, id: str, call: AgentInput, tool_use_id: str, parent: Parent | None, meta: Json | None
    ) -> AgentTask:
        """Let one run. Without a `meta` it goes on where it once ended. Raises ToolError."""
        session = self._session
        depth = 1 if parent is None else parent.depth + 1
        kind = session.config.agents.registry.find(call.subagent_type)
        if kind is None:
            known = ", ".join(session.config.agents.registry.names())
            raise ToolError(f"Agent type '{call.subagent_type}' not found. Available agents: {known}")
        self._check_limits(depth)
        background = call.run_in_background if call.run_in_background is not None else kind.background is True
        background = background and session.tasks.are_allowed
        above = session.config.tool_context if parent is None else parent.conversation.config.tool_context
        worktree = await self.worktrees.open(id, above) if wants_worktree(call, kind) else None
        self.worktrees.enter(id, worktree or above.worktree)
        made = build_setup(session, call, kind, parent, worktree)
        try:
            log = session.config.storage.open_agent_log(id, meta)
        except SessionError as exc:
            self.worktrees.leave_soon(id)
            raise ToolError(str(exc)) from None
        task = AgentTask(
            id=id,
            run_id=new_run_id(session.clock),
            description=call.description,
            tool_use_id=tool_use_id,
            record=session.tasks.new_output(id, again=meta is None),
            call=call,
            depth=depth,
            parent_id=None if parent is None else parent.id,
            in_background=background,
            clock=session.clock.monotonic,
            can_continue=SEND in session.config.tools,
            worktree=worktree,
        )
        run = AgentRun(session, self.stats, task, kind, made, log)
        us, context = Parent(id=id, depth=depth, conversation=run.conversation), made.config.tool_context
        context.delegate, context.send = self.delegate_for(us), self.send_for(us)
        if meta is None:
            self._load_history(run, task)
        self.stats.record_start(call, task)
        watcher = asyncio.create_task(run.watch(run.make_turn(call.prompt)))
        watcher.add_done_callback(lambda _: self.worktrees.leave_soon(id))
        session.tasks.register(task, watcher)
        return task

    def _load_history(self, run: AgentRun, task: AgentTask) -> None:
        """Raises ToolError if what it said cannot be had: then it does not run."""
        try:
            run.load_history()
        except SessionError as exc:
            run.conversation.config.storage.log.close()
            task.record.close()
            self.worktrees.leave_soon(task.id)
            raise ToolError(f"The agent {task.id} cannot go on: {exc}") from None

    def _check_limits(self, depth: int) -> None:
        """Raises ToolError."""
        if depth > MAX_DEPTH:
            self.stats.refused["depth_limit"] += 1
            raise ToolError(f"Agents may call agents {MAX_DEPTH} levels deep at most. Do this work yourself.")
        if sum(not task.finished.is_set() for task in self._tasks()) >= MAX_RUNNING:
            self.stats.refused["concurrency_limit"] += 1
            raise ToolError(f"{MAX_RUNNING} agents are running. Wait until some of them are done.")

    # A message.

    async def _send(self, to: str, message: str, tool_use_id: str, parent: Parent | None) -> ToolOutput:
        """Raises ToolError."""
        task = next((one for one in reversed(self._tasks()) if to in (one.id, one.call.name)), None)
        if task is not None and task.is_ending and task.watcher is not None:
            await asyncio.wait({task.watcher})  # it reads nothing any more, and is about to leave its place
        if task is not None and not task.finished.is_set():
            task.messages.append(message)
            return message_sent(f"Agent {task.id} is running. It reads your message before its next step.")
        id, call = (task.id, task.call) if task is not None else self._find_earlier(to)
        if not self._session.tasks.are_allowed:
            raise ToolError(f"Agent {id} is done, and nothing may run in the background here. Begin another one.")
        self._check_rules(call, parent)
        going_on = AgentInput(
            description=call.description,
            prompt=message,
            subagent_type=call.subagent_type,
            model=call.model,
            effort=call.effort,
            run_in_background=True,
            name=call.name,
            isolation=call.isolation,
        )
        resumed = await self._start(id, going_on, tool_use_id, parent, None)
        return message_sent(
            f"Agent {id} goes on in the background with your message and all it knew. You will be told when it is "
            f"done. Its output goes to {resumed.output_file}."
        )

    def _check_rules(self, call: AgentInput, parent: Parent | None) -> None:
        """A message is no way around a rule about agents. Raises ToolError."""
        session = self._session
        mode = session.mode if parent is None else parent.conversation.mode()
        input = {"subagent_type": call.subagent_type, "description": call.description, "prompt": call.prompt}
        request = ToolRequest(tool=AGENT, input=input, cwd=session.config.tool_context.cwd, reads_only=True)
        if not isinstance(session.config.permissions.policy.decide(request, mode), Allow):
            kind = call.subagent_type
            raise ToolError(f"A rule stands against agents of the type {kind!r}: it does not go on by a message.")

    def _find_earlier(self, to: str) -> tuple[str, AgentInput]:
        """An agent that another process began. Raises ToolError."""
        try:
            stored = self._session.config.storage.list_agents()
        except SessionError as exc:
            raise ToolError(str(exc)) from None
        for agent in stored:
            if to in (agent.id, agent.meta.get("name")):
                kind, words = agent.meta.get("agentType"), agent.meta.get("description")
                what = str(words or "Go on with earlier work")
                apart: Any = agent.meta.get("isolation")
                return agent.id, AgentInput(description=what, prompt="", subagent_type=str(kind), isolation=apart)
        known = dict.fromkeys([*(agent.id for agent in stored), *(task.id for task in self._tasks())])
        listed = ", ".join(list(known)[-MAX_NAMED:]) or "none"
        raise ToolError(f"There is no agent {to!r} to send a message to. There are: {listed}.")


def message_sent(text: str) -> ToolOutput:
    return ToolOutput(content=text, detail={"success": True, "message": text})
