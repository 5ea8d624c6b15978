"""Tool calls, subagents and background tasks as lines on the terminal.

A running call is a live line with a spinner; when it ends, one line is printed: what it did, how it ended, how long it
took. The calls of a subagent have no lines of their own: the line of the agent counts its steps and tokens.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.protocol.base import Json, encode_json
from parley.protocol.blocks import ToolResult, ToolUse
from parley.protocol.messages.system import TaskUsage
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import cell_width, reveal_line, shorten, wrap
from parley.tools.catalog import JUDGED_BY_CALL, describe_activity, find_traits

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_SECOND = 10
MAX_INPUT_CHARS = 400
INDENT = "  "
WORK_LIST = "Updating the work list"
SEPARATOR = " · "
MAX_REASON_LINES = 3


class ShownCall:
    """A call that has no result yet."""

    def __init__(self, call: ToolUse, started_at: float) -> None:
        self.call = call
        self.started_at = started_at
        self.is_dialog = False
        """Whether the call is a question to the person, who has seen it and its answer."""


class RunningAgent:
    """A subagent or a background task."""

    def __init__(self, title: str, started_at: float) -> None:
        self.title = title
        self.started_at = started_at
        self.activity = ""
        self.status = "running"
        self.steps = 0
        self.tokens = 0

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    def figures(self, seconds: str) -> str:
        parts = [f"{self.steps} step{'s'[: self.steps != 1]}"] if self.steps else []
        parts += [f"{self.tokens:,} tokens"] if self.tokens else []
        return SEPARATOR.join([*parts, seconds])


class CallLines:
    """The lines of calls, with one line for each subagent and background task."""

    def __init__(self, styles: Styles, width: Callable[[], int], clock: Callable[[], float]) -> None:
        self._styles = styles
        self._width = width
        self._clock = clock
        self.running: dict[str, ShownCall] = {}
        self.shows_time = True
        """False while messages of the past are shown."""
        self.asked: set[str | None] = set()
        """The calls that wait for an answer of the person."""
        self._agents: dict[str, RunningAgent] = {}
        """By the id of the task."""
        self.background: dict[str, RunningAgent] = {}
        """The background tasks of the session by id, also those that have ended."""
        self._waiting: dict[str, str] = {}
        """The task that a call waits for."""

    def start(self, call: ToolUse) -> None:
        self.running[call.id] = ShownCall(call, self._clock())

    def resume(self, call_id: str, *, is_dialog: bool) -> None:
        """The call runs from now on: until here it waited for an answer."""
        if call_id in self.running:
            self.running[call_id].started_at = self._clock()
            self.running[call_id].is_dialog = is_dialog

    def finish(self, result: ToolResult, meta: Json) -> list[str]:
        """The line of a call that has ended. `meta` is its entry in `tool_result_meta`."""
        running = self.running.pop(result.tool_use_id, None)
        agent = self._agents.pop(self._waiting.pop(result.tool_use_id, ""), None)
        if running is None or running.is_dialog:
            return []  # the person has seen a dialog, and answered it
        styles, elapsed = self._styles, ""
        if self.shows_time:
            elapsed = f"{SEPARATOR}{format_seconds(self._clock() - running.started_at)}"
        if meta.get("permission_decision", {}).get("decision") == "reject":
            return self._explain(running, styles.warning("⊘"), "denied", first_line(result))
        if "non_execution_kind" in meta:
            return [self._fit(styles.warning("⊘"), describe(running.call), "interrupted")]
        if result.is_error:
            return self._explain(running, styles.bad("✗"), f"failed{elapsed}", first_line(result))
        outcome = f"ok{elapsed}" if agent is None else self._figures(agent)
        return [self._fit(styles.good("✓"), describe(running.call), outcome)]

    def _explain(self, running: ShownCall, mark: str, outcome: str, reason: str) -> list[str]:
        """The line of a call that did not succeed; its reason is on the next line if it does not fit."""
        what = describe(running.call)
        if cell_width(f"? {what}{SEPARATOR}{outcome}: {reason}") <= self._width():
            return [self._fit(mark, what, f"{outcome}: {reason}")]
        reasons = wrap(reason, max(1, self._width() - len(INDENT)))[:MAX_REASON_LINES]
        return [self._fit(mark, what, outcome), *(INDENT + self._styles.dim(line) for line in reasons)]

    def live_lines(self) -> list[str]:
        """A line for every call, agent and task that runs."""
        now, lines = self._clock(), []
        for call_id, running in self.running.items():
            agent = self._agents.get(self._waiting.get(call_id, ""))
            if call_id in self.asked:
                continue
            if agent is None:
                seconds = format_whole(now - running.started_at)
                lines.append(self._fit(spinner_frame(now), describe(running.call), seconds))
            else:
                lines.append(self._live_agent(agent, now, describe(running.call)))
        awaited = set(self._waiting.values())
        return lines + [
            self._live_agent(agent, now, agent.title) for id, agent in self._agents.items() if id not in awaited
        ]

    def _live_agent(self, agent: RunningAgent, now: float, title: str) -> str:
        activity = f"{SEPARATOR}{agent.activity}" if agent.activity else ""
        return self._fit(spinner_frame(now), title + activity, agent.figures(format_whole(now - agent.started_at)))

    @property
    def is_moving(self) -> bool:
        return bool(self.running.keys() - self.asked or self._agents)

    def forget(self) -> None:
        """The session was replaced by another."""
        self.running.clear()
        self._agents.clear()
        self.background.clear()
        self._waiting.clear()

    # Subagents and background tasks.

    def start_agent(self, task_id: str, description: str, call_id: str | None) -> list[str]:
        """`call_id`: the call that waits for it; None for a task in the background."""
        agent = self._agents[task_id] = RunningAgent(reveal_line(description), self._clock())
        if call_id is not None:
            self._waiting[call_id] = task_id
            return []
        self.background[task_id] = agent
        return [self._fit("▸", f"In the background: {agent.title}", "")]

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
        agent.status = status
        mark = self._styles.good("✓") if status == "completed" else self._styles.bad("✗")
        outcome = f"{reveal_line(status)}{SEPARATOR}{self._figures(agent)}"
        return [self._fit(mark, f"In the background: {agent.title}", outcome)]

    def _figures(self, agent: RunningAgent) -> str:
        return agent.figures(format_seconds(self._clock() - agent.started_at))

    def _fit(self, mark: str, what: str, outcome: str) -> str:
        """One line that fits: the end of `what` is left out, or else that of the outcome."""
        room = self._width() - 2
        outcome = shorten(outcome, room)
        gap = SEPARATOR if what and outcome else ""
        what = shorten(what, max(0, room - cell_width(outcome) - len(gap)))
        return f"{mark} {what}{self._styles.dim((gap if what else '') + outcome)}"


def describe(call: ToolUse) -> str:
    """What a call does, as its tool declares it, and the input that it is about."""
    traits = find_traits(call.name)
    if traits.work_list:
        return WORK_LIST
    if traits.plan_field:
        return "Presenting a plan"
    if traits.effect == "session" and isinstance(questions := call.input.get("questions"), list):
        texts = [str(question.get("question", "")) for question in questions if isinstance(question, dict)]
        return reveal_line(f"Asking: {' '.join(texts)}"[:MAX_INPUT_CHARS])
    text = describe_activity(call.name, call.input)
    subject = call.input.get(traits.subject_field)
    if traits.effect in JUDGED_BY_CALL and isinstance(subject, str) and subject not in text:
        text = f"{text}: {subject[:MAX_INPUT_CHARS]}"
    elif not traits.activity_fields and call.input:
        text = f"{text} {encode_json(call.input).decode()[:MAX_INPUT_CHARS]}"
    return reveal_line(text)


def first_line(result: ToolResult) -> str:
    """The first line of the text of a result."""
    content = result.content
    if isinstance(content, list):
        content = "\n".join(str(block["text"]) for block in content if isinstance(block.get("text"), str))
    lines = [line for line in (content or "").splitlines() if line.strip()]
    return reveal_line(lines[0][:MAX_INPUT_CHARS]) if lines else "no reason was given"


def spinner_frame(now: float) -> str:
    return SPINNER[int(now * FRAMES_PER_SECOND) % len(SPINNER)]


def format_seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def format_whole(seconds: float) -> str:
    """Elapsed time that is counted up: it changes once a second."""
    return format_seconds(int(seconds)).replace(".0", "")
