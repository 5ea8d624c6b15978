"""One run of a subagent: from its first prompt, or a message that resumes it, to the output for its caller.

    run = AgentRun(own, commands, task, setup, stats, worktrees)
    tasks.register(task, asyncio.create_task(run.watch(run.make_turn(prompt))))

Messages that arrive during the run (`task.messages`) are appended before the next model call; later ones start
another turn. In every case, the log has a result for every call, and the task ends.

    AgentTask            the agent as a background task: its call, its usage, and the output for its caller
    SubagentForwarder    what the client receives of its messages
    ProgressSummaries    says what it does, for clients that want it: `summary` in `task_progress`
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable
from typing import ClassVar, get_args

import msgspec
from msgspec.structs import replace

from parley.engine.agents.setup import AgentResources, AgentSetup, Parent, has_resources
from parley.engine.agents.worktrees import AgentWorktrees
from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import ClientDeclarations, Conversation
from parley.engine.context.models import ModelSelection, SideQuery, user_messages
from parley.engine.ledger import Ledger, blank_usage
from parley.engine.session.journal import Grants, Journal
from parley.engine.session.prompts import Prompt
from parley.engine.session.recover import recover
from parley.engine.tasks.manager import SessionTask, TaskInfo
from parley.engine.turn import outcome
from parley.engine.turn.outcome import TurnOutcome
from parley.engine.turn.tool_executor import ToolExecutor, ToolOutcome
from parley.engine.turn.turn import Turn
from parley.errors import ModelError, SessionError
from parley.protocol.base import UNSET, Json, Message, sanitize
from parley.protocol.blocks import Text, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.dialects import AnswerComplete
from parley.protocol.messages.notices import ToolProgress
from parley.protocol.messages.system import ApiRetry, PermissionDenied, TaskProgress, TaskUsage
from parley.tools.agent import AgentInput
from parley.tools.base import ToolOutput
from parley.tools.catalog import Counter as CounterName
from parley.tools.catalog import describe_activity, find_traits
from parley.workspace.base import Worktree

SUMMARY_CHARS = 1000
COUNTERS: tuple[CounterName, ...] = get_args(CounterName)


class AgentTask(SessionTask):
    kind: ClassVar[str] = "local_agent"

    def __init__(
        self,
        info: TaskInfo,
        call: AgentInput,
        parent: Parent | None,
        clock: Callable[[], float],
        *,
        in_background: bool,
        can_continue: bool = False,
        worktree: Worktree | None = None,
    ) -> None:
        """`parent` is None if the session itself starts it. `can_continue`: the caller can send it messages."""
        super().__init__(info)
        self.call = call
        self.depth = 1 if parent is None else parent.depth + 1
        self._parent_id = None if parent is None else parent.id
        self.in_background = in_background
        self._clock = clock
        self._can_continue = can_continue
        self.worktree = worktree
        """Its own checkout, if it has one."""
        self.is_worktree_kept = False
        """The worktree has changes and was kept."""
        self._started_at = clock()
        self._seconds: float | None = None
        self._tokens = 0
        self._last_usage: Json = {}
        self._calls: list[str] = []
        self._model = ""
        self.conversation: Conversation | None = None
        self.turn: Turn | None = None
        self.messages: list[str] = []
        """Messages that it has not received yet."""
        self.is_done = False
        """The last turn has ended."""
        self.text = ""
        """Its last text."""

    @property
    def is_ending(self) -> bool:
        """Whether it has finished, but still holds resources."""
        return (self.is_done or self.finished.is_set()) and self.watcher is not None and not self.watcher.done()

    @property
    def failed(self) -> bool:
        return bool(self.error)

    def json(self) -> Json:
        found = {**super().json(), "subagent_type": self.call.subagent_type}
        return found if self._parent_id is None else {**found, "parent_task_id": self._parent_id}

    def log_fields(self) -> Json:
        return {} if self.worktree is None else {"worktree": self.worktree.path}

    def cwd(self) -> str | None:
        return None if self.conversation is None else self.conversation.tool_context.state.cwd

    def start_fields(self) -> Json:
        return {
            "subagent_type": self.call.subagent_type,
            "spawn_depth": self.depth,
            "prompt": self.call.prompt,
            "parent_task_id": UNSET if self._parent_id is None else self._parent_id,
        }

    def count_call(self, name: str) -> None:
        self._calls.append(name)

    def usage(self) -> TaskUsage:
        tokens = self.turn.model_call.context_tokens if self.turn is not None else self._tokens
        seconds = self._clock() - self._started_at if self._seconds is None else self._seconds
        return TaskUsage(total_tokens=tokens, tool_uses=len(self._calls), duration_ms=round(seconds * 1000))

    def finish(self, outcome: TurnOutcome, turn: Turn) -> None:
        """Store the outcome for the caller."""
        self._seconds = self._clock() - self._started_at
        self._last_usage = turn.model_call.accumulator.final_usage if turn.model_call.accumulator.started else {}
        final_text = turn.model_call.final_text()
        if not outcome.is_error:
            self.text = outcome.text if isinstance(outcome.text, str) else final_text
            return
        errors = outcome.errors if isinstance(outcome.errors, list) else []
        self.error = "; ".join(errors) or (outcome.text if isinstance(outcome.text, str) else "") or outcome.subtype
        self.text = final_text if final_text != self.error else ""

    def release(self) -> None:
        """Drop what is needed only while the agent runs."""
        if self.turn is not None:
            self._tokens = self.turn.model_call.context_tokens
        if self.conversation is not None:
            self._model = self.conversation.model.display_name
        self.turn = self.conversation = None
        self.messages = []
        self.record.close()

    @property
    def model(self) -> str:
        return self._model if self.conversation is None else self.conversation.model.display_name

    # Output for the caller.

    def launch_output(self) -> ToolOutput:
        text = (
            f"Async agent launched successfully. Its id is {self.id}. You are notified when it is done: continue "
            f"with other work, or end your turn. Its output goes to {self.output_file}.{self._continue_hint()}"
        )
        detail = {
            "isAsync": True,
            "status": "async_launched",
            "agentId": self.id,
            "description": self.description,
            "resolvedModel": self.model,
            "prompt": self.call.prompt,
            "outputFile": self.output_file,
            "canReadOutputFile": True,
            "canContinueAgent": self._can_continue,
        }
        return ToolOutput(content=[{"type": "text", "text": text}], detail=detail)

    def output(self) -> ToolOutput:
        if self.failed:
            last = f"\nIts last text: {self.text}" if self.text else ""
            text = f"The agent failed: {self.error}{self._worktree_hint()}{last}"
            return ToolOutput(content=text, detail=f"Error: {text}", is_error=True)
        used = list(dict.fromkeys(self._calls))
        usage = self.usage()
        detail = {
            "status": "completed",
            "prompt": self.call.prompt,
            "agentId": self.id,
            "agentType": self.call.subagent_type,
            "toolsUsed": used,
            "content": [{"type": "text", "text": self.text}],
            "resolvedModel": self.model,
            "totalDurationMs": usage.duration_ms,
            "totalTokens": usage.total_tokens,
            "totalToolUseCount": usage.tool_uses,
            "usage": {**blank_usage(), **self._last_usage},
            "toolStats": self._statistics(),
            "canContinueAgent": self._can_continue,
        }
        if self.worktree is not None and self.is_worktree_kept:
            detail |= {"worktreePath": self.worktree.path, "worktreeBranch": self.worktree.branch}
        way = f"{self._worktree_hint()}{self._continue_hint()}"
        done = f"[Subagent hand-back] Agent {self.id} ({self.call.subagent_type}) is done.{way}"
        text = f"{done} It says:\n{self.text}"
        return ToolOutput(content=[{"type": "text", "text": text}], detail=detail)

    def _continue_hint(self) -> str:
        return f" SendMessage to {self.id} reaches it." if self._can_continue else ""

    def _worktree_hint(self) -> str:
        if self.worktree is None:
            return ""
        if not self.is_worktree_kept:
            return " It changed nothing in its git worktree, which was removed."
        return f" Its changes are in the git worktree {self.worktree.path}, on the branch {self.worktree.branch}."

    def _statistics(self) -> Json:
        counts: Json = dict.fromkeys((*COUNTERS[:-1], "linesAdded", "linesRemoved", COUNTERS[-1]), 0)
        for name in self._calls:
            counts[find_traits(name).counter] += 1
        return counts

    def notification_text(self, status: str) -> str:
        """The text for the turn that reports the end of the agent."""
        how = f"failed: {self.error}" if self.failed else "is done"
        report = f" It says:\n{self.text}" if self.text else ""
        return f"The agent {self.id} ({self.description}) {how}.{self._worktree_hint()}{report}"


MAX_LINES = 12
MAX_LINE_CHARS = 400
MAX_SUMMARY_CHARS = 120
SUMMARY_QUESTION = """\
Below are the task of an agent and its last steps. What is it doing right now?
Answer with that alone, in three to eight words and the present tense, such as: Reading the tests of the parser

