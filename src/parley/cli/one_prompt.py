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
from parley.cli.stdio import warn, write
from parley.engine.session.config import SessionConfig
from parley.engine.session.session import Session
from parley.host import HostError, HostGone, NoHost
from parley.protocol.base import UNSET, Message, to_builtins
from parley.protocol.messages.requests import CanUseTool, Elicitation, Request
from parley.protocol.messages.result import Result
from parley.protocol.options import CliOptions
from parley.sdk.permissions import Signal, build_context, encode_decision
from parley.terminal.interfaces.dialogs import LiveDialogs
from parley.terminal.interfaces.keyboard import Keyboard, KeyPress, can_read_keys
from parley.terminal.interfaces.screen import FrameTimer, Screen
from parley.terminal.questions import TerminalQuestions, read_local
from parley.terminal.rendering.calls import format_seconds
from parley.terminal.rendering.style import Styles, is_dumb
from parley.terminal.rendering.text import format_quantity, reveal_text
from parley.terminal.rendering.transcript import Answer, PlainAnswer, TerminalTranscript, make_answer
from parley.version import how_to_install

EXTRA = f"To see formatted answers, install an extra: {how_to_install('tui')}"
HINT = " · esc interrupts"
SHORT_ID_CHARS = 8


class TerminalRun(NoHost, LiveDialogs):
    """The terminal as the client of a session: a `Host` like any other.

    It gets the messages and control requests that an SDK client gets, partial messages included. Questions take the
    place of the live lines; `Keyboard.asking` drops the keys that were pressed before.
    """

    def __init__(self, options: CliOptions, environment: Mapping[str, str]) -> None:
        # xterm cuts lines when its window gets narrower; others wrap them.
        screen = Screen(
            has_cursor=not is_dumb(environment),
            reflows="XTERM_VERSION" not in environment,
            write=lambda text: write(text.encode(errors="replace"), raw=True),
        )
        super().__init__(screen, Styles.from_environment(environment))
        self._has_keyboard = can_read_keys()
        self.options = show_partial(options, asks=self._has_keyboard)
        """The options of the session: what any client with partial messages and approvals sets."""
        self.transcript = TerminalTranscript(self._print, self.styles, lambda: screen.width, monotonic)
        self._questions = TerminalQuestions(self, self.transcript, lambda: screen.width, read_local(os.curdir))
        self._results: list[Result] = []
        """One for the prompt, and one for each background task that was reported to the model later."""
        self._frames = FrameTimer(self._draw)
        self.keyboard: Keyboard | None = None
        """Without one, no one can be asked."""
        self._turn = asyncio.Lock()
        self._is_asking = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_stopping = False

    async def run(self, config: SessionConfig, prompt: str) -> int:
        """Run the prompt and show it; returns the exit code. Raises UsageError."""
        self._loop = asyncio.get_running_loop()
        session = open_session(config, self)
        session.outbox.is_client_gone = not self._has_keyboard
        with TerminalSignals(session, self) as stop, ExitStack() as stack:
            # The terminal is restored before the signal handlers are: a signal in between would leave it as it is.
            stack.callback(self._close)
            if self._has_keyboard:
                self.keyboard = stack.enter_context(Keyboard(self.screen))
                self.keyboard.on_key = self._press
            continues = session.recovery.turn is not None
            if prompt or continues:
                begin(session, prompt)
                threading.Thread(target=self._make_answer, daemon=True).start()
            session.close_input()
            await session.run_turns()
            session.journal.close()
        if self._results:
            self._summarize()
        return stop.exit_code()

    def _make_answer(self) -> Answer:
        """Also called in a thread, while the model is awaited: the import takes 80 ms or more."""
        return make_answer(lambda: self.screen.width, self.styles)

    def _press(self, key: KeyPress) -> None:
        """A key while nothing is asked: Escape is Ctrl-C, once."""
        if key.name == "escape" and not self.is_stopping:
            signal.raise_signal(signal.SIGINT)

    def _close(self) -> None:
        """Print what is still open, and remove the live lines."""
        self.transcript.finish_answer()
        self._frames.close()
        self.screen.clear()

    def _summarize(self) -> None:
        lines = [summarize(self._results, is_stored=not self.options.no_session_persistence)]
        if isinstance(self._make_answer(), PlainAnswer):
            lines.append(EXTRA)
        is_seen = os.isatty(2)
        self.screen.print([""] if is_seen else [])
        for line in lines:
            warn(self.styles.dim(line) if is_seen else line)

    # The interface of a host.

    def send(self, *messages: Message) -> None:
        for message in messages:
            if self.transcript.show(message):
                self._frames.schedule()
            if isinstance(message, Result):
                self._results.append(message)
                self.transcript.enter("Finishing")

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        if not isinstance(request, CanUseTool | Elicitation):
            raise HostError(f"the terminal does not answer {request.subtype} requests")
        if self.keyboard is None:
            if isinstance(request, Elicitation):
                self.transcript.finish_answer()
                server = request.mcp_server_name
                self.transcript.warn(f"the MCP server {server} has a question, but stdin is not a terminal")
            raise HostGone("stdin is not a terminal, so no one can be asked")
        async with self._turn:
            self._is_asking = True
            try:
                with self.keyboard.asking():
                    if isinstance(request, Elicitation):
                        return await self._questions.elicit(to_builtins(request))
                    context = build_context(request, Signal())
                    answer = await self._questions.decide(request.tool_name, request.input, context)
                    return encode_decision(answer, request)
            finally:
                self._is_asking = False
                self.screen.clear()
                self._frames.schedule()

    # Frames.

    async def read_key(self) -> KeyPress:
        assert self.keyboard is not None
        return await self.keyboard.read()

    def show_dialog(self, lines: list[str], cursor: tuple[int, int] | None = None) -> None:
        self.screen.show(lines, cursor)

    def warn(self, text: str) -> None:
        """Write a warning to stderr, above the live lines. May be called from any thread."""
        shown = reveal_text(text)
        if threading.current_thread() is threading.main_thread():
            self.screen.run_clear(lambda: warn(shown))
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.screen.run_clear, lambda: warn(shown))
        else:
            warn(shown)

    def _print(self, lines: list[str]) -> None:
        self._show_live()  # without what is printed now
        self.screen.print(lines)

    def _show_live(self) -> None:
        if not self._is_asking:
            self.screen.show(self.transcript.live_lines("" if self.keyboard is None else HINT))

    def _draw(self) -> bool:
        self.transcript.advance()
        self._show_live()
        return self.screen.has_cursor and self.transcript.is_moving


class TerminalSignals(SignalHandler):
    """Signals of a session at a terminal."""

    def __init__(self, session: Session, terminal: TerminalRun) -> None:
        super().__init__(session)
        self._terminal = terminal

    def _stop(self) -> None:
        self._terminal.is_stopping = True
        super()._stop()

    def _exit(self, number: int) -> NoReturn:
        if self._terminal.keyboard is not None:
            self._terminal.keyboard.restore()
        super()._exit(number)

    def exit_code(self) -> int:
        """Like that of text output, but 130 if the person interrupted: `parley "prompt" && deploy` must not deploy."""
        code = super().exit_code()
        is_interrupted = self._signal == signal.SIGINT or self._terminal.transcript.is_interrupted
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
    parts = [format_quantity(calls, "model call")]
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
