"""A subagent as a background task: its call, its usage, and the output for its caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, get_args

from parley.engine.accounting.ledger import blank_usage
from parley.engine.context.conversation import Conversation
from parley.engine.tasks.manager import SessionTask, TaskInfo
from parley.engine.turn.outcome import TurnOutcome
from parley.engine.turn.turn import Turn
from parley.protocol.base import UNSET, Json, Struct
from parley.protocol.messages.system import TaskUsage
from parley.tools.agent import AgentInput
from parley.tools.base import ToolOutput
from parley.tools.catalog import Counter, find_traits
from parley.workspace.base import Worktree

SUMMARY_CHARS = 1000
COUNTERS: tuple[Counter, ...] = get_args(Counter)


class Parent(Struct, frozen=True, kw_only=True):
    """The subagent that calls another."""

    id: str
    depth: int
    conversation: Conversation


class AgentLaunch(Struct, frozen=True, kw_only=True):
    """How an agent was started."""

    call: AgentInput
    parent: Parent | None = None
    """None if the session itself started it."""
    in_background: bool
    can_continue: bool = False
    """The caller can send it messages."""
    worktree: Worktree | None = None
    """Its own checkout, if it has one."""


class AgentTask(SessionTask):
    kind: ClassVar[str] = "local_agent"

    def __init__(self, info: TaskInfo, launch: AgentLaunch, clock: Callable[[], float]) -> None:
        super().__init__(info)
        parent = launch.parent
        self.call = launch.call
        self.depth = 1 if parent is None else parent.depth + 1
        self._parent_id = None if parent is None else parent.id
        self.in_background = launch.in_background
        self._clock = clock
        self._can_continue = launch.can_continue
        self.worktree = launch.worktree
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