<task>
{task}
</task>
<steps>
{steps}
</steps>"""
REQUESTED = {True: "background", False: "foreground", None: "unset"}
AGENT = "Agent"
"""The tool whose calls start agents."""


class ProgressSummaries:
    def __init__(
        self,
        task: AgentTask,
        conversation: Conversation,
        side_query: SideQuery,
        send: Callable[[Message], None],
    ) -> None:
        self._task = task
        self._conversation = conversation
        self._side_query = side_query
        self._send = send

    async def run(self) -> None:
        """Send summaries until cancelled."""
        conversation, seen, interval = self._conversation, 0, self._conversation.limits.summary_seconds
        while True:
            await asyncio.sleep(interval)
            entries = len(conversation.journal.history.list_entries())
            if entries == seen:
                continue
            seen = entries
            try:
                text = await self._summarize()
            except ModelError as exc:
                conversation.config.warn(f"the progress of agent {self._task.id} cannot be summarized: {exc}")
                continue
            if text:
                self._send_progress(text)

    async def _summarize(self) -> str:
        """Raises ModelError."""
        question = SUMMARY_QUESTION.format(task=self._task.call.prompt[:MAX_LINE_CHARS], steps=self._last_steps())
        blocks = await self._side_query.converse(self._conversation.model, "", user_messages(question), [])
        text = "".join(block.get("text") or "" for block in blocks if block.get("type") == "text")
        line: str = sanitize(" ".join(text.split()).strip("\"'"))
        return line[:MAX_SUMMARY_CHARS]

    def _last_steps(self) -> str:
        messages = self._conversation.journal.history.render()
        lines = [line for message in messages[1:] for line in describe_blocks(message)]
        return "\n".join(lines[-MAX_LINES:]) or "(none yet)"

    def _send_progress(self, text: str) -> None:
        task = self._task
        self._send(
            TaskProgress(
                task_id=task.id,
                run_id=task.run_id,
                tool_use_id=task.tool_use_id,
                description=task.description,
                subagent_type=task.call.subagent_type,
                usage=task.usage(),
                summary=text,
            )
        )


def describe_blocks(message: Json) -> list[str]:
    """One short line for each text and tool call of a message."""
    lines = []
    for block in message["content"]:
        if block.get("type") == "text" and message["role"] == "assistant":
            lines.append(f"it says: {block['text']}")
        elif block.get("type") == "tool_use":
            lines.append(f"it calls {block['name']} {block.get('input')}")
    return [" ".join(line.split())[:MAX_LINE_CHARS] for line in lines]


class AgentStats:
    def __init__(self) -> None:
        self._requested = Counter(dict.fromkeys(REQUESTED.values(), 0))
        self._by_type: Counter[str] = Counter()
        self._in_background = self._max_depth = self._nested = self._completed = self._failed = 0
        self.killed = {"parent": 0, "user": 0, "system": 0}
        self.refused = {"depth_limit": 0, "concurrency_limit": 0, "budget": 0}

    def record_start(self, call: AgentInput, task: AgentTask) -> None:
        self._requested[REQUESTED[call.run_in_background]] += 1
        self._by_type[call.subagent_type] += 1
        self._in_background += task.in_background
        self._max_depth = max(self._max_depth, task.depth)
        self._nested += task.depth > 1

    def record_end(self, failed: bool) -> None:
        self._failed += failed
        self._completed += not failed

    def json(self) -> Json:
        return {
            "spawned": sum(self._requested.values()),
            "requested": dict(self._requested),
            "started_in_background": self._in_background,
            "max_depth": self._max_depth,
            "spawned_by_subagents": self._nested,
            "completed": self._completed,
            "failed": self._failed,
            "killed": dict(self.killed),
            "refused": dict(self.refused),
            "by_type": dict(self._by_type),
        }


class SubagentForwarder:
    def __init__(
        self,
        send: Callable[[Message], None],
        task: AgentTask,
        declared: ClientDeclarations,
        new_uuid: Callable[[], str],
    ) -> None:
        self._send = send
        self._new_uuid = new_uuid
        self._task = task
        self._declared = declared
        self._is_muted = False

    def mute(self) -> None:
        """Forward nothing more: the client was told that the agent ended."""
        self._is_muted = True

    def forward(self, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Assistant):
                self._append_output(message)
            if isinstance(message, ApiRetry) and not self._is_muted:
                self._send(self._describe_retry(message))
            if not self._is_muted and self._is_forwarded(message):
                self._send(self._attribute(message))

    def _describe_retry(self, retry: ApiRetry) -> ToolProgress:
        """The progress of the call that started the agent: its model call failed and will be retried."""
        task = self._task
        return ToolProgress(
            tool_use_id=task.tool_use_id,
            tool_name=AGENT,
            parent_tool_use_id=None,
            elapsed_time_seconds=task.usage().duration_ms / 1000,
            task_id=task.id,
            subagent_type=task.call.subagent_type,
            subagent_retry={
                "agent_id": task.id,
                "attempt": retry.attempt,
                "max_retries": retry.max_retries,
                "retry_delay_ms": retry.retry_delay_ms,
                "error_status": retry.error_status,
                "error_category": retry.error,
            },
            session_id=retry.session_id,
            uuid=self._new_uuid(),
        )

    def _append_output(self, message: Assistant) -> None:
        """Write the agent's text to its output file."""
        for block in message.message.content:
            if isinstance(block, Text):
                self._task.record.take(block.text.encode() + b"\n")

    def _is_forwarded(self, message: Message) -> bool:
        if isinstance(message, Assistant):
            blocks = message.message.content
            if any(isinstance(block, ToolUse) for block in blocks) or self._declared.forwards_text:
                return True
            return self._task.in_background and any(isinstance(block, Text) for block in blocks)
        if isinstance(message, User):
            content = message.message.content
            if isinstance(content, list) and any(isinstance(block, ToolResult) for block in content):
                return True
            return message.isSynthetic is not True and (not self._task.in_background or self._declared.forwards_text)
        # Dialects that buffer an answer until it is complete buffer that of the session, not of an agent.
        return not isinstance(message, AnswerComplete)

    def _attribute(self, message: Message) -> Message:
        task = self._task
        if isinstance(message, Assistant):
            return msgspec.structs.replace(message, **self._attribution())
        if isinstance(message, User):
            return msgspec.structs.replace(message, tool_use_result=UNSET, **self._attribution())
        if isinstance(message, PermissionDenied):
            return msgspec.structs.replace(message, agent_id=task.id)
        if isinstance(message, ToolProgress):
            kind, place = task.call.subagent_type, task.tool_use_id
            return msgspec.structs.replace(message, parent_tool_use_id=place, subagent_type=kind, task_id=task.id)
        return message

    def _attribution(self) -> dict[str, str]:
        task = self._task
        return {"agent_id": task.id, "subagent_type": task.call.subagent_type, "task_description": task.description}


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
