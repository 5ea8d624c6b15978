"""One run of a subagent: from its first prompt, or a message that makes it go on, to what its caller is given.

    run = AgentRun(session, stats, task, kind, made, log)
    session.tasks.begin(task, asyncio.create_task(run.watch()))

Messages that come while it runs (`task.letters`) are read before its next model call; those that come too late for
that make it go on when it is done. Whatever happens, its record has a result for every call, and its task an end.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from parley.engine.accounting.ledger import Ledger
from parley.engine.agents.forwarding import SubagentForwarder, describe_activity
from parley.engine.agents.resources import AgentResources, has_resources
from parley.engine.agents.setup import AgentSetup
from parley.engine.agents.stats import AgentStats
from parley.engine.agents.task import AgentTask
from parley.engine.approval.grants import Grants
from parley.engine.context.conversation import Conversation
from parley.engine.session.journal import Journal
from parley.engine.session.prompt_queue import Prompt
from parley.engine.turn import outcome
from parley.engine.turn.outcome import TurnOutcome
from parley.engine.turn.tool_executor import ToolExecutor, ToolOutcome
from parley.engine.turn.turn import Turn
from parley.errors import SessionError
from parley.protocol.base import Json
from parley.protocol.blocks import Text, ToolUse
from parley.protocol.messages.requests import AgentDefinition
from parley.protocol.messages.system import TaskProgress
from parley.stores.base import Log

if TYPE_CHECKING:
    from parley.engine.session.session import Session

STOPPED_MARK = "[The agent was stopped here]"


class AgentToolExecutor(ToolExecutor):
    """A caller that says what its agent is doing."""

    on_call: Callable[[ToolUse], None] = lambda call: None

    async def run(self, call: ToolUse, mode: Callable[[], str]) -> ToolOutcome:
        self.on_call(call)
        return await super().run(call, mode)


class AgentRun:
    def __init__(
        self, session: Session, stats: AgentStats, task: AgentTask, kind: AgentDefinition, setup: AgentSetup, log: Log
    ) -> None:
        self._session = session
        self._stats = stats
        self._task = task
        self._agent: Json = {"agent_id": task.id, "agent_type": task.call.subagent_type}
        self._forwarder = SubagentForwarder(
            session.host.send, task, forwards_text=lambda: session.forwards_subagent_text
        )
        self._resources = AgentResources(session, task.call.subagent_type, kind) if has_resources(kind) else None
        self.conversation = task.conversation = self._make_conversation(setup, log)

    def _make_conversation(self, setup: AgentSetup, log: Log) -> Conversation:
        session, task = self._session, self._task
        executor = AgentToolExecutor(
            setup.config.tools,
            session.gate,
            setup.config.tool_context,
            session.hooks,
            session.config.warn,
            agent=self._agent,
        )
        executor.on_call = self._send_progress
        conversation = Conversation(
            setup.config.with_log(log),
            Journal(log, session.clock, Grants(session.id, session.config.cwd)),
            self._forwarder.forward,
            ledger=session.ledger,
            tool_executor=executor,
            models=session.models,
            mode=setup.mode,
            hooks=session.hooks,
            parent_tool_use_id=task.tool_use_id,
        )
        conversation.model = setup.model
        conversation.transcript_path = session.config.storage.agent_transcript_path(task.id)
        return conversation

    def load_history(self) -> None:
        """Know what it said in earlier runs. What those cost is on the session's bill already. Raises SessionError."""
        conversation, config = self.conversation, self._session.config
        conversation.journal.load(
            Ledger(config.model.prices, config.limits.budget, config.clock.monotonic), config.warn
        )
        conversation.close_interrupted_calls()

    def make_turn(self, text: str) -> Turn:
        conversation = self.conversation
        prompt = Prompt(content=[{"type": "text", "text": text}], uuid=self._session.clock.new_uuid())
        turn = self._task.turn = Turn(conversation, [prompt])
        return turn

    async def _run_turn(self, turn: Turn) -> TurnOutcome:
        """Begin with the prompt, then loop; messages to the agent join the turn."""
        async with turn.running():
            self.conversation.append_user(
                *(Text.of(block["text"]) for prompt in turn.prompts for block in prompt.content)
            )
            await turn.begin()
            while (ended := await turn.step()) is None:
                messages, self._task.messages = self._task.messages, []
                for message in messages:
                    self.conversation.append_user(Text.of(message))
            turn.end(ended)
        return turn.outcome

    # Its life.

    async def watch(self, turn: Turn) -> None:
        task = self._task
        try:
            ended = await self._run_guarded(turn)
        except asyncio.CancelledError:
            self._stats.killed["user"] += 1
            self._forwarder.mute()
            self._close(STOPPED_MARK)
            raise
        assert task.turn is not None
        task.is_done = True
        task.finish(ended, task.turn)
        self._stats.record_end(task.failed)
        self._close("")
        task.is_worktree_kept = await self._session.get_subagents().worktrees.leave(task.id)
        status = "failed" if task.failed else "completed"
        self._session.tasks.finish(task, status, task.text or task.error, task.notification_text(status))

    async def _run_guarded(self, turn: Turn) -> TurnOutcome:
        """Live so that it ends with an outcome, come what may."""
        try:
            return await self._run(turn)
        except SessionError as exc:
            return outcome.failed(str(exc))
        except Exception as exc:
            self._session.config.warn("".join(traceback.format_exception(exc)))
            return outcome.failed(f"internal error: {type(exc).__name__}: {exc}")

    async def _run(self, turn: Turn) -> TurnOutcome:
        """Its whole life, with all that it brings."""
        task, resources = self._task, self._resources
        try:
            if resources is not None:
                turn.hook_feedback.contexts += await resources.open(task.id, self.conversation.config.tools)
            dispatcher = self._session.hooks.dispatcher
            if dispatcher is not None:
                turn.hook_feedback.contexts += await dispatcher.turn_hooks.start_subagent(self._agent)
            ended = await self._run_turn(turn)
            while task.messages and not ended.is_error:
                letters, task.messages = task.messages, []
                ended = await self._run_turn(self.make_turn("\n\n".join(letters)))
            return ended
        finally:
            if resources is not None:
                resources.close()

    def _close(self, reason: str) -> None:
        """Leave a record in which every call has its result, and nothing open."""
        task, conversation, session = self._task, self.conversation, self._session
        try:
            if reason:
                if task.turn is not None:
                    task.turn.tool_batch.send_finished()
                conversation.close_open_calls(reason)
        except SessionError as exc:
            session.config.warn(str(exc))
        if not task.in_background and session.turn is not None and task.turn is not None:
            session.turn.tool_batch.denials += task.turn.tool_batch.denials
        conversation.config.storage.log.close()
        task.release()

    def _send_progress(self, tool: ToolUse) -> None:
        task = self._task
        task.count_call(tool.name)
        self._session.send(
            TaskProgress(
                task_id=task.id,
                run_id=task.run_id,
                tool_use_id=task.tool_use_id,
                description=describe_activity(tool),
                subagent_type=task.call.subagent_type,
                usage=task.usage(),
                last_tool_name=tool.name,
            )
        )
