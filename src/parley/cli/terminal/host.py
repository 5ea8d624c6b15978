"""The terminal as the client of a session: shows its messages, and answers its requests.

It is a `Host` like any other: it gets the messages and control requests that an SDK client gets, partial messages
included, and knows nothing else of the session.

See also: `answer.py` for the text of the model, `calls.py` for tool calls, `questions.py` for requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from parley.cli.output import failure_reason, retry_text, text_of
from parley.cli.terminal.questions import QuestionPrompts
from parley.cli.terminal.screen import Screen
from parley.host import HostError, HostGone
from parley.protocol.base import UNSET, Message, Struct
from parley.protocol.blocks import Text, ToolResult, ToolUse
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.conversation import Assistant, StreamEvent, User
from parley.protocol.messages.requests import CanUseTool, Elicitation, Request
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import (
    ApiRetry,
    Informational,
    Status,
    TaskNotification,
    TaskStarted,
)
from parley.terminal.rendering.answer import Answer, PlainAnswer
from parley.terminal.rendering.calls import CallLines, format_seconds, format_whole, spinner_frame
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import reveal_line, reveal_text, shorten, wrap

FRAME_SECONDS = 0.05
"""How often text that arrives is drawn."""
SPIN_SECONDS = 0.1
PAUSE_FACTOR = 4
"""After a frame that took long, the session has the loop for this many times as long."""
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


def make_answer(width: Callable[[], int], styles: Styles) -> Answer:
    """Formats Markdown if the extra is installed, which is imported here."""
    try:
        from parley.terminal.rendering.markdown import MarkdownAnswer
    except ModuleNotFoundError as exc:
        if exc.name not in EXTRA_MODULES:
            raise
        return PlainAnswer(width)
    return MarkdownAnswer(width, styles)


class TerminalHost:
    def __init__(self, screen: Screen, styles: Styles, clock: Callable[[], float]) -> None:
        self._screen = screen
        self._styles = styles
        self._clock = clock
        self._calls = CallLines(styles, lambda: screen.width, clock)
        self._answer: Answer | None = None
        self._streamed = ""
        """The text of the block that arrives."""
        self._texts: list[str] = []
        """The texts of the model in this turn."""
        self._phase = ""
        self._since = 0.0
        self._printed = ""
        """What was printed last: `text`, `call` or `note`."""
        self._timer: asyncio.TimerHandle | None = None
        self._pause = FRAME_SECONDS
        self._is_closed = False
        self.questions: QuestionPrompts | None = None
        """None if there is no keyboard."""
        self.results: list[Result] = []
        self.is_interrupted = False
        """The person interrupted a turn, or left the prompt with Escape."""

    # The interface of a host.

    def send(self, *messages: Message) -> None:
        for message in messages:
            show = SHOWN.get(type(message))
            if show is not None:
                show(self, message)
                self._schedule()

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        if not isinstance(request, CanUseTool | Elicitation):
            raise HostError(f"the terminal does not answer {request.subtype} requests")
        self._finish_answer()
        if self.questions is None:
            if isinstance(request, Elicitation):
                self._warn(f"the MCP server {request.mcp_server_name} has a question, but stdin is not a terminal")
            raise HostGone("stdin is not a terminal, so no one can be asked")
        reply = await self.questions.answer(request)
        self._printed = "call"
        if isinstance(request, CanUseTool) and isinstance(request.tool_use_id, str):
            self._calls.resume(request.tool_use_id, is_dialog=request.requires_user_interaction is True)
        self._schedule()
        return reply

    async def drain(self) -> bool:
        return True

    def pending_requests(self) -> list[ControlRequest]:
        return []

    def close(self) -> None:
        """Print what is still open, and remove the live lines."""
        self._finish_answer()
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._screen.clear()

    def render(self, markdown: str) -> list[str]:
        """A whole text."""
        answer = make_answer(lambda: self._screen.width, self._styles)
        answer.feed(markdown)
        return [*answer.take(), *answer.finish()]

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
                self._finish_answer()
                if self._phase == "Thinking":
                    elapsed = format_seconds(self._clock() - self._since)
                    self._print("call", [self._styles.dim(f"Thought for {elapsed}")])
                self._enter("Waiting for the model" if event.type == "content_block_stop" else "")

    def _start_block(self, block: StartedBlock) -> None:
        if block.type == "text":
            self._enter("Answering")
            self._answer = make_answer(lambda: self._screen.width, self._styles)
            self._feed(block.text)
        elif block.type in ("thinking", "redacted_thinking"):
            self._enter("Thinking")
        elif block.type == "tool_use":
            self._enter(f"Preparing {reveal_line(block.name)}")

    def _feed(self, text: str) -> None:
        if self._answer is not None:
            self._streamed += text
            self._answer.feed(text)

    def _show_assistant(self, message: Assistant) -> None:
        parent = message.parent_tool_use_id if isinstance(message.parent_tool_use_id, str) else None
        for block in message.message.content:
            if isinstance(block, ToolUse):
                self._finish_answer()
                self._print("call", self._calls.start(block, parent))
                self._enter("")
            elif isinstance(block, Text) and parent is not None:
                self._print("call", self._calls.note(parent, block.text))
            elif isinstance(block, Text) and message.is_api_error_message is not True and message.error is UNSET:
                self._show_text(block.text, keeps_lines=message.local_command_source is not UNSET)

    def _show_text(self, text: str, *, keeps_lines: bool) -> None:
        """A complete text, which was streamed before, unless a hook or a command made it."""
        if text != self._streamed:
            self._finish_answer()
            # Two spaces before a line break keep it in Markdown.
            self._print("text", self.render(text.replace("\n", "  \n") if keeps_lines else text))
        self._texts.append(text)

    def _show_user(self, message: User) -> None:
        content = message.message.content
        metas = message.tool_result_meta if isinstance(message.tool_result_meta, list) else []
        for block in content if isinstance(content, list) else ():
            if isinstance(block, ToolResult):
                meta = next((meta for meta in metas if meta.get("id") == block.tool_use_id), {})
                self._print("call", self._calls.finish(block, meta))
        if not self._calls.running:
            self._enter("Waiting for the model")

    def _show_status(self, message: Status) -> None:
        if isinstance(message.status, str):
            self._enter(PHASES.get(message.status, message.status))

    def _show_retry(self, message: ApiRetry) -> None:
        self._finish_answer()
        self._warn(f"the model call failed ({failure_reason(message)}); {retry_text(message)}")

    def _show_information(self, message: Informational) -> None:
        self._warn(message.content)

    def _show_task(self, message: TaskStarted) -> None:
        if message.is_backgrounded is True and message.ambient is not True:
            self._print("call", self._calls.start_task(message.task_id, message.description))

    def _show_task_end(self, message: TaskNotification) -> None:
        self._print("call", self._calls.finish_task(message.task_id, message.status))

    def _show_result(self, message: Result) -> None:
        self._finish_answer()
        self._calls.running.clear()
        text = message.result if isinstance(message.result, str) else ""
        if isinstance(message.terminal_reason, str) and message.terminal_reason.startswith("aborted_"):
            self.is_interrupted = True
            self._print("note", [self._styles.warning("Interrupted.")])
        elif message.is_error is True:
            self._print("note", self._in_width(text_of(message), self._styles.bad))
        elif text.strip() and not "\n\n".join(self._texts).endswith(text):
            self._print("text", self.render(text))
        self._texts.clear()
        self.results.append(message)
        tasks = self._calls.tasks
        self._enter(f"Waiting for background tasks: {reveal_line(', '.join(tasks))}" if tasks else "Finishing")

    # Lines.

    def _warn(self, text: str) -> None:
        self._print("note", self._in_width(text, self._styles.warning))

    def _in_width(self, text: str, paint: Callable[[str], str]) -> list[str]:
        return [paint(line) for line in wrap(reveal_text(text), self._screen.width)]

    def _print(self, kind: str, lines: list[str]) -> None:
        """Print lines, with an empty line before them if they are of another kind than the last."""
        if lines:
            gap = [""] if self._printed not in ("", kind) else []
            self._printed = kind
            self._screen.print([*gap, *lines])

    def _finish_answer(self) -> None:
        if self._answer is not None:
            answer, self._answer, self._streamed = self._answer, None, ""
            self._show_live()
            self._print("text", answer.take() + answer.finish())

    def _enter(self, phase: str) -> None:
        if phase != self._phase:
            self._phase, self._since = phase, self._clock()

    # Frames.

    def _schedule(self) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._tick)

    def _tick(self) -> None:
        self._timer = None
        started_at = self._clock()
        self._draw()
        self._pause = max(FRAME_SECONDS, PAUSE_FACTOR * (self._clock() - started_at))
        if self._screen.has_cursor and not self._is_closed and (self._phase or self._calls.running):
            self._timer = asyncio.get_running_loop().call_later(max(SPIN_SECONDS, self._pause), self._tick)

    def _draw(self) -> None:
        if self._answer is not None:
            self._print("text", self._answer.take())
        self._show_live()

    def _show_live(self) -> None:
        if self.questions is None or not self.questions.is_asking:
            self._screen.show(self._live_lines())

    def _live_lines(self) -> list[str]:
        lines = [] if self._answer is None else self._answer.open_lines()
        if lines and self._printed not in ("", "text"):
            lines = ["", *lines]
        calls = self._calls.live_lines()
        if calls or not self._phase:
            return [*lines, *calls]
        now = self._clock()
        status = f"{spinner_frame(now)} {self._phase}… {format_whole(now - self._since)}"
        hint = "" if self.questions is None else " · esc interrupts"
        return [*lines, self._styles.dim(shorten(status + hint, self._screen.width))]


SHOWN: dict[type[Message], Callable[[TerminalHost, Any], None]] = {
    StreamEvent: TerminalHost._show_event,
    Assistant: TerminalHost._show_assistant,
    User: TerminalHost._show_user,
    Status: TerminalHost._show_status,
    ApiRetry: TerminalHost._show_retry,
    Informational: TerminalHost._show_information,
    TaskStarted: TerminalHost._show_task,
    TaskNotification: TerminalHost._show_task_end,
    Result: TerminalHost._show_result,
}
"""How each message is shown. Others are for programs."""
