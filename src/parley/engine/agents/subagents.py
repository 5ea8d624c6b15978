"""Subagents: conversations that a call of the Agent tool starts.

A subagent has its own instructions, tools, model, log and turns. It shares the session's rules, hooks, budget
and processes; each of its messages names the call it belongs to. The caller waits for it, unless it runs in
the background: then the call returns at once, and the end is reported like that of any background task.

A message to a running agent is read before its next model call. A message to a finished agent resumes it in
the background with its history, also in another process.

    Subagents(conversation, commands).calls_of(None)    what the session's own Agent and SendMessage tools call

See also: `registry.py` for the definitions, `run.py` for one run.
"""

from __future__ import annotations

import asyncio

import msgspec

from parley.engine.agents.run import AgentRun, AgentStats, AgentTask
from parley.engine.agents.setup import AgentSetup, Parent, build_setup
from parley.engine.agents.worktrees import AgentWorktrees, wants_worktree
from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import Conversation
from parley.engine.tasks.manager import TaskInfo, new_run_id
from parley.errors import ModelError, SessionError, ToolError, UsageError
from parley.permissions.base import Allow, ToolRequest
from parley.protocol.base import Json
from parley.tools.agent import SEND, AgentInput
from parley.tools.base import ToolOutput

AGENT = "Agent"
MAX_DEPTH = 5
MAX_RUNNING = 200
MAX_NAMED = 20


