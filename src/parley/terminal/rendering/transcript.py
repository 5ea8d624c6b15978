"""A conversation as lines: what is finished is printed once, what is still open is live.

    transcript = Transcript(print_lines, styles, width, clock)
    transcript.show(message)        a message of the session
    transcript.advance()            prints the lines that will not change any more, once per frame
    transcript.live_lines()         how the rest looks now

It knows nothing of the terminal. The one-shot view of the CLI and the conversation use it.

See also: `answer.py` for the text of the model, `calls.py` for tool calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import msgspec

from parley.protocol.base import UNSET, Message, Struct
from parley.protocol.blocks import Text, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, StreamEvent, User
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry, Informational, Status, TaskNotification, TaskStarted
from parley.sdk.runtime.wording import failure_reason, retry_text, text_of
from parley.terminal.rendering.answer import Answer, PlainAnswer
from parley.terminal.rendering.calls import CallLines, format_seconds, format_whole, spinner_frame
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import reveal_line, reveal_text, shorten, wrap

EXTRA_MODULES = ("rich", "markdown_it")
PHASES = {"requesting": "Waiting for the model", "compacting": "Compacting the conversation"}


class StreamDelta(Struct, frozen=True):
    type: str = ""
    text: str = ""


class StartedBlock(Struct, frozen=True):
    type: str = ""
    name: str = ""
    text: str = ""


class ModelStreamEvent(Struct, frozen=True):
    """The parts of a stream event that are shown."""

    type: str = ""
    delta: StreamDelta = StreamDelta()
    content_block: StartedBlock = StartedBlock()


@cache
def has_extra() -> bool:
    """Whether what formats Markdown is installed. Found without importing it, which another thread may be doing."""
    return all(find_spec(name) is not None for name in EXTRA_MODULES)


def make_answer(width: Callable[[], int], styles: Styles) -> Answer:
    """Formats Markdown if the extra is installed, which is imported here."""
    if not has_extra():
        return PlainAnswer(width)
    from parley.terminal.rendering.markdown import MarkdownAnswer

    return MarkdownAnswer(width, styles)


class Transcript:
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
        self._answer: Answer | None = None
        self._streamed = ""
        """The text of the block that arrives."""
        self._texts: list[str] = []
        """The texts of the model in this turn."""
        self.phase = ""
        self._since = 0.0
        self._printed = ""
        """What was printed last: `text`, `call` or `note`."""
        self.results: list[Result] = []
        self.is_interrupted = False
        """The person interrupted a turn, or left the prompt with Escape."""

    shown: dict[type[Message], Callable[[Any, Any], None]]
    """How each message is shown. Others are for programs."""

    def show(self, message: Message) -> bool:
        """Show a message; False if there is nothing to show of it."""
        show = self.shown.get(type(message))
        if show is not None:
            show(self, message)
        return show is not None

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
        if calls or not self.awaited:
            return [*lines, *calls]
        now = self._clock()
        status = f"{spinner_frame(now)} {self.awaited}… {format_whole(now - self._since)}"
        return [*lines, self.styles.dim(shorten(status + hint, self._width()))]

    def printed_question(self) -> None:
        """Something else printed a question, and its answer."""
        self._printed = "call"

    @property
    def is_moving(self) -> bool:
        """Whether the live lines change with time."""
        return bool(self.awaited or self.calls.running)

    @property
    def awaited(self) -> str:
        """What is shown as awaited; empty for nothing."""
        return self.phase

    # Messages.

    def _show_event(self, message: StreamEvent) -> None:
        if isinstance(message.parent_tool_use_id, str):
            return
        event = msgspec.json.decode(message.event, type=ModelStreamEvent)
        match event.type:
            case "content_block_start":
                self._start_block(event.content_block)
            case "content_block_delta" if event.delta.type == "text_delta":
                self._feed(event.delta.text)
            case "content_block_stop" | "message_stop":
                self.finish_answer()
                if self.phase == "Thinking":
                    elapsed = format_seconds(self._clock() - self._since)
                    self.print("call", [self.styles.dim(f"Thought for {elapsed}")])
                self.enter("Waiting for the model" if event.type == "content_block_stop" else "")

    def _start_block(self, block: StartedBlock) -> None:
        if block.type == "text":
            self.enter("Answering")
            self._answer = make_answer(self._width, self.styles)
            self._feed(block.text)
        elif block.type in ("thinking", "redacted_thinking"):
            self.enter("Thinking")
        elif block.type == "tool_use":
            self.enter(f"Preparing {reveal_line(block.name)}")

    def _feed(self, text: str) -> None:
        if self._answer is not None:
            self._streamed += text
            self._answer.feed(text)

    def _show_assistant(self, message: Assistant) -> None:
        parent = message.parent_tool_use_id if isinstance(message.parent_tool_use_id, str) else None
        for block in message.message.content:
            if isinstance(block, ToolUse):
                self.finish_answer()
                self.print("call", self.calls.start(block, parent))
                self.enter("")
            elif isinstance(block, Text) and parent is not None:
                self.print("call", self.calls.note(parent, block.text))
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
        content = message.message.content
        metas = message.tool_result_meta if isinstance(message.tool_result_meta, list) else []
        for block in content if isinstance(content, list) else ():
            if isinstance(block, ToolResult):
                meta = next((meta for meta in metas if meta.get("id") == block.tool_use_id), {})
                self.print("call", self.calls.finish(block, meta))
        if not self.calls.running:
            self.enter("Waiting for the model")

    def _show_status(self, message: Status) -> None:
        if isinstance(message.status, str):
            self.enter(PHASES.get(message.status, message.status))

    def _show_retry(self, message: ApiRetry) -> None:
        self.finish_answer()
        self.warn(f"the model call failed ({failure_reason(message)}); {retry_text(message)}")

    def _show_information(self, message: Informational) -> None:
        self.warn(message.content)

    def _show_task(self, message: TaskStarted) -> None:
        if message.is_backgrounded is True and message.ambient is not True:
            self.print("call", self.calls.start_task(message.task_id, message.description))

    def _show_task_end(self, message: TaskNotification) -> None:
        self.print("call", self.calls.finish_task(message.task_id, message.status))

    def _show_result(self, message: Result) -> None:
        self.finish_answer()
        self.calls.running.clear()
        text = message.result if isinstance(message.result, str) else ""
        if isinstance(message.terminal_reason, str) and message.terminal_reason.startswith("aborted_"):
            self.is_interrupted = True
            self.print("note", [self.styles.warning("Interrupted.")])
        elif message.is_error is True:
            self.print("note", self._in_width(text_of(message), self.styles.bad))
        elif text.strip() and not "\n\n".join(self._texts).endswith(text):
            self.print("text", self.render(text))
        self._texts.clear()
        self.results.append(message)
        tasks = self.calls.tasks
        self.enter(f"Waiting for background tasks: {reveal_line(', '.join(tasks))}" if tasks else "Finishing")

    # Lines.

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


Transcript.shown = {
    StreamEvent: Transcript._show_event,
    Assistant: Transcript._show_assistant,
    User: Transcript._show_user,
    Status: Transcript._show_status,
    ApiRetry: Transcript._show_retry,
    Informational: Transcript._show_information,
    TaskStarted: Transcript._show_task,
    TaskNotification: Transcript._show_task_end,
    Result: Transcript._show_result,
}
