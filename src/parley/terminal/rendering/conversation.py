"""The transcript of a conversation: prompts, answers, calls with their diffs and work lists, subagents.

A call is one line; `last_output` has the whole output of the last one. The calls of a subagent have no lines of their
own: the line of the agent counts its steps and tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.protocol.blocks import Text, Thinking, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.occasional import CompactBoundary
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import TaskNotification, TaskProgress, TaskStarted, TaskUsage
from parley.terminal.rendering.calls import CallLines, describe, format_seconds, format_whole, spinner_frame
from parley.terminal.rendering.details import (
    WorkList,
    changed_lines,
    name_images,
    output_text,
    paint_diff,
)
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import reveal_line, reveal_text, shorten, wrap
from parley.terminal.rendering.transcript import Transcript
from parley.tools.catalog import find_traits

MAX_DIFF_LINES = 24
MAX_OUTPUT_LINES = 3
"""How much of the output of a command is shown below its line."""
MAX_KEPT_CHARS = 2_000_000
"""How much of an output is kept to be shown in full."""
PROMPT_MARK = "> "
INTERRUPTED = "[Request interrupted by user"
"""How the engine tells the model that a turn was interrupted."""
LOCAL_OUTPUT = "<local-command-stdout>"
"""How it tells the model what a command of the person did."""


class RunningAgent:
    """A subagent or a background task."""

    def __init__(self, title: str, started_at: float) -> None:
        self.title = title
        self.started_at = started_at
        self.activity = ""
        self.steps = 0
        self.tokens = 0

    def figures(self, seconds: str) -> str:
        parts = [f"{self.steps} step{'s'[: self.steps != 1]}"] if self.steps else []
        parts += [f"{self.tokens:,} tokens"] if self.tokens else []
        return " · ".join([*parts, seconds])


class ConversationTranscript(Transcript):
    def __init__(
        self,
        print_lines: Callable[[list[str]], None],
        styles: Styles,
        width: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(print_lines, styles, width, clock)
        self.calls: AgentCallLines = AgentCallLines(styles, width, clock)
        self.work = WorkList()
        self.last_output: tuple[str, str] | None = None
        """The last call with an output: its description, and the output in full."""
        self.last_thinking = ""
        self.seen_diffs: set[str | None] = set()
        """The calls whose changes were shown with a question."""
        self.echoes = True
        """Whether prompts are printed when they are sent. A terminal that edits lines itself shows them already."""
        self.own_prompts: set[str] = set()
        """The uuids of prompts that were printed when they were sent."""

    def show_prompt(self, text: str, note: str = "") -> None:
        """A prompt, as it was sent."""
        self.finish_answer()
        lines = wrap(reveal_text(text), max(10, self._width() - len(PROMPT_MARK)))
        marked = [f"{PROMPT_MARK if index == 0 else '  '}{line}" for index, line in enumerate(lines)]
        self._printed = self._printed and "note"  # an empty line before each prompt
        self.print("prompt", [*map(self.styles.bold, marked), *([self.styles.dim(f"  {note}")] if note else [])])

    def show_question(self, lines: list[str], *, is_new: bool = False) -> None:
        """Lines of a question, or of its answer. There is an empty line before a new question."""
        self.finish_answer()
        self._printed = self._printed and ("note" if is_new else "call")
        self.print("call", lines)

    def note(self, text: str) -> None:
        """A remark of the terminal itself."""
        self.print("note", [self.styles.dim(line) for line in wrap(reveal_text(text), self._width())])

    def settle(self) -> None:
        """What was shown is over: nothing is awaited."""
        self.finish_answer()
        self.calls.forget()
        self.enter("")

    @property
    def is_moving(self) -> bool:
        return bool(self.awaited) or self.calls.is_moving

    @property
    def awaited(self) -> str:
        return "" if self.calls.asked else self.phase  # the person is awaited

    # Messages.

    def _show_assistant(self, message: Assistant) -> None:
        parent = message.parent_tool_use_id if isinstance(message.parent_tool_use_id, str) else None
        if parent is not None:
            for block in message.message.content:
                if isinstance(block, ToolUse):
                    self.calls.step(parent, describe(block))
            return
        for block in message.message.content:
            if isinstance(block, Thinking):
                self.last_thinking = block.thinking
        super()._show_assistant(message)

    def _show_user(self, message: User) -> None:
        if isinstance(message.parent_tool_use_id, str):
            return
        content = message.message.content
        if isinstance(content, str) or not any(isinstance(block, ToolResult) for block in content):
            self._show_other_prompt(message)
            return
        metas = message.tool_result_meta if isinstance(message.tool_result_meta, list) else []
        for block in content:
            if isinstance(block, ToolResult):
                meta = next((meta for meta in metas if meta.get("id") == block.tool_use_id), {})
                running = self.calls.running.get(block.tool_use_id)
                self.print("call", self.calls.finish(block, meta))
                if running is not None and not running.is_dialog:
                    self.print("call", self._detail(running.call, block, message.tool_use_result))
        if not self.calls.running:
            self.enter("Waiting for the model")

    def _show_other_prompt(self, message: User) -> None:
        """A prompt that was sent by another client of the session, or in an earlier turn."""
        if message.isSynthetic is True or message.uuid in self.own_prompts:
            return
        content = message.message.content
        texts = [content] if isinstance(content, str) else [block.text for block in content if isinstance(block, Text)]
        if "".join(texts).startswith((INTERRUPTED, LOCAL_OUTPUT)):
            return  # the result, or the command, says it
        images = name_images(None if isinstance(content, str) else [block.json for block in content])
        if any(text.strip() for text in texts) or images:
            self.show_prompt("\n".join(texts), " ".join(images))

    def _detail(self, call: ToolUse, result: ToolResult, detail: Any) -> list[str]:
        """What is shown below the line of a call."""
        traits, text = find_traits(call.name), output_text(result.content)
        if text.strip():
            self.last_output = describe(call), text[:MAX_KEPT_CHARS]
        if result.is_error:
            return []
        if traits.work_list and self.work.update(call.input, detail):
            return self.work.lines(self.styles, self._width())
        if call.id in self.seen_diffs:
            return []
        if changed := changed_lines(detail):
            return paint_diff(changed, self.styles, self._width(), MAX_DIFF_LINES)
        lines = [f"    {self.styles.dim(line)}" for line in name_images(result.content)]
        if traits.effect == "runs_commands":
            lines += self._excerpt(text)
        return lines

    def _excerpt(self, text: str) -> list[str]:
        """The first lines of an output, and how many there are."""
        lines = [line for line in reveal_text(text).split("\n") if line.strip()]
        shown = [
            f"    {self.styles.dim(shorten(line, max(1, self._width() - 4)))}" for line in lines[:MAX_OUTPUT_LINES]
        ]
        rest = len(lines) - len(shown)
        more = [self.styles.dim(f"    … {rest} more line{'s'[: rest != 1]} (ctrl-o shows all)")] if rest > 0 else []
        return [*shown, *more]

    def _show_task(self, message: TaskStarted) -> None:
        if message.ambient is not True:
            is_background = message.is_backgrounded is True
            call_id = message.tool_use_id if isinstance(message.tool_use_id, str) and not is_background else None
            lines = self.calls.start_agent(message.task_id, message.description, call_id)
            self.print("call", lines if is_background else [])

    def _show_progress(self, message: TaskProgress) -> None:
        self.calls.progress(message.task_id, message.description, message.usage)

    def _show_task_end(self, message: TaskNotification) -> None:
        usage = message.usage if isinstance(message.usage, TaskUsage) else None
        self.print("call", self.calls.finish_agent(message.task_id, message.status, usage))

    def _show_compaction(self, message: CompactBoundary) -> None:
        self.note("The conversation was compacted: a summary replaces the messages above.")

    def _show_result(self, message: Result) -> None:
        super()._show_result(message)
        self.results[:] = self.results[-1:]
        self.enter("")


class AgentCallLines(CallLines):
    """The lines of calls, with one line for each subagent and background task."""

    def __init__(self, styles: Styles, width: Callable[[], int], clock: Callable[[], float]) -> None:
        super().__init__(styles, width, clock)
        self._agents: dict[str, RunningAgent] = {}
        """By the id of the task, and by that of the call which waits for it."""
        self._waiting: dict[str, str] = {}
        """The call that waits for a task."""
        self.asked: set[str | None] = set()
        """The calls that wait for an answer of the person."""

    def start_agent(self, task_id: str, description: str, call_id: str | None) -> list[str]:
        agent = RunningAgent(reveal_line(description), self._clock())
        self._agents[task_id] = agent
        if call_id is not None:
            self._waiting[call_id] = task_id
            return []
        return [self._fit(0, "▸", f"In the background: {agent.title}", "")]

    def step(self, call_id: str, activity: str) -> None:
        """A call of a subagent begins."""
        agent = self._agents.get(self._waiting.get(call_id, ""))
        if agent is not None:
            agent.steps, agent.activity = agent.steps + 1, activity

    def progress(self, task_id: str, activity: str, usage: TaskUsage) -> None:
        agent = self._agents.get(task_id)
        if agent is not None:
            agent.activity, agent.tokens = reveal_line(activity), usage.total_tokens
            agent.steps = max(agent.steps, usage.tool_uses)

    def finish_agent(self, task_id: str, status: str, usage: TaskUsage | None) -> list[str]:
        agent = self._agents.get(task_id)
        if agent is None:
            return []
        if usage is not None:
            agent.tokens, agent.steps = usage.total_tokens, max(agent.steps, usage.tool_uses)
        if task_id in self._waiting.values():
            return []  # the line of the call says it
        del self._agents[task_id]
        mark = self._styles.good("✓") if status == "completed" else self._styles.bad("✗")
        figures = agent.figures(format_seconds(self._clock() - agent.started_at))
        return [self._fit(0, mark, f"In the background: {agent.title}", f"{reveal_line(status)} · {figures}")]

    def finish(self, result: ToolResult, meta: Any) -> list[str]:
        task_id = self._waiting.pop(result.tool_use_id, None)
        agent = self._agents.pop(task_id, None) if task_id is not None else None
        running = self.running.get(result.tool_use_id)
        if running is not None and running.is_dialog:
            del self.running[result.tool_use_id]
            return []  # the person has seen it and answered
        if agent is None or running is None or result.is_error or "non_execution_kind" in meta:
            return super().finish(result, meta)
        del self.running[result.tool_use_id]
        figures = agent.figures(format_seconds(self._clock() - agent.started_at))
        return [self._fit(0, self._styles.good("✓"), describe(running.call), figures)]

    def live_lines(self) -> list[str]:
        now, lines = self._clock(), []
        waiting = {call_id: self._agents[task] for call_id, task in self._waiting.items() if task in self._agents}
        for call_id, running in self.running.items():
            agent = waiting.get(call_id)
            if call_id in self.asked:
                continue
            if agent is None:
                seconds = format_whole(now - running.started_at)
                lines.append(self._fit(running.depth, spinner_frame(now), describe(running.call), seconds))
            else:
                lines.append(self._live_agent(agent, now, describe(running.call)))
        shown = {id(agent) for agent in waiting.values()}
        lines += [
            self._live_agent(agent, now, agent.title) for agent in self._agents.values() if id(agent) not in shown
        ]
        return lines

    def _live_agent(self, agent: RunningAgent, now: float, title: str) -> str:
        activity = f" · {agent.activity}" if agent.activity else ""
        return self._fit(0, spinner_frame(now), title + activity, agent.figures(format_whole(now - agent.started_at)))

    @property
    def is_moving(self) -> bool:
        return bool(self.running.keys() - self.asked or self._agents)

    def forget(self) -> None:
        """The session was replaced by another."""
        self.running.clear()
        self._agents.clear()
        self._waiting.clear()


ConversationTranscript.shown = {
    **Transcript.shown,
    Assistant: ConversationTranscript._show_assistant,
    User: ConversationTranscript._show_user,
    TaskStarted: ConversationTranscript._show_task,
    TaskProgress: ConversationTranscript._show_progress,
    TaskNotification: ConversationTranscript._show_task_end,
    CompactBoundary: ConversationTranscript._show_compaction,
    Result: ConversationTranscript._show_result,
}
