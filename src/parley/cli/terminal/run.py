"""Run one prompt for a person at a terminal.

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
from collections.abc import Mapping
from contextlib import ExitStack
from time import monotonic
from typing import NoReturn

from parley.cli.run import INTERRUPTED, TERMINATED, SignalHandler, begin, open_session
from parley.cli.stdio import warn
from parley.cli.terminal.host import TerminalHost
from parley.cli.terminal.keys import KeyPress
from parley.cli.terminal.questions import QuestionPrompts
from parley.cli.terminal.screen import Screen
from parley.cli.terminal.summary import summarize
from parley.cli.terminal.tty import Keyboard, can_read_keys
from parley.engine.session.config import SessionConfig
from parley.engine.session.hub import Hub
from parley.engine.session.session import Session
from parley.protocol.options import CliOptions
from parley.terminal.rendering.answer import Answer, PlainAnswer
from parley.terminal.rendering.style import Styles, is_dumb
from parley.terminal.rendering.text import reveal_text
from parley.terminal.rendering.transcript import make_answer
from parley.version import how_to_install

EXTRA = f"To see formatted answers, install an extra: {how_to_install('tui')}"


class TerminalRun:
    def __init__(self, options: CliOptions, environment: Mapping[str, str]) -> None:
        self._has_keyboard = can_read_keys()
        self.options = show_partial(options, asks=self._has_keyboard)
        """The options of the session: what any client with partial messages and approvals sets."""
        self._styles = Styles.from_environment(environment)
        # xterm cuts lines when its window gets narrower; others wrap them.
        self._screen = Screen(has_cursor=not is_dumb(environment), reflows="XTERM_VERSION" not in environment)
        self._host = TerminalHost(self._screen, self._styles, monotonic)
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
        hub = Hub()
        session = open_session(hub, config, self._host)
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
            hub.close(session)
        if self._host.transcript.results:
            self._summarize()
        return stop.exit_code()

    def _make_answer(self) -> Answer:
        """Also called in a thread, while the model is awaited: the import takes 80 ms or more."""
        return make_answer(lambda: self._screen.width, self._styles)

    def _open_keyboard(self, stack: ExitStack) -> None:
        keyboard = self._keyboard = Keyboard(marks_pastes=self._screen.has_cursor, on_resume=self._screen.redraw)
        stack.enter_context(keyboard)
        keyboard.on_key = self._press
        self._host.questions = QuestionPrompts(self._screen, keyboard, self._styles, self._host.transcript.render)

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
        lines = [summarize(self._host.transcript.results, is_stored=not self.options.no_session_persistence)]
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