class Subagents:
    def __init__(self, own: Conversation, commands: Commands) -> None:
        """`own` is the conversation of the session."""
        self._own = own
        self._commands = commands
        self._config = own.config
        self._task_manager = own.parts.tasks
        self.stats = AgentStats()
        self.worktrees = AgentWorktrees(self._config, own.hooks)
        self._lock = asyncio.Lock()
        """Of two messages to a finished agent, the first resumes it and the second reaches it running."""

    def calls_of(self, parent: Parent | None) -> CallsOf:
        """What the tools of an agent call; None is the session itself."""
        return CallsOf(self, parent)

    def _tasks(self) -> list[AgentTask]:
        tasks = self._task_manager
        return [task for task in map(tasks.find, tasks.ids()) if isinstance(task, AgentTask)]

    # One agent.

    async def run(self, call: AgentInput, tool_use_id: str, parent: Parent | None) -> ToolOutput:
        """Raises ToolError."""
        task = await self._start_new(call, tool_use_id, parent)
        if task.in_background:
            return task.launch_output()
        moved = asyncio.create_task(task.moved.wait())
        watcher = task.watcher
        assert watcher is not None
        try:
            await asyncio.wait({watcher, moved}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task_manager.stop(task.id)
            await asyncio.wait({watcher})
            raise
        finally:
            moved.cancel()
        return task.launch_output() if task.in_background else task.output()

    async def _start_new(self, call: AgentInput, tool_use_id: str, parent: Parent | None) -> AgentTask:
        """Raises ToolError."""
        id = "a" + self._config.clock.new_uuid().replace("-", "")[-16:]
        meta = {"agentType": call.subagent_type, "toolUseId": tool_use_id, "description": call.description}
        if call.name is not None:
            meta["name"] = call.name
        if call.isolation is not None:
            meta["isolation"] = call.isolation
        return await self._start(id, call, tool_use_id, parent, meta)

    async def _start(
        self, id: str, call: AgentInput, tool_use_id: str, parent: Parent | None, meta: Json | None
    ) -> AgentTask:
        """Start an agent. If `meta` is None, resume it from its log. Raises ToolError."""
        config = self._config
        depth = 1 if parent is None else parent.depth + 1
        kind = config.agents.registry.find(call.subagent_type)
        if kind is None:
            known = ", ".join(config.agents.registry.definitions)
            raise ToolError(f"Agent type '{call.subagent_type}' not found. Available agents: {known}")
        self._check_limits(depth)
        background = call.run_in_background if call.run_in_background is not None else kind.background is True
        background = background and self._task_manager.are_allowed
        above = (self._own if parent is None else parent.conversation).tool_context
        worktree = await self.worktrees.open(id, above) if wants_worktree(call, kind) else None
        self.worktrees.enter(id, worktree or above.worktree)

        def open_agents() -> CallsOf:
            return self.calls_of(Parent(id=id, depth=depth, conversation=run.conversation))

        setup = build_setup(self._own, call, kind, parent, worktree, open_agents)
        self._check_model(id, setup)
        setup = self._open_log(id, setup, meta)
        info = TaskInfo(
            id=id,
            run_id=new_run_id(config.clock),
            description=call.description,
            tool_use_id=tool_use_id,
            record=self._task_manager.new_output(id, again=meta is None),
            files=self._task_manager.outputs,
        )
        task = AgentTask(
            info,
            call,
            parent,
            config.clock.monotonic,
            in_background=background,
            can_continue=SEND in config.tools,
            worktree=worktree,
        )
        run = AgentRun(self._own, self._commands, task, setup, self.stats, self.worktrees)
        if meta is None:
            self._load_history(run, task)
        self.stats.record_start(call, task)
        watcher = asyncio.create_task(run.watch(run.make_turn(call.prompt)))
        watcher.add_done_callback(lambda _: self.worktrees.leave_soon(id))
        self._task_manager.register(task, watcher)
        return task

    def _check_model(self, id: str, setup: AgentSetup) -> None:
        """Raises ToolError if the agent's model cannot be used in this session."""
        try:
            self._own.open_model(setup.model)
        except UsageError as exc:
            self.worktrees.leave_soon(id)
            raise ToolError(f"The agent cannot start: {exc}") from None
        except ModelError:
            pass  # its first call reports it

    def _open_log(self, id: str, setup: AgentSetup, meta: Json | None) -> AgentSetup:
        """Raises ToolError."""
        try:
            log = self._config.storage.open_agent_log(id, meta)
        except SessionError as exc:
            self.worktrees.leave_soon(id)
            raise ToolError(str(exc)) from None
        return msgspec.structs.replace(setup, config=setup.config.with_log(log))

    def _load_history(self, run: AgentRun, task: AgentTask) -> None:
        """Raises ToolError if the log cannot be read; then the agent does not run."""
        try:
            run.load_history()
        except SessionError as exc:
            run.conversation.config.storage.log.close()
            task.record.close()
            self.worktrees.leave_soon(task.id)
            raise ToolError(f"The agent {task.id} cannot continue: {exc}") from None

    def _check_limits(self, depth: int) -> None:
        """Raises ToolError."""
        if depth > MAX_DEPTH:
            self.stats.refused["depth_limit"] += 1
            raise ToolError(f"Agents can be nested at most {MAX_DEPTH} levels deep. Do this work yourself.")
        if sum(not task.finished.is_set() for task in self._tasks()) >= MAX_RUNNING:
            self.stats.refused["concurrency_limit"] += 1
            raise ToolError(f"{MAX_RUNNING} agents are running. Wait until some of them finish.")

    def list_agents(self) -> list[Json]:
        """The agents of this process, and those of earlier ones whose transcripts are stored. Raises ToolError."""
        try:
            stored = self._config.storage.list_agents()
        except SessionError as exc:
            raise ToolError(str(exc)) from None
        found: dict[str, Json] = {}
        for agent in stored:
            kind, name = agent.meta.get("agentType"), agent.meta.get("name")
            found[agent.id] = describe_agent(agent.id, name, str(kind), agent.meta.get("description"), "finished")
        for task in self._tasks():
            call = task.call
            found[task.id] = describe_agent(task.id, call.name, call.subagent_type, call.description, task.status)
        return list(found.values())

    # Messages.

    async def send(self, to: str, message: str, tool_use_id: str, parent: Parent | None) -> ToolOutput:
        """Raises ToolError."""
        async with self._lock:
            return await self._send(to, message, tool_use_id, parent)

    async def _send(self, to: str, message: str, tool_use_id: str, parent: Parent | None) -> ToolOutput:
        task = next((one for one in reversed(self._tasks()) if to in (one.id, one.call.name)), None)
        if task is not None and task.is_ending and task.watcher is not None:
            await asyncio.wait({task.watcher})  # it has finished and is releasing its resources
        if task is not None and not task.finished.is_set():
            task.messages.append(message)
            return message_sent(f"Agent {task.id} is running. It reads your message before its next step.")
        id, call = (task.id, task.call) if task is not None else self._find_earlier(to)
        if not self._task_manager.are_allowed:
            raise ToolError(
                f"Agent {id} has finished and cannot resume: background work is disabled. Start a new agent."
            )
        self._check_rules(call, parent)
        continued = AgentInput(
            description=call.description,
            prompt=message,
            subagent_type=call.subagent_type,
            model=call.model,
            effort=call.effort,
            run_in_background=True,
            name=call.name,
            isolation=call.isolation,
        )
        resumed = await self._start(id, continued, tool_use_id, parent, None)
        return message_sent(
            f"Agent {id} resumes in the background with your message and its earlier context. You are notified when "
            f"it is done. Its output goes to {resumed.output_file}."
        )

    def _check_rules(self, call: AgentInput, parent: Parent | None) -> None:
        """Permission rules about agents apply to messages too. Raises ToolError."""
        own, policy = self._own, self._config.permissions.policy
        mode = own.mode() if parent is None else parent.conversation.mode()
        input = {"subagent_type": call.subagent_type, "description": call.description, "prompt": call.prompt}
        request = ToolRequest(tool=AGENT, input=input, cwd=own.tool_context.state.cwd, reads_only=True)
        if not isinstance(policy.decide(request, mode), Allow):
            kind = call.subagent_type
            raise ToolError(f"A rule does not allow agents of the type {kind!r}, so the agent cannot resume.")

    def _find_earlier(self, to: str) -> tuple[str, AgentInput]:
        """An agent of an earlier process. Raises ToolError."""
        try:
            stored = self._config.storage.list_agents()
        except SessionError as exc:
            raise ToolError(str(exc)) from None
        for agent in stored:
            if to in (agent.id, agent.meta.get("name")):
                kind, isolation = str(agent.meta.get("agentType")), agent.meta.get("isolation")
                description = str(agent.meta.get("description") or "Continue earlier work")
                call = AgentInput(description=description, prompt="", subagent_type=kind, isolation=isolation)
                return agent.id, call
        known = dict.fromkeys([*(agent.id for agent in stored), *(task.id for task in self._tasks())])
        listed = ", ".join(list(known)[-MAX_NAMED:]) or "none"
        raise ToolError(f"There is no agent {to!r} to send a message to. The agents are: {listed}.")


class CallsOf:
    """The Agent and SendMessage calls of one agent, or of the session itself."""

    def __init__(self, subagents: Subagents, parent: Parent | None) -> None:
        self._subagents = subagents
        self._parent = parent

    async def delegate(self, call: AgentInput, tool_use_id: str) -> ToolOutput:
        """Raises ToolError."""
        return await self._subagents.run(call, tool_use_id, self._parent)

    async def send(self, to: str, message: str, tool_use_id: str) -> ToolOutput:
        """Raises ToolError."""
        return await self._subagents.send(to, message, tool_use_id, self._parent)

    def list_agents(self) -> list[Json]:
        """Raises ToolError."""
        return self._subagents.list_agents()


def describe_agent(id: str, name: str | None, kind: str, description: str | None, status: str) -> Json:
    about: Json = {"id": id, "type": kind, "description": description or "", "status": status}
    return {**about, "name": name} if name else about


def message_sent(text: str) -> ToolOutput:
    return ToolOutput(content=text, detail={"success": True, "message": text})
