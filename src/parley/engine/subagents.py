"""Subagents: conversations that a call of the tool Agent begins, beside the session's own.

A subagent has instructions, tools, a model, a log and a turn of its own. It shares the
session's rules, hooks, callbacks, purse and processes, and each of its lines names the call
it belongs to. Its caller waits for it, unless it is to run in the background: then the call
is over at once, and the end of the agent is news like that of any background task.

    Subagents(session).delegate_for(None)   -> what the session's own Agent tool calls

Not here: which kinds there are (agents.py), which of its lines the host hears (voice.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.agent_setup import made_for
from parley.engine.agent_stats import Stats
from parley.engine.agent_task import AgentTask, Parent
from parley.engine.called import Called
from parley.engine.conversation import Conversation
from parley.engine.grants import Grants
from parley.engine.inbox import Prompt
from parley.engine.outcome import Outcome
from parley.engine.outfit import Outfit, brings_anything
from parley.engine.record import Record
from parley.engine.task import RUNNING, run_id
from parley.engine.tool_call import Caller
from parley.engine.turn import Turn
from parley.engine.voice import Voice, activity
from parley.errors import SessionError, ToolError
from parley.protocol.base import Json
from parley.protocol.blocks import Text, ToolUse
from parley.protocol.messages.system import TaskProgress
from parley.tools.base import Result
from parley.tools.delegation import AgentInput

if TYPE_CHECKING:
    from parley.engine.session import Session

DEEPEST = 5
MOST_RUNNING = 200
GONE_ON = "[The agent was stopped here]"


class Watched(Caller):
    """A caller that says what its agent is doing."""

    begins: Callable[[ToolUse], None] = lambda call: None

    async def run(self, call: ToolUse, mode: str) -> Called:
        self.begins(call)
        return await super().run(call, mode)


class Subagents:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.stats = Stats()

    def delegate_for(self, parent: Parent | None) -> Callable[[Any, str], Awaitable[Result]]:
        """What the Agent tool of an agent calls; None is the session itself."""

        async def delegate(call: AgentInput, tool_use_id: str) -> Result:
            return await self._run(call, tool_use_id, parent)

        return delegate

    def move_behind(self, tool_use_id: str | None) -> None:
        """The callers of the agents that run in the foreground, or of one of them, wait no longer."""
        tasks = self._session.tasks
        for task in [tasks.find(id) for id in tasks.ids()]:
            waited_for = isinstance(task, AgentTask) and task.status == RUNNING and not task.in_background
            if isinstance(task, AgentTask) and waited_for and tool_use_id in (None, task.tool_use_id):
                tasks.move_behind(task)
                task.moved.set()

    # One agent.

    async def _run(self, call: AgentInput, tool_use_id: str, parent: Parent | None) -> Result:
        """Raises ToolError."""
        task = self._begin(call, tool_use_id, parent)
        if task.in_background:
            return task.launched()
        moved = asyncio.create_task(task.moved.wait())
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
        return task.launched() if task.in_background else task.result()

    def _begin(self, call: AgentInput, tool_use_id: str, parent: Parent | None) -> AgentTask:
        session = self._session
        depth = 1 if parent is None else parent.depth + 1
        kind = session.setup.agents.find(call.subagent_type)
        if kind is None:
            known = ", ".join(session.setup.agents.names())
            raise ToolError(f"Agent type '{call.subagent_type}' not found. Available agents: {known}")
        self._check_room(depth)
        if call.isolation is not None:
            raise ToolError(f"isolation {call.isolation!r} is not possible here: leave it out.")
        id = "a" + session.stamp.new_uuid().replace("-", "")[-16:]
        background = call.run_in_background if call.run_in_background is not None else kind.background is True
        made = made_for(session, call, kind, parent)
        try:
            log = session.setup.open_agent_log(id, {"agentType": call.subagent_type, "toolUseId": tool_use_id})
        except SessionError as flaw:
            raise ToolError(str(flaw)) from None
        task = AgentTask(
            id=id,
            run_id=run_id(session.stamp),
            description=call.description,
            tool_use_id=tool_use_id,
            record=session.tasks.new_output(id),
            call=call,
            depth=depth,
            parent_id=None if parent is None else parent.id,
            in_background=background,
            clock=session.stamp.monotonic,
        )
        agent = {"agent_id": id, "agent_type": call.subagent_type}
        voice = Voice(session.host.tell, task, forwards_text=lambda: session.forwards_subagent_text)
        record = Record(log, session.stamp, Grants(session.id, session.setup.cwd))
        caller = Watched(
            made.setup.tools,
            session.asker,
            made.setup.tool_context,
            session.record.note,
            session.setup.complain,
            agent=agent,
            listeners=session.listeners,
        )
        talk = task.conversation = Conversation(
            msgspec.structs.replace(made.setup, log=log),
            record,
            voice.say,
            ledger=session.ledger,
            caller=caller,
            access=session.access,
            mode=made.mode,
            listeners=session.listeners,
            parent_tool_use_id=tool_use_id,
        )
        talk.model = made.model
        talk.transcript_path = session.setup.agent_transcript_path(id)
        made.setup.tool_context.delegate = self.delegate_for(Parent(id=id, depth=depth, conversation=talk))
        prompt = Prompt(content=[{"type": "text", "text": call.prompt}], uuid=session.stamp.new_uuid())
        turn = task.turn = Turn(talk, [prompt], begin=lambda turn: talk.say_user(Text.of(call.prompt)))
        caller.begins = lambda tool: self._tell_progress(task, tool)
        self.stats.begin(call, task)
        outfit = Outfit(session, call.subagent_type, kind) if brings_anything(kind) else None
        watcher = asyncio.create_task(self._watch(task, turn, voice, agent, outfit))
        session.tasks.begin(task, watcher)
        return task

    def _check_room(self, depth: int) -> None:
        """Raises ToolError."""
        if depth > DEEPEST:
            self.stats.refused["depth_limit"] += 1
            raise ToolError(f"Agents may call agents {DEEPEST} levels deep at most. Do this work yourself.")
        tasks = self._session.tasks
        running = [
            task for task in map(tasks.find, tasks.ids()) if isinstance(task, AgentTask) and not task.over.is_set()
        ]
        if len(running) >= MOST_RUNNING:
            self.stats.refused["concurrency_limit"] += 1
            raise ToolError(f"{MOST_RUNNING} agents are running. Wait until some of them are done.")

    async def _watch(
        self, task: AgentTask, turn: Turn, voice: Voice, agent: Json, outfit: Outfit | None = None
    ) -> None:
        session = self._session
        try:
            ended = await self._guarded(self._lived(turn, agent, outfit))
        except asyncio.CancelledError:
            self.stats.killed["user"] += 1
            voice.mute()
            self._close(task, GONE_ON)
            raise
        task.end(ended, turn)
        self.stats.end(task.failed)
        self._close(task, "")
        status = "failed" if task.failed else "completed"
        session.tasks.finish(task, status, task.text or task.flaw, task.news(status))

    async def _lived(self, turn: Turn, agent: Json, outfit: Outfit | None) -> Outcome:
        """Its whole life, with all that it brings."""
        try:
            if outfit is not None:
                turn.hearing.contexts += await outfit.put_on(agent["agent_id"], turn.conversation.setup.tools)
            live = self._session.listeners.live
            if live is not None:
                turn.hearing.contexts += await live.turns.start_agent(agent)
            return await turn.run()
        finally:
            if outfit is not None:
                await outfit.take_off()

    async def _guarded(self, life: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Live it so that it ends with an outcome, come what may."""
        import traceback

        from parley.engine import outcome

        try:
            return await life
        except SessionError as flaw:
            return outcome.broken(str(flaw))
        except Exception as bug:
            self._session.setup.complain("".join(traceback.format_exception(bug)))
            return outcome.broken(f"internal error: {type(bug).__name__}: {bug}")

    def _close(self, task: AgentTask, why: str) -> None:
        """Leave a record in which every call has its result, and nothing open."""
        talk = task.conversation
        assert talk is not None
        try:
            if why:
                if task.turn is not None:
                    task.turn.tell_ran()
                talk.answer_open_calls(why)
        except SessionError as flaw:
            self._session.setup.complain(str(flaw))
        if not task.in_background and self._session.turn is not None and task.turn is not None:
            self._session.turn.denials += task.turn.denials
        talk.setup.log.close()
        task.release()

    def _tell_progress(self, task: AgentTask, tool: ToolUse) -> None:
        task.note_call(tool.name)
        self._session.tell(
            TaskProgress(
                task_id=task.id,
                run_id=task.run_id,
                tool_use_id=task.tool_use_id,
                description=activity(tool),
                subagent_type=task.call.subagent_type,
                usage=task.usage(),
                last_tool_name=tool.name,
            )
        )
