"""A conversation at a terminal: the session, the screen, and what keys and commands do.

    exit_code = asyncio.run(ConversationApplication(target, environment).run())

See also: `session/` for the session, `interfaces/` for the two kinds of terminals, `questions.py` for requests of the
engine, `commands/` for slash commands.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import tempfile
import termios
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from parley.sdk.errors import ClaudeSDKError
from parley.terminal.base import Row
from parley.terminal.frames import FrameTimer
from parley.terminal.interfaces.picker import Picker
from parley.terminal.prompts import Pastes, PromptLog, ShellCommand, find_folder
from parley.terminal.rendering.style import THEMES, Styles, is_dumb
from parley.terminal.rendering.text import reveal_line, reveal_text, shorten
from parley.terminal.rendering.transcript import TerminalTranscript, make_answer
from parley.terminal.session import Callbacks, QueuedPrompt, SessionTarget, TerminalSession
from parley.terminal.status_line import StatusLine

if TYPE_CHECKING:
    from parley.protocol.base import Json
    from parley.sdk.client import Client
    from parley.sdk.options import Options
    from parley.sdk.permissions import PermissionResult, ToolPermissionContext
    from parley.terminal.interfaces.base import Interface
    from parley.terminal.questions import TerminalQuestions

TWICE_SECONDS = 1.0
"""Two presses of Escape or Ctrl-C within this time belong together."""
HINT_SECONDS = 2.0
MODES = ("default", "acceptEdits", "plan")
BYPASS = "bypassPermissions"
HANGUP_CODE = 128 + signal.SIGHUP
GREETING = "Type a prompt. /help lists commands, esc interrupts, ctrl-c twice quits."
EXIT_COMMANDS = ("/exit", "/quit")


class ConversationApplication:
    def __init__(self, target: SessionTarget, environment: Mapping[str, str], *, is_plain: bool = False) -> None:
        self.styles = Styles.from_environment(environment)
        self._environment = environment
        self._is_plain = is_plain or is_dumb(environment)
        self._log = PromptLog(find_folder(environment))
        self.pastes = Pastes()
        self.interface: Interface = self._make_interface()
        self._transcript = TerminalTranscript(self.interface.print, self.styles, self._get_width, monotonic)
        self._transcript.echoes = not self._is_plain
        self._transcript.more_hint = "" if self._is_plain else " (ctrl-o shows all)"
        callbacks = Callbacks(self._decide, self._elicit, self._warn)
        self._session = TerminalSession(target, callbacks, self._transcript, self._changed)
        self._session.on_lost = self._lose
        self._frames = FrameTimer(self._draw)
        self._status_line = StatusLine(self, self._frames.schedule)
        self.live_lines: list[str] = []
        self._hint = ""
        self._escaped_at = self._cancelled_at = float("-inf")
        self._shell: ShellCommand | None = None
        self._shell_notes: list[str] = []
        self._early_warnings: list[str] = []
        """What the engine wrote to stderr before it was ready. If it fails, it says so itself."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._exit_code = 0

    def _make_interface(self) -> Interface:
        if self._is_plain:
            from parley.terminal.interfaces.plain import PlainInterface

            return PlainInterface(self, self._environment)
        from parley.terminal.completion import PromptCompleter
        from parley.terminal.interfaces.screen import ConversationScreen, PromptSettings

        settings = PromptSettings(
            log=self._log, completer=PromptCompleter(self), reflows="XTERM_VERSION" not in self._environment
        )
        return ConversationScreen(self, self.styles, settings)

    # The life of the terminal.

    async def run(self) -> int:
        """Show the conversation until the person leaves; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._hang_up, number)
        self._transcript.note(GREETING)
        try:
            await self.interface.run(self._start)
        except (EOFError, OSError, termios.error):
            if is_terminal_open():
                raise
            self._hang_up(signal.SIGHUP)
        finally:
            await self._close()
        return self._exit_code

    def _start(self) -> None:
        """The first frame is about to be drawn: start the engine meanwhile."""
        self._changed()
        self.run_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self._session.connect()
        except (ClaudeSDKError, ValueError, OSError) as exc:
            if not self._transcript.has_result:  # a result has said it
                self._transcript.print("note", [self.styles.bad(line) for line in reveal_text(str(exc)).split("\n")])
            self.leave(1)
            return
        gc.freeze()  # modules live until the end
        gc.enable()  # the start of the executable disabled it
        self._print_early_warnings()
        await self._apply_settings()
        await asyncio.to_thread(make_answer, self._get_width, self.styles)  # imports what formats answers
        if self._session.target.options.resume == "":
            await self._run_command("/resume")

    async def _apply_settings(self) -> None:
        """The theme and the keys that the settings name."""
        try:
            found = (await self.client.get_settings()).get("effective")
        except ClaudeSDKError:
            return  # an engine without this request
        if isinstance(found, dict):
            if found.get("theme") in THEMES:
                self.set_theme(str(found["theme"]))
            self.interface.set_vi(found.get("editorMode") in ("vim", "vi"))

    @cached_property
    def _questions(self) -> TerminalQuestions:
        from parley.terminal.questions import TerminalQuestions  # not needed for the first frame

        return TerminalQuestions(self.interface, self._transcript, self._get_width)

    async def _decide(self, tool_name: str, given: Json, context: ToolPermissionContext) -> PermissionResult:
        return await self._questions.decide(tool_name, given, context)

    async def _elicit(self, request: Any) -> Any:
        return await self._questions.elicit(request)

    def _lose(self, reason: str) -> None:
        """The engine has exited, or the gateway is gone."""
        if not self._is_closing:
            self._transcript.print("note", [self.styles.bad(line) for line in reveal_text(reason).split("\n")])
            self.leave(1)

    def _hang_up(self, number: int) -> None:
        """The terminal is closed, or the process is to end."""
        if number == signal.SIGHUP:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for descriptor in (1, 2):
                os.dup2(nowhere, descriptor)
            os.close(nowhere)
        self.leave(128 + number)

    def leave(self, code: int = 0) -> None:
        """End the conversation. The session is stored and can be resumed."""
        if not self._is_closing:
            self._is_closing, self._exit_code = True, code
            self._frames.close()
            self._transcript.finish_answer()
            self.live_lines = []
            self.interface.close()

    async def _close(self) -> None:
        self._is_closing = True
        self._frames.close()
        if self._shell is not None:
            self._shell.stop()
        for task in list(self._tasks):
            task.cancel()
        await self._status_line.close()
        had_prompts = bool(self._session.prompts)
        await self._session.close()
        target = self._session.target
        lines = self.interface.take_pending()
        if had_prompts and not target.server and not target.options.no_session_persistence:
            lines.append(self.styles.dim(f"Resume this session with: parley --resume {target.session_id}"))
        if self._exit_code != HANGUP_CODE and lines:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background. What it raises is shown."""
        task = asyncio.ensure_future(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (ClaudeSDKError, ValueError, OSError) as exc:
            self._transcript.warn(str(exc) or type(exc).__name__)
        except Exception as exc:  # a fault of a command must not end the conversation
            self._transcript.warn(f"this is a bug: {exc!r}")
        self._changed()

    # Frames.

    def _get_width(self) -> int:
        return self.interface.width

    def _changed(self) -> None:
        """Something that is shown may have changed."""
        self._status_line.update(self._session.status)
        self._frames.schedule()

    def _draw(self) -> bool:
        self._transcript.advance()
        self.live_lines = self._transcript.live_lines(" · esc interrupts")
        self.interface.draw()
        return self._transcript.is_moving and not self._is_plain

    def queue_lines(self) -> list[str]:
        width = self.interface.width
        queued = [f"  queued: {reveal_line(prompt.text)}" for prompt in self._session.queue]
        hint = ["  ↑ takes the last one back"] if queued else []
        return [self.styles.dim(shorten(line, width)) for line in (*queued, *hint)]

    def status_lines(self, columns: int) -> list[str]:
        lines = self._status_line.render(columns)
        return [self.styles.warning(shorten(self._hint, columns)), *lines[1:]] if self._hint else lines

    @property
    def is_idle(self) -> bool:
        return not self._session.is_busy and not self._session.queue and self._shell is None

    def _show_hint(self, text: str) -> None:
        """Show something in the status line for a moment."""
        self._hint = text
        self._frames.schedule()

        def forget() -> None:
            if self._hint == text:
                self._hint = ""
                self._frames.schedule()

        asyncio.get_running_loop().call_later(HINT_SECONDS, forget)

    def _warn(self, text: str) -> None:
        """A line that the engine wrote to stderr."""
        if text.strip() and not self._session.is_connected:
            self._early_warnings.append(text)
        elif text.strip():
            self._transcript.warn(text)
            self._frames.schedule()

    def _print_early_warnings(self) -> None:
        lines, self._early_warnings = self._early_warnings, []
        for line in lines:
            self._transcript.warn(line)

    # Keys.

    def submit(self, text: str) -> None:
        """The person sent what is typed."""
        text = text.strip()
        if not text:
            self._frames.schedule()
            return
        self.interface.clear_input()
        self._log.append(text)
        if text in EXIT_COMMANDS:
            self.leave()
        elif text.startswith("/") and self._is_own_command(text):
            self.run_task(self._run_command(text))
        elif text.startswith("!"):
            self.run_task(self._run_shell(text[1:].strip()))
        else:
            self._send(text)
        self._changed()

    def _send(self, text: str) -> None:
        try:
            content = self.pastes.build_prompt(text)
        except ValueError as exc:
            self._transcript.warn(str(exc))
            return
        if self._shell_notes and not text.startswith("/"):
            notes, self._shell_notes = "\n\n".join(self._shell_notes), []
            content = (
                f"{notes}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": notes}, *content]
            )
        self._session.enqueue(QueuedPrompt(text, content))

    def _is_own_command(self, text: str) -> bool:
        from parley.terminal.commands import find_command

        return find_command(text) is not None

    async def _run_command(self, text: str) -> None:
        """Run a slash command of the terminal."""
        from parley.terminal.commands import find_command

        found = find_command(text)
        if found is None:
            return
        command, argument = found
        self._echo(text)
        await self._session.ready.wait()
        await command.run(self, argument)
        await self._session.read_model(self.client)

    async def _run_shell(self, command: str) -> None:
        if self._session.target.server:
            raise ValueError("!command runs on this machine, but the session is on a gateway: ask the model to run it")
        if not command or self._shell is not None:
            return
        self._echo(f"!{command}")
        self._shell = ShellCommand(command, self.cwd, self._print_output)
        self._transcript.enter(f"Running {reveal_line(command)}")
        try:
            self._shell_notes.append(await self._shell.run())
        finally:
            self._shell = None
            self._transcript.enter("")

    def _echo(self, text: str) -> None:
        if self._transcript.echoes:
            self._transcript.show_prompt(text)

    def _print_output(self, line: str) -> None:
        self._transcript.print("output", [f"  {reveal_text(line)}"])
        self._frames.schedule()

    def escape(self) -> None:
        """Escape: interrupt what runs; twice, rewind."""
        now = monotonic()
        if self._shell is not None:
            self._shell.stop()
        elif self._session.is_busy:
            self.run_task(self._session.interrupt())
        elif now - self._escaped_at < TWICE_SECONDS:
            self._escaped_at, self._hint = float("-inf"), ""
            if self.interface.input_text:
                self.interface.clear_input()
            else:
                self.run_task(self._rewind())
        else:
            self._escaped_at = now
            self._show_hint("esc again clears the input" if self.interface.input_text else "esc again rewinds")

    async def _rewind(self) -> None:
        from parley.terminal.commands.sessions import rewind

        text = await rewind(self)
        if text is not None:
            self.interface.set_input(text)

    def cancel(self) -> None:
        """Ctrl-C: clear the input or interrupt; twice, quit."""
        now = monotonic()
        if now - self._cancelled_at < TWICE_SECONDS:
            self.leave()
            return
        if self.interface.input_text:
            self.interface.clear_input()
        elif self._shell is not None:
            self._shell.stop()
        elif self._session.is_busy:
            self.run_task(self._session.interrupt())
        self._cancelled_at = now
        self._show_hint("ctrl-c again quits")

    def cycle_mode(self) -> None:
        options = self._session.target.options
        is_unlocked = options.allow_skip_permissions or options.permission_mode == BYPASS or options.skip_permissions
        modes = (*MODES, BYPASS) if is_unlocked else MODES
        mode = self._session.mode
        following = modes[(modes.index(mode) + 1) % len(modes)] if mode in modes else modes[0]
        self.run_task(self._session.set_mode(following))

    def expand_output(self) -> None:
        """Print the last output in full."""
        found = self._transcript.last_output
        if found is None:
            self._show_hint("no tool has run yet")
            return
        title, text = found
        lines = [f"  {line}" for line in reveal_text(text).split("\n")]
        self._transcript.print("output", [self.styles.bold(reveal_line(title)), *lines])
        self._frames.schedule()

    def expand_thinking(self) -> None:
        """Print the model's last thinking."""
        text = self._transcript.last_thinking
        if not text.strip():
            self._show_hint("the model has not shown its thinking")
            return
        self._transcript.print("output", [self.styles.dim(f"  {line}") for line in reveal_text(text).split("\n")])
        self._frames.schedule()

    async def search_history(self) -> None:
        texts = self._log.read()
        rows = [Row(str(index + 10), reveal_line(text)) for index, text in enumerate(texts)]
        picked = await self.interface.pick(Picker("Prompts", rows))
        if picked:
            self.interface.set_input(texts[int(picked[0].key) - 10])

    async def paste_image(self) -> None:
        from parley.terminal.prompts import save_image

        self.interface.insert_text(f"{self.pastes.add_image(await save_image(self.folders))} ")

    async def edit_prompt(self) -> None:
        with tempfile.TemporaryDirectory(prefix="parley-prompt-") as folder:
            file = Path(folder, "prompt.md")
            file.write_text(self.interface.input_text)  # noqa: ASYNC240  # a short text, and nothing else to do
            await self.edit(str(file))
            self.interface.set_input(file.read_text().removesuffix("\n"))  # noqa: ASYNC240

    def take_back(self) -> str | None:
        """The last prompt that waits, for the input."""
        if not self._session.queue:
            return None
        prompt = self._session.queue.pop()
        self._changed()
        return prompt.text

    # What commands may use (`base.View`).

    @property
    def client(self) -> Client[Any]:
        if self._session.client is None:
            raise ValueError("the engine is not ready yet")
        return self._session.client

    @property
    def options(self) -> Options[Any]:
        return self.client.options

    @property
    def session_id(self) -> str:
        return self._session.target.session_id

    @property
    def cwd(self) -> str:
        return self._session.target.cwd

    @property
    def folders(self) -> Sequence[str]:
        return self._session.folders

    @property
    def prompts(self) -> Sequence[tuple[str, str]]:
        return self._session.prompts

    @property
    def width(self) -> int:
        return self.interface.width

    def print(self, lines: Sequence[str]) -> None:
        self._transcript.print("output", list(lines))
        self._frames.schedule()

    async def edit(self, path: str) -> None:
        await self.interface.edit(path, self.folders)

    async def choose(
        self,
        title: str,
        rows: Sequence[Row],
        *,
        search: bool = True,
        preview: Callable[[Row], str] | None = None,
    ) -> Row | None:
        picked = await self.interface.pick(Picker(title, rows, search=search, preview=preview))
        return picked[0] if picked else None

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        return await self.interface.ask(prompt, initial)

    async def confirm(self, question: str) -> bool:
        picked = await self.interface.pick(Picker(question, [Row("y", "Yes"), Row("n", "No")], search=False))
        return picked is not None and picked[0].key == "y"

    async def switch_session(self, session_id: str, *, cwd: str | None = None, at: str | None = None) -> None:
        target = self._session.target.switch(session_id, cwd)
        if at is not None:
            previous = self._session.find_previous(at)
            target = target.restart() if previous is None else target.switch(session_id, cwd, previous)
        if self._session.is_busy:
            await self._session.interrupt()
        if at is None:
            self._transcript.note(f"Session {session_id}")
        before = self._session.find_return()
        try:
            await self._session.switch(target)
        except (ClaudeSDKError, ValueError, OSError):
            await self._session.switch(before)
            self._transcript.note("The previous session continues.")
            raise
        self._print_early_warnings()
        self._changed()

    def set_theme(self, name: str) -> None:
        self.styles.theme = THEMES[name]
        self._changed()


def is_terminal_open() -> bool:
    try:
        termios.tcgetattr(0)
    except termios.error:
        return False
    return True


def run_conversation(target: SessionTarget, *, is_plain: bool = False) -> int:
    """Run a conversation at this terminal; returns the exit code."""
    return asyncio.run(ConversationApplication(target, os.environ, is_plain=is_plain).run())
