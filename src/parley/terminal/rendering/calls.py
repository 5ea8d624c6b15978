"""Tool calls and background tasks as lines on the terminal.

A running call is a live line with a spinner; when it ends, one line is printed: what it did, how it ended, how long it
took. Calls of a subagent are indented below the line of the call that started it.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.protocol.base import Json, encode_json
from parley.protocol.blocks import ToolResult, ToolUse
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


def format_seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def spinner_frame(now: float) -> str:
    return SPINNER[int(now * FRAMES_PER_SECOND) % len(SPINNER)]


class RunningCall:
    """A call that has no result yet."""

    def __init__(self, call: ToolUse, depth: int, started_at: float) -> None:
        self.call = call
        self.depth = depth
        self.started_at = started_at
        self.is_announced = False
        """Whether a line about its start is printed: one that has lines of its own below it."""
        self.is_dialog = False
        """Whether the call is a question to the person, who has seen it and its answer."""


class CallLines:
    """The lines of calls and tasks."""

    def __init__(self, styles: Styles, width: Callable[[], int], clock: Callable[[], float]) -> None:
        self._styles = styles
        self._width = width
        self._clock = clock
        self.running: dict[str, RunningCall] = {}
        self.shows_time = True
        """False while messages of the past are shown."""
        self._tasks: dict[str, str] = {}
        """The background tasks that run: description by id."""

    def start(self, call: ToolUse, parent_id: str | None) -> list[str]:
        """A call begins; returns the lines to print."""
        parent = self.running.get(parent_id) if parent_id is not None else None
        depth = 0 if parent_id is None else 1 if parent is None else parent.depth + 1
        self.running[call.id] = RunningCall(call, depth, self._clock())
        return [] if parent is None else self.announce(parent)

    def announce(self, running: RunningCall) -> list[str]:
        """The line above those that belong to a call, once."""
        if running.is_announced:
            return []
        running.is_announced = True
        return [self._fit(running.depth, "▸", describe(running.call), "")]

    def resume(self, call_id: str, *, is_dialog: bool) -> None:
        """The call runs from now on: until here it waited for an answer."""
        if call_id in self.running:
            self.running[call_id].started_at = self._clock()
            self.running[call_id].is_dialog = is_dialog

    def finish(self, result: ToolResult, meta: Json) -> list[str]:
        """The line of a call that has ended. `meta` is its entry in `tool_result_meta`."""
        running = self.running.pop(result.tool_use_id, None)
        if running is None:
            return []
        styles, elapsed = self._styles, self._elapsed(running.started_at)
        if meta.get("permission_decision", {}).get("decision") == "reject":
            return self._explain(running, styles.warning("⊘"), "denied", first_line(result))
        if "non_execution_kind" in meta:
            return [self._fit(running.depth, styles.warning("⊘"), describe(running.call), "interrupted")]
        if result.is_error:
            return self._explain(running, styles.bad("✗"), f"failed{elapsed}", first_line(result))
        if running.is_dialog:
            return []
        return [self._fit(running.depth, styles.good("✓"), describe(running.call), f"ok{elapsed}")]

    def _elapsed(self, since: float) -> str:
        return f"{SEPARATOR}{format_seconds(self._clock() - since)}" if self.shows_time else ""

    def _explain(self, running: RunningCall, mark: str, outcome: str, reason: str) -> list[str]:
        """The line of a call that did not succeed; its reason is on the next line if it does not fit."""
        what, depth = describe(running.call), running.depth
        if cell_width(f"{INDENT * depth}? {what}{SEPARATOR}{outcome}: {reason}") <= self._width():
            return [self._fit(depth, mark, what, f"{outcome}: {reason}")]
        room = max(1, self._width() - len(INDENT) * (depth + 1))
        reasons = wrap(reason, room)[:MAX_REASON_LINES]
        return [
            self._fit(depth, mark, what, outcome),
            *(INDENT * (depth + 1) + self._styles.dim(line) for line in reasons),
        ]

    def live_lines(self) -> list[str]:
        """A line for every call that runs."""
        now = self._clock()
        return [
            self._fit(one.depth, spinner_frame(now), describe(one.call), format_whole(now - one.started_at))
            for one in self.running.values()
            if not (one.is_announced and self._has_children(one))
        ]

    def _has_children(self, one: RunningCall) -> bool:
        calls = list(self.running.values())
        return any(other.depth > one.depth for other in calls[calls.index(one) + 1 :])

    # Background tasks.

    def start_task(self, task_id: str, description: str) -> list[str]:
        self._tasks[task_id] = description
        return [self._fit(1, "▸", f"In the background: {reveal_line(description)}", "")]

    def finish_task(self, task_id: str, status: str) -> list[str]:
        description = self._tasks.pop(task_id, None)
        if description is None:
            return []
        styles = self._styles
        mark = styles.good("✓") if status == "completed" else styles.bad("✗")
        return [self._fit(1, mark, f"In the background: {reveal_line(description)}", reveal_line(status))]

    @property
    def tasks(self) -> list[str]:
        return list(self._tasks.values())

    def note(self, parent_id: str, text: str) -> list[str]:
        """What a subagent says, on one line."""
        parent = self.running.get(parent_id)
        above = [] if parent is None else self.announce(parent)
        depth = 1 if parent is None else parent.depth + 1
        return [*above, self._fit(depth, " ", "", reveal_line(text))]

    def _fit(self, depth: int, mark: str, what: str, outcome: str) -> str:
        """One line that fits: the end of `what` is left out, or else that of the outcome."""
        room = self._width() - len(INDENT) * depth - 2
        outcome = shorten(outcome, room)
        gap = SEPARATOR if what and outcome else ""
        what = shorten(what, max(0, room - cell_width(outcome) - len(gap)))
        return f"{INDENT * depth}{mark} {what}{self._styles.dim((gap if what else '') + outcome)}"


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


def format_whole(seconds: float) -> str:
    """Elapsed time that is counted up: it changes once a second."""
    return format_seconds(int(seconds)).replace(".0", "")
