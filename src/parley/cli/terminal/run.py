"""Run one prompt for a person at a terminal: `parley "prompt"` with stdout a terminal.

    terminal = TerminalRun(options, environment)
    config = build_config(terminal.options, ..., terminal.warn)
    exit_code = asyncio.run(terminal.run(config, prompt))

With stdin not a terminal no one can be asked: calls that need approval are denied, as in text mode.

See also: `conversation.py`, for a run without a prompt.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from time import monotonic
from typing import Any, NoReturn

from parley.cli.run import INTERRUPTED, TERMINATED, SignalHandler, begin, open_session
from parley.cli.stdio import warn
from parley.cli.terminal.dialogs import LiveDialogs
from parley.cli.terminal.keyboard import Keyboard, KeyPress, can_read_keys
from parley.cli.terminal.screen import Screen
from parley.engine.session.config import SessionConfig
from parley.engine.session.session import Session
from parley.host import HostError, HostGone
from parley.protocol.base import UNSET, Message, to_builtins
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.requests import CanUseTool, Elicitation, Request
from parley.protocol.messages.result import Result
from parley.protocol.options import CliOptions
from parley.sdk.permissions import Signal, build_context, encode_decision
from parley.terminal.frames import FrameTimer
from parley.terminal.questions import TerminalQuestions
from parley.terminal.rendering.calls import format_seconds
from parley.terminal.rendering.style import Styles, is_dumb
from parley.terminal.rendering.text import reveal_text
from parley.terminal.rendering.transcript import Answer, PlainAnswer, TerminalTranscript, make_answer
from parley.version import how_to_install

EXTRA = f"To see formatted answers, install an extra: {how_to_install('tui')}"
HINT = " · esc interrupts"
SHORT_ID_CHARS = 8


class TerminalHost:
    """The terminal as the client of a session: a `Host` like any other.

    It gets the messages and control requests that an SDK client gets, partial messages included.
    """

    def __init__(self, screen: Screen, styles: Styles) -> None:
        self._screen = screen
        self._styles = styles
        self.transcript = TerminalTranscript(self._print, styles, lambda: screen.width, monotonic)
        self.results: list[Result] = []
        """One for the prompt, and one for each background task that was reported to the model later."""
        self._frames = FrameTimer(self._draw)
        self._keyboard: Keyboard | None = None
        self._turn = asyncio.Lock()
        self._is_asking = False

    def listen(self, keyboard: Keyboard) -> None:
        """Ask with this keyboard. Without one, no one can be asked."""
        self._keyboard = keyboard
        dialogs = LiveDialogs(self._screen, keyboard, self._styles)
        self._questions = TerminalQuestions(dialogs, self.transcript, lambda: self._screen.width)

    # The interface of a host.

    def send(self, *messages: Message) -> None:
        for message in messages:
            if self.transcript.show(message):
                self._frames.schedule()
            if isinstance(message, Result):
                self.results.append(message)
                self.transcript.enter("Finishing")

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        if not isinstance(request, CanUseTool | Elicitation):
            raise HostError(f"the terminal does not answer {request.subtype} requests")
        if self._keyboard is None:
            if isinstance(request, Elicitation):
                self.transcript.finish_answer()
                server = request.mcp_server_name
                self.transcript.warn(f"the MCP server {server} has a question, but stdin is not a terminal")
            raise HostGone("stdin is not a terminal, so no one can be asked")
        async with self._turn:
            self._is_asking = True
            try:
                with self._keyboard.asking():
                    if isinstance(request, Elicitation):
                        return await self._questions.elicit(to_builtins(request))
                    context = build_context(request, Signal())
                    return encode_decision(
                        await self._questions.decide(request.tool_name, request.input, context), request
                    )
            finally:
                self._is_asking = False
                self._screen.clear()
                self._frames.schedule()

    async def drain(self) -> bool:
        return True

    def pending_requests(self) -> list[ControlRequest]:
        return []

    def close(self) -> None:
        """Print what is still open, and remove the live lines."""
        self.transcript.finish_answer()
        self._frames.close()
        self._screen.clear()

    # Frames.

    def _print(self, lines: list[str]) -> None:
        self._show_live()  # without what is printed now
        self._screen.print(lines)

    def _show_live(self) -> None:
        if not self._is_asking:
            self._screen.show(self.transcript.live_lines("" if self._keyboard is None else HINT))

    def _draw(self) -> bool:
        self.transcript.advance()
        self._show_live()
        return self._screen.has_cursor and self.transcript.is_moving


class TerminalRun:
    def __init__(self, options: CliOptions, environment: Mapping[str, str]) -> None:
        self._has_keyboard = can_read_keys()
        self.options = show_partial(options, asks=self._has_keyboard)
        """The options of the session: what any client with partial messages and approvals sets."""
        self._styles = Styles.from_environment(environment)
        # xterm cuts lines when its window gets narrower; others wrap them.
        self._screen = Screen(has_cursor=not is_dumb(environment), reflows="XTERM_VERSION" not in environment)
        self._host = TerminalHost(self._screen, self._styles)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keyboard: Keyboard | None = None
        self._is_stopping = False

    def warn(self, text: str) -> None:
        """Write a warning to stderr, above the live lines. May be called from any thread."""
        shown = reveal_text(text)
        if threading.current_thread() is threading.main_thread():
            self._screen.run_clear(lambda: warn(shown))
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._screen.run_clear, lambda: warn(shown))
        else:
            warn(shown)

    async def run(self, config: SessionConfig, prompt: str) -> int:
        """Run the prompt and show it; returns the exit code. Raises UsageError."""
        self._loop = asyncio.get_running_loop()
        session = open_session(config, self._host)
        session.outbox.is_client_gone = not self._has_keyboard
        with TerminalSignals(session, self) as stop, ExitStack() as stack:
            # The terminal is restored before the signal handlers are: a signal in between would leave it as it is.
            stack.callback(self._host.close)
            if self._has_keyboard:
                self._open_keyboard(stack)
            continues = session.resumed_turn is not None
            if prompt or continues:
                begin(session, prompt)
                threading.Thread(target=self._make_answer, daemon=True).start()
            session.close_input()
            await session.run_turns()
            session.journal.close()
        if self._host.results:
            self._summarize()
        return stop.exit_code()

    def _make_answer(self) -> Answer:
        """Also called in a thread, while the model is awaited: the import takes 80 ms or more."""
        return make_answer(lambda: self._screen.width, self._styles)

    def _open_keyboard(self, stack: ExitStack) -> None:
        keyboard = self._keyboard = Keyboard(marks_pastes=self._screen.has_cursor, on_resume=self._screen.redraw)
        stack.enter_context(keyboard)
        keyboard.on_key = self._press
        self._host.listen(keyboard)

    def _press(self, key: KeyPress) -> None:
        """A key while nothing is asked: Escape is Ctrl-C, once."""
        if key.name == "escape" and not self._is_stopping:
            signal.raise_signal(signal.SIGINT)

    @property
    def is_interrupted(self) -> bool:
        return self._host.transcript.is_interrupted

    def stop(self) -> None:
        """A signal arrived."""
        self._is_stopping = True

    def restore(self) -> None:
        """Restore the terminal before the process exits."""
        if self._keyboard is not None:
            self._keyboard.restore()

    def _summarize(self) -> None:
        lines = [summarize(self._host.results, is_stored=not self.options.no_session_persistence)]
        if isinstance(self._make_answer(), PlainAnswer):
            lines.append(EXTRA)
        is_seen = os.isatty(2)
        self._screen.print([""] if is_seen else [])
        for line in lines:
            warn(self._styles.dim(line) if is_seen else line)


class TerminalSignals(SignalHandler):
    """Signals of a session at a terminal."""

    def __init__(self, session: Session, terminal: TerminalRun) -> None:
        super().__init__(session)
        self._terminal = terminal

    def _stop(self) -> None:
        self._terminal.stop()
        super()._stop()

    def _exit(self, number: int) -> NoReturn:
        self._terminal.restore()
        super()._exit(number)

    def exit_code(self) -> int:
        """Like that of text output, but 130 if the person interrupted: `parley "prompt" && deploy` must not deploy."""
        code = super().exit_code()
        is_interrupted = self._signal == signal.SIGINT or self._terminal.is_interrupted
        return INTERRUPTED if is_interrupted and code != TERMINATED else code


def show_partial(options: CliOptions, *, asks: bool) -> CliOptions:
    """The options with partial messages, and with approval requests if someone can answer them."""
    options = options.replace(include_partial_messages=True)
    return options.replace(permission_prompt_tool="stdio") if asks and not options.permission_prompt_tool else options


def summarize(results: Sequence[Result], *, is_stored: bool) -> str:
    """The line at the end of a run: model calls, tokens, cost, time, and how to continue."""
    result = results[-1]
    calls = sum(map(count_model_calls, results))
    milliseconds = sum(one.duration_ms for one in results if isinstance(one.duration_ms, int | float))
    parts = [count(calls, "model call")]
    if isinstance(result.modelUsage, dict) and result.modelUsage:
        used = result.modelUsage.values()
        read = sum(one.inputTokens + one.cacheReadInputTokens + one.cacheCreationInputTokens for one in used)
        parts.append(f"{read:,} tokens in, {sum(one.outputTokens for one in used):,} out")
    if not isinstance(result.total_cost_usd, int | float):
        parts.append("cost unknown")
    else:
        parts.append(f"${result.total_cost_usd:.4f}" if result.total_cost_usd else "$0")
    parts.append(format_seconds(milliseconds / 1000))
    if isinstance(result.session_id, str) and is_stored:
        parts.append(f"parley -c resumes {result.session_id[:SHORT_ID_CHARS]}")
    return " · ".join(parts)


def count_model_calls(result: Result) -> int:
    """`num_turns` without the call that it counts although it was not made: after the limit, or the output tool."""
    is_one_more = result.terminal_reason == "max_turns" or result.structured_output is not UNSET
    return result.num_turns - is_one_more if isinstance(result.num_turns, int) else 0


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
