"""A conversation as lines: what is finished is printed once, what is still open is live.

    transcript = TerminalTranscript(print_lines, styles, width, clock)
    transcript.show(message)        a message of the session
    transcript.advance()            prints the lines that will not change any more, once per frame
    transcript.live_lines()         how the rest looks now

It knows nothing of the terminal. A run of one prompt and a conversation use it.

See also: `calls.py` for the lines of tool calls, `details.py` for what is shown below them, `markdown.py` for answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from parley.models.base import ModelEvent
from parley.protocol.base import UNSET, Json, Message
from parley.protocol.blocks import Text, Thinking, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, StreamEvent, User
from parley.protocol.messages.occasional import CompactBoundary
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import (
    ApiRetry,
    Informational,
    Status,
    TaskNotification,
    TaskProgress,
    TaskStarted,
    TaskUsage,
)
from parley.sdk.runtime.wording import failure_reason, retry_text, text_of
from parley.terminal.rendering.calls import CallLines, describe, format_seconds, format_whole, spinner_frame
from parley.terminal.rendering.details import WorkList, changed_lines, has_extra, name_images, output_text, paint_diff
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import reveal_line, reveal_text, shorten, wrap
from parley.tools.catalog import find_traits

PHASES = {"requesting": "Waiting for the model", "compacting": "Compacting the conversation"}
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


class Answer(Protocol):
    """The answer of the model while it arrives: what is finished is printed for good, the rest is shown live."""

    def feed(self, text: str) -> None: ...

    def take(self) -> list[str]:
        """The lines that will not change any more, each once."""

    def open_lines(self) -> list[str]:
        """How the rest looks now."""

    def finish(self) -> list[str]:
        """The lines of the rest."""


class PlainAnswer:
    """The text as it is, line by line, for an installation without the extra `tui`."""

    def __init__(self, width: Callable[[], int], paint: Callable[[str], str] = str) -> None:
        self._width = width
        self._paint = paint
        self._rest = ""

    def feed(self, text: str) -> None:
        self._rest += text

    def take(self) -> list[str]:
        finished, newline, self._rest = self._rest.rpartition("\n")
        return [self._paint(line) for line in reveal_text(finished).split("\n")] if newline else []

    def open_lines(self) -> list[str]:
        return [self._paint(line) for line in wrap(reveal_text(self._rest), self._width())] if self._rest else []

    def finish(self) -> list[str]:
        rest, self._rest = self._rest, ""
        return [self._paint(line) for line in reveal_text(rest).split("\n")] if rest else []


def make_answer(width: Callable[[], int], styles: Styles) -> Answer:
    """Formats Markdown if the extra is installed, which is imported here."""
    if not has_extra():
        return PlainAnswer(width)
    from parley.terminal.rendering.markdown import MarkdownAnswer

    return MarkdownAnswer(width, styles)


class TerminalTranscript:
    def __init__(
        self,
        print_lines: Callable[[list[str]], None],
        styles: Styles,
        width: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._print_lines = print_lines
        self.styles = styles
        self._width = width
        self._clock = clock
        self.calls = CallLines(styles, width, clock)
        self.work = WorkList()
        self._answer: Answer | None = None
        self._streamed = ""
        """The text of the block that arrives."""
        self._texts: list[str] = []
        """The texts of the model in this turn."""
        self.phase = ""
        self._since = 0.0
        self._printed = ""
        """What was printed last: `text`, `call`, `prompt`, `output` or `note`."""
        self.has_result = False
        self._warned = ""
        """The last remark of the engine in this turn. Its result may say the same."""
        self._is_retrying = False
        self.is_interrupted = False
        """The person interrupted a turn, or left the prompt with Escape."""
        self.last_output: tuple[str, str] | None = None
        """The last call with an output: its description, and the output in full."""
        self.last_thinking = ""
        self.shows_thinking = False
        """Whether thinking is shown while it arrives."""
        self.last_answer = ""
        """The text of the model in its last turn."""
        self.more_hint = ""
        """How to see the rest of an output, if there is a way."""
        self.seen_diffs: set[str | None] = set()
        """The calls whose changes were shown with a question."""
        self.echoes = True
        """Whether prompts are printed when they are sent. A terminal that edits lines itself shows them already."""
        self.own_prompts: set[str] = set()
        """The uuids of prompts that were printed when they were sent."""

    shown: dict[type[Message], Callable[[Any, Any], None]]
    """How each message is shown. Others are for programs."""

    def show(self, message: Message) -> bool:
        """Show a message; False if there is nothing to show of it."""
        show = self.shown.get(type(message))
        if show is not None:
            show(self, message)
        return show is not None

    def show_past(self, messages: Sequence[Message]) -> None:
        """Show messages of earlier turns, whose times are not known."""
        self.calls.shows_time = False
        for message in messages:
            self.show(message)
        self.calls.shows_time = True
        self.settle()

    def render(self, markdown: str) -> list[str]:
        """A whole text."""
        answer = make_answer(self._width, self.styles)
        answer.feed(markdown)
        return [*answer.take(), *answer.finish()]

    def advance(self) -> None:
        """Print what has been finished of the answer since the last frame."""
        if self._answer is not None:
            self.print("text", self._answer.take())

    def live_lines(self, hint: str = "") -> list[str]:
        """The open end of the answer, the running calls, or what is awaited. `hint` follows the latter."""
        lines = [] if self._answer is None else self._answer.open_lines()
        if lines and self._printed not in ("", "text"):
            lines = ["", *lines]
        calls = self.calls.live_lines()
        if calls or not self._awaited:
            return [*lines, *calls]
        now = self._clock()
        status = f"{spinner_frame(now)} {self._awaited}… {format_whole(now - self._since)}"
        return [*lines, self.styles.dim(shorten(status + hint, self._width()))]

    @property
    def is_moving(self) -> bool:
        """Whether the live lines change with time."""
        return bool(self._awaited) or self.calls.is_moving

    @property
    def _awaited(self) -> str:
        """What is shown as awaited; empty for nothing, or if it is the person."""
        return "" if self.calls.asked else self.phase

    # What the terminal itself prints.

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
        self.print("note", self._in_width(text, self.styles.dim))

    def warn(self, text: str) -> None:
        self.print("note", self._in_width(text, self.styles.warning))

    def _in_width(self, text: str, paint: Callable[[str], str]) -> list[str]:
        return [paint(line) for line in wrap(reveal_text(text), self._width())]

    def print(self, kind: str, lines: list[str]) -> None:
        """Print lines, with an empty line before them if they are of another kind than the last."""
        if lines:
            gap = [""] if self._printed not in ("", kind) else []
            self._printed = kind
            self._print_lines([*gap, *lines])

    def finish_answer(self) -> None:
        if self._answer is not None:
            answer, self._answer, self._streamed = self._answer, None, ""
            self.print("text", answer.take() + answer.finish())

    def enter(self, phase: str) -> None:
        if phase != self.phase:
            self.phase, self._since = phase, self._clock()

    def settle(self) -> None:
        """What was shown has ended: nothing is awaited."""
        self.finish_answer()
        self.calls.forget()
        self.enter("")

    # Messages.

    def _show_event(self, message: StreamEvent) -> None:
        if isinstance(message.parent_tool_use_id, str):
            return
        event = msgspec.json.decode(message.event, type=ModelEvent)
        match event.type:
            case "content_block_start":
                self._start_block(event.content_block or {})
            case "content_block_delta" if event.delta is not None and event.delta.type == "text_delta":
                self._feed(event.delta.text)
            case "content_block_delta" if event.delta is not None and event.delta.type == "thinking_delta":
                self._feed(event.delta.thinking)
            case "content_block_stop" | "message_stop":
                self.finish_answer()
                if self.phase == "Thinking":
                    elapsed = format_seconds(self._clock() - self._since)
                    self.print("call", [self.styles.dim(f"Thought for {elapsed}")])
                self.enter("Waiting for the model" if event.type == "content_block_stop" else "")

    def _start_block(self, block: Json) -> None:
        if self._is_retrying:
            self._is_retrying = False
            self.note("The model answers again.")
        match block.get("type"):
            case "text":
                self.enter("Answering")
                self._answer = make_answer(self._width, self.styles)
                self._feed(str(block.get("text", "")))
            case "thinking" | "redacted_thinking":
                self.enter("Thinking")
                if self.shows_thinking:
                    self._answer = PlainAnswer(self._width, self.styles.dim)
            case "tool_use":
                self.enter(f"Preparing {reveal_line(str(block.get('name', '')))}")

    def _feed(self, text: str) -> None:
        if self._answer is not None:
            self._streamed += text
            self._answer.feed(text)

    def _show_assistant(self, message: Assistant) -> None:
        parent = message.parent_tool_use_id
        for block in message.message.content:
            if isinstance(block, ToolUse) and isinstance(parent, str):
                self.calls.step(parent, describe(block))
            elif isinstance(parent, str):
                continue
            elif isinstance(block, ToolUse):
                self.finish_answer()
                self.calls.start(block)
                self.enter("")
            elif isinstance(block, Thinking):
                self.last_thinking = block.thinking
            elif isinstance(block, Text) and message.is_api_error_message is not True and message.error is UNSET:
                self._show_text(block.text, keeps_lines=message.local_command_source is not UNSET)

    def _show_text(self, text: str, *, keeps_lines: bool) -> None:
        """A complete text, which was streamed before, unless a hook or a command made it."""
        if text != self._streamed:
            self.finish_answer()
            # Two spaces before a line break keep it in Markdown.
            self.print("text", self.render(text.replace("\n", "  \n") if keeps_lines else text))
        self._texts.append(text)

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
        is_past = not self.calls.shows_time
        if message.isSynthetic is True or (message.uuid in self.own_prompts and not is_past):
            return
        content = message.message.content
        texts = [content] if isinstance(content, str) else [block.text for block in content if isinstance(block, Text)]
        if "".join(texts).startswith((INTERRUPTED, LOCAL_OUTPUT)):
            if texts[0].startswith(INTERRUPTED) and is_past:
                self.print("note", [self.styles.warning("Interrupted.")])  # no result follows that says it
            return
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
        if call.id in self.seen_diffs and self.calls.shows_time:
            return []
        if changed := changed_lines(detail):
            path = next((str(call.input[name]) for name in traits.path_fields if name in call.input), "")
            return paint_diff(changed, self.styles, self._width(), MAX_DIFF_LINES, path)
        lines = [f"    {self.styles.dim(line)}" for line in name_images(result.content)]
        if traits.effect == "runs_commands":
            lines += self._excerpt(text)
        return lines

    def _excerpt(self, text: str) -> list[str]:
        """The first lines of an output, and how many there are."""
        lines = [line for line in reveal_text(text).split("\n") if line.strip()]
        room = max(1, self._width() - 4)
        shown = [f"    {self.styles.dim(shorten(line, room))}" for line in lines[:MAX_OUTPUT_LINES]]
        rest = len(lines) - len(shown)
        more = [self.styles.dim(f"    … {rest} more line{'s'[: rest != 1]}{self.more_hint}")] if rest > 0 else []
        return [*shown, *more]

    def _show_status(self, message: Status) -> None:
        if isinstance(message.status, str):
            self.enter(PHASES.get(message.status, message.status))

    def _show_retry(self, message: ApiRetry) -> None:
        self.finish_answer()
        self.warn(f"the model call failed ({failure_reason(message)}); {retry_text(message)}")
        self._is_retrying = True

    def _show_information(self, message: Informational) -> None:
        self._warned = message.content
        self.warn(message.content)

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
        self.finish_answer()
        self.calls.running.clear()
        text = message.result if isinstance(message.result, str) else ""
        if isinstance(message.terminal_reason, str) and message.terminal_reason.startswith("aborted_"):
            self.is_interrupted = True
            self.print("note", [self.styles.warning("Interrupted.")])
        elif message.is_error is True:
            if text_of(message).removeprefix("Error: ") != self._warned:
                self.print("note", self._in_width(text_of(message), self.styles.bad))
        elif text.strip() and not "\n\n".join(self._texts).endswith(text):
            self.print("text", self.render(text))
        self._is_retrying = False
        self.last_answer = "\n\n".join(self._texts) or self.last_answer
        self._texts.clear()
        self._warned = ""
        self.has_result = True
        self.enter("")


TerminalTranscript.shown = {
    StreamEvent: TerminalTranscript._show_event,
    Assistant: TerminalTranscript._show_assistant,
    User: TerminalTranscript._show_user,
    Status: TerminalTranscript._show_status,
    ApiRetry: TerminalTranscript._show_retry,
    Informational: TerminalTranscript._show_information,
    TaskStarted: TerminalTranscript._show_task,
    TaskProgress: TerminalTranscript._show_progress,
    TaskNotification: TerminalTranscript._show_task_end,
    CompactBoundary: TerminalTranscript._show_compaction,
    Result: TerminalTranscript._show_result,
}
