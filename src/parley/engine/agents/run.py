"""One run of a subagent: from its first prompt, or a message that resumes it, to the output for its caller.

    run = AgentRun(own, commands, task, setup, stats, worktrees)
    tasks.register(task, asyncio.create_task(run.watch(run.make_turn(prompt))))

Messages that arrive during the run (`task.messages`) are appended before the next model call; later ones start
another turn. In every case, the log has a result for every call, and the task ends.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable

from msgspec.structs import replace

from parley.engine.accounting.ledger import Ledger
from parley.engine.agents.progress import AgentStats, SubagentForwarder
from parley.engine.agents.resources import AgentResources, has_resources
from parley.engine.agents.setup import AgentSetup
from parley.engine.agents.task import AgentTask
from parley.engine.agents.worktrees import AgentWorktrees
from parley.engine.approval.grants import Grants
from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import Conversation
from parley.engine.context.models import ModelSelection
from parley.engine.recovery.recover import recover
from parley.engine.session.journal import Journal
from parley.engine.session.prompts import Prompt
from parley.engine.turn import outcome
from parley.engine.turn.outcome import TurnOutcome
from parley.engine.turn.tool_executor import ToolExecutor, ToolOutcome
from parley.engine.turn.turn import Turn
from parley.errors import SessionError
from parley.protocol.base import Json
from parley.protocol.blocks import Text, ToolUse
from parley.protocol.messages.system import TaskProgress
from parley.tools.catalog import describe_activity

STOPPED_MARK = "[The agent was stopped here]"


class AgentToolExecutor(ToolExecutor):
    """Reports each call before it runs."""

    on_call: Callable[[ToolUse], None] = lambda call: None

    async def run(self, call: ToolUse, mode: Callable[[], str], *, may_defer: bool = False) -> ToolOutcome:
        self.on_call(call)
        return await super().run(call, mode, may_defer=may_defer)


class AgentRun:
    def __init__(
        self,
        own: Conversation,
        commands: Commands,
        task: AgentTask,
        setup: AgentSetup,
        stats: AgentStats,
        worktrees: AgentWorktrees,
    ) -> None:
        self._own = own
        """The conversation of the session."""
        self._config = own.config
        """The configuration of the session; the agent's own is in its conversation."""
        self._task = task
        self._stats = stats
        self._worktrees = worktrees
        self._agent: Json = {"agent_id": task.id, "agent_type": task.call.subagent_type}
        self._forwarder = SubagentForwarder(own.parts.outbox.send_raw, task, own.parts.declared, own.clock.new_uuid)
        self._resources = (
            AgentResources(own, commands, task.call.subagent_type, setup.kind) if has_resources(setup.kind) else None
        )
        self.conversation = task.conversation = self._make_conversation(setup)

    def _make_conversation(self, setup: AgentSetup) -> Conversation:
        own, config, task = self._own, self._config, self._task
        executor = AgentToolExecutor(
            setup.config.tools, own.parts.gate, setup.context, own.hooks, config.warn, agent=self._agent
        )
        executor.on_call = self._send_progress
        executor.aliases = own.tool_executor.aliases
        conversation = Conversation(
            setup.config,
            Journal(setup.config.storage.log, config.clock, Grants(config.identity, config.cwd)),
            self._forwarder.forward,
            executor,
            own.parts,
            ModelSelection(setup.model, setup.mode),
            parent_tool_use_id=task.tool_use_id,
        )
        session = replace(
            setup.context.session,
            pending_servers=None,
            deferred_tools=conversation.find_deferral,
            has_result=conversation.has_result,
        )
        executor.context = replace(setup.context, session=session)
        conversation.transcript_path = config.storage.agent_transcript_path(task.id)
        return conversation

    def load_history(self) -> None:
        """Load earlier runs; their cost is in the session's ledger already. Raises SessionError."""
        conversation, config = self.conversation, self._config
        journal = conversation.journal
        recover(journal, journal.log.entries(), Ledger(config.model.prices), config.warn)
        conversation.close_interrupted_calls()

    def make_turn(self, text: str) -> Turn:
        conversation = self.conversation
        prompt = Prompt(content=[{"type": "text", "text": text}], uuid=self._config.clock.new_uuid())
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
        task.is_worktree_kept = await self._worktrees.leave(task.id)
        status = "failed" if task.failed else "completed"
        self._own.parts.tasks.finish(task, status, task.text or task.error, task.notification_text(status))

    async def _run_guarded(self, turn: Turn) -> TurnOutcome:
        """Run and turn every error into an outcome."""
        try:
            return await self._run(turn)
        except SessionError as exc:
            return outcome.failed(str(exc))
        except Exception as exc:
            self._config.warn("".join(traceback.format_exception(exc)))
            return outcome.failed(f"internal error: {type(exc).__name__}: {exc}")

    async def _run(self, turn: Turn) -> TurnOutcome:
        """Run all turns, with the resources of the definition open."""
        task, resources = self._task, self._resources
        summaries = self._start_summaries()
        try:
            if resources is not None:
                turn.hook_feedback.contexts += await resources.open(task.id, self.conversation.config.tools)
            turn.hook_feedback.contexts += await self.conversation.hooks.events.start_subagent(self._agent)
            ended = await self._run_turn(turn)
            while task.messages and not ended.is_error:
                messages, task.messages = task.messages, []
                ended = await self._run_turn(self.make_turn("\n\n".join(messages)))
            return ended
        finally:
            if summaries is not None:
                summaries.cancel()
                await asyncio.gather(summaries, return_exceptions=True)
            if resources is not None:
                resources.close()

    def _start_summaries(self) -> asyncio.Task[None] | None:
        """Report what the agent does, if the client wants it."""
        parts = self._own.parts
        if not parts.declared.summarizes_agents:
            return None
        from parley.engine.agents.progress import ProgressSummaries

        summaries = ProgressSummaries(self._task, self.conversation, parts.side_query, parts.outbox.send)
        return asyncio.create_task(summaries.run())

    def _close(self, reason: str) -> None:
        """Close open calls with `reason`, close the log and release the task."""
        task, conversation = self._task, self.conversation
        try:
            if reason:
                if task.turn is not None:
                    task.turn.tool_batch.send_finished()
                conversation.close_open_calls(reason)
        except SessionError as exc:
            self._config.warn(str(exc))
        if not task.in_background and task.turn is not None:
            self._own.denials += task.turn.tool_batch.denials
        conversation.config.storage.log.close()
        task.release()

    def _send_progress(self, tool: ToolUse) -> None:
        task = self._task
        task.count_call(tool.name)
        self._own.parts.outbox.send(
            TaskProgress(
                task_id=task.id,
                run_id=task.run_id,
                tool_use_id=task.tool_use_id,
                description=describe_activity(tool.name, tool.input),
                subagent_type=task.call.subagent_type,
                usage=task.usage(),
                last_tool_name=tool.name,
            )
        )
