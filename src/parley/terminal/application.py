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
from collections.abc import Coroutine, Mapping
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from parley.sdk.errors import ClaudeSDKError
from parley.terminal.base import View
from parley.terminal.commands import find_command, find_meant
from parley.terminal.interfaces.dialogs import Picker, Row
from parley.terminal.interfaces.screen import FrameTimer
from parley.terminal.prompts import Pastes, PromptLog, ShellCommand, find_folder
from parley.terminal.rendering.style import THEMES, Styles, is_dumb
from parley.terminal.rendering.text import reveal_line, reveal_text, shorten
from parley.terminal.rendering.transcript import TerminalTranscript, make_answer
from parley.terminal.session import Callbacks, QueuedPrompt, SessionTarget, TerminalSession
from parley.terminal.status_line import StatusLine, shorten_home
from parley.version import __version__

if TYPE_CHECKING:
    from parley.protocol.base import Json
    from parley.sdk.permissions import PermissionResult, ToolPermissionContext
    from parley.terminal.interfaces.live import LiveInterface
    from parley.terminal.interfaces.plain import PlainInterface
    from parley.terminal.questions import TerminalQuestions

TWICE_SECONDS = 1.0
"""Two presses of Escape or Ctrl-C within this time belong together."""
HINT_SECONDS = 2.0
MAX_PANEL_LINES = 8
MODES = ("default", "acceptEdits", "plan")
BYPASS = "bypassPermissions"
HANGUP_CODE = 128 + signal.SIGHUP
GREETING = "Type a prompt. /help lists commands, esc interrupts, ctrl-c twice quits."
EXIT_COMMANDS = ("/exit", "/quit")


class ConversationApplication(View):
    def __init__(self, target: SessionTarget, environment: Mapping[str, str], *, is_plain: bool = False) -> None:
        self.styles = Styles.from_environment(environment)
        self._environment = environment
        self._is_plain = is_plain or is_dumb(environment)
        self._log = PromptLog(find_folder(environment))
        self.pastes = Pastes()
        self.interface = self._make_interface()
        self.transcript = TerminalTranscript(self.interface.print, self.styles, lambda: self.width, monotonic)
        self.transcript.echoes = not self._is_plain
        self.transcript.more_hint = "" if self._is_plain else " (ctrl-o shows all)"
        callbacks = Callbacks(self._decide, self._elicit, self._warn, self._notice)
        self.session = TerminalSession(target, callbacks, self.transcript, self.changed)
        self.session.on_lost = self._lose
        self.session.on_idle = lambda: self._alert("Parley has finished")
        self.frames = FrameTimer(self._draw)
        self.status_line = StatusLine(self, self.frames.schedule)
        self.live_lines: list[str] = []
        self._has_panel = False
        self._is_silent = False
        self._hint = ""
        self._escaped_at = self._cancelled_at = float("-inf")
        self._shell: ShellCommand | None = None
        self._shell_notes: list[str] = []
        self._early_warnings: list[str] = []
        """What the engine wrote to stderr before it was ready. If it fails, it says so itself."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._exit_code = 0

    def _make_interface(self) -> LiveInterface | PlainInterface:
        if self._is_plain:
            from parley.terminal.interfaces.plain import PlainInterface

            return PlainInterface(self, self._environment)
        from parley.terminal.interfaces.live import LiveInterface, PromptCompleter

        reflows = "XTERM_VERSION" not in self._environment
        return LiveInterface(self, self._log, PromptCompleter(self), reflows=reflows)

    # The life of the terminal.

    async def run(self) -> int:
        """Show the conversation until the person leaves; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._hang_up, number)
        model = self.session.model or self._environment.get("ANTHROPIC_MODEL", "")
        place = self.session.target.server or shorten_home(self.cwd)
        facts = [part for part in (f"Parley {__version__}", reveal_line(model), reveal_line(place)) if part]
        self.transcript.print("note", [self.styles.bold(shorten(" · ".join(facts), self.width))])
        self.transcript.note(GREETING)
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
        self.changed()
        self.run_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self.session.connect()
        except (ClaudeSDKError, ValueError, OSError) as exc:
            if not self.transcript.has_result:  # a result has said it
                self.transcript.print("note", [self.styles.bad(line) for line in reveal_text(str(exc)).split("\n")])
            self.leave(1)
            return
        gc.freeze()  # modules live until the end
        gc.enable()  # the start of the executable disabled it
        self.print_early_warnings()
        await self._apply_settings()
        await asyncio.to_thread(make_answer, lambda: self.width, self.styles)  # imports what formats answers
        if self.session.target.options.resume == "":
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
            self._is_silent = found.get("preferredNotifChannel") == "notifications_disabled"
            self.interface.set_vi(found.get("editorMode") in ("vim", "vi"))

    @cached_property
    def _questions(self) -> TerminalQuestions:
        from parley.terminal.questions import TerminalQuestions, read_local  # not needed for the first frame

        def read(path: str) -> str | None:
            return None if self.session.target.server else read_local(self.cwd)(path)

        return TerminalQuestions(self.interface, self.transcript, lambda: self.width, read)

    def _alert(self, text: str) -> None:
        """Call the person, who may be looking elsewhere. `text` is ours, not the model's."""
        self.interface.alert(text, is_silent=self._is_silent)

    async def _decide(self, tool_name: str, given: Json, context: ToolPermissionContext) -> PermissionResult:
        self._alert("Parley has a question")
        return await self._questions.decide(tool_name, given, context)

    async def _elicit(self, request: Any) -> Any:
        self._alert("Parley has a question")
        return await self._questions.elicit(request)

    def _lose(self, reason: str) -> None:
        """The engine has exited, or the gateway is gone."""
        if not self._is_closing:
            self.transcript.print("note", [self.styles.bad(line) for line in reveal_text(reason).split("\n")])
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
            self._keep_input()
            self.frames.close()
            self.transcript.finish_answer()
            self.live_lines = []
            self.interface.close()

    async def _close(self) -> None:
        self._is_closing = True
        self.frames.close()
        if self._shell is not None:
            self._shell.stop()
        for task in list(self._tasks):
            task.cancel()
        await self.status_line.close()
        had_prompts = bool(self.session.prompts)
        await self.session.close()
        target = self.session.target
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
            self.transcript.warn(str(exc) or type(exc).__name__)
        except Exception as exc:  # a fault of a command must not end the conversation
            self.transcript.warn(f"this is a bug: {exc!r}")
        self.changed()

    # Frames.

    def changed(self) -> None:
        """Something that is shown may have changed."""
        self.status_line.update(self.session.status)
        self.frames.schedule()

    def _draw(self) -> bool:
        self.transcript.advance()
        self.live_lines = [*self._panel_lines(), *self.transcript.live_lines(" · esc interrupts")]
        self.interface.draw()
        return self.transcript.is_moving and not self._is_plain

    def _panel_lines(self) -> list[str]:
        """The todos and the background tasks, if the person wants to see them."""
        if not self._has_panel:
            return []
        todos, tasks = self.transcript.work.lines(self.styles, self.width), self.transcript.calls.background
        hidden = len(todos) - MAX_PANEL_LINES
        lines = todos[:MAX_PANEL_LINES] + [self.styles.dim(f"  … {hidden} more, /todos lists them")] * (hidden > 0)
        for task in list(tasks.values())[-MAX_PANEL_LINES:]:
            activity = f" · {task.activity}" if task.activity and task.is_running else ""
            lines.append(shorten(f"  ▸ {task.title} · {reveal_line(task.status)}{activity}", self.width))
        return [self.styles.bold("Todos and background tasks"), *(lines or [self.styles.dim("  none yet")]), ""]

    def toggle_panel(self) -> None:
        """Show or hide the todos and the background tasks."""
        self._has_panel = not self._has_panel
        self.changed()

    def queue_lines(self) -> list[str]:
        width = self.width
        queued = [f"  queued: {reveal_line(prompt.text)}" for prompt in self.session.queue]
        hint = ["  ↑ takes the last one back"] if queued else []
        return [self.styles.dim(shorten(line, width)) for line in (*queued, *hint)]

    def status_lines(self, columns: int) -> list[str]:
        lines = self.status_line.render(columns)
        return [self.styles.warning(shorten(self._hint, columns)), *lines[1:]] if self._hint else lines

    @property
    def is_idle(self) -> bool:
        return not self.session.is_busy and not self.session.queue and self._shell is None

    def _show_hint(self, text: str) -> None:
        """Show something in the status line for a moment."""
        self._hint = text
        self.frames.schedule()

        def forget() -> None:
            if self._hint == text:
                self._hint = ""
                self.frames.schedule()

        asyncio.get_running_loop().call_later(HINT_SECONDS, forget)

    def _warn(self, text: str) -> None:
        """A line that the engine wrote to stderr."""
        if text.strip() and not self.session.is_connected:
            self._early_warnings.append(text)
        elif text.strip():
            self.transcript.warn(text)
            self.frames.schedule()

    def _notice(self, text: str) -> None:
        self.transcript.warn(text)
        self.frames.schedule()

    def print_early_warnings(self) -> None:
        lines, self._early_warnings = self._early_warnings, []
        for line in lines:
            self.transcript.warn(line)

    # Keys.

    def submit(self, text: str) -> None:
        """The person sent what is typed."""
        text = text.strip()
        if not text:
            self.frames.schedule()
            return
        self.interface.clear_input()
        self._log.append(text)
        if text in EXIT_COMMANDS:
            self.leave()
        elif text.startswith("/") and find_command(text) is not None:
            self.run_task(self._run_command(text))
        elif text.startswith("/") and (meant := find_meant(text, self._list_engine_commands())) is not None:
            self._echo(text)
            self.transcript.warn(f"unknown command {text.split()[0]} (did you mean /{meant}?); nothing was sent")
        elif text.startswith("!"):
            self.run_task(self._run_shell(text[1:].strip()))
        elif text.startswith("#") and text.strip("# ") and "\n" not in text:
            self.run_task(self._remember(text))
        else:
            self.enqueue(text)
        self.changed()

    def enqueue(self, text: str) -> None:
        try:
            content = self.pastes.build_prompt(text)
        except ValueError as exc:
            self.transcript.warn(str(exc))
            return
        if self._shell_notes and not text.startswith("/"):
            notes, self._shell_notes = "\n\n".join(self._shell_notes), []
            content = (
                f"{notes}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": notes}, *content]
            )
        self.session.enqueue(QueuedPrompt(text, content))

    def _list_engine_commands(self) -> list[str]:
        """The names of the engine's commands, of MCP prompts too: any could be meant before all servers are known."""
        client = self.session.client
        rows = (client.server_info or {}).get("commands") if client is not None else ()
        return [str(row.get("name")) for row in rows or ()]

    async def _run_command(self, text: str, *, echoes: bool = True) -> None:
        """Run a slash command of the terminal."""
        found = find_command(text)
        assert found is not None
        command, argument = found
        if echoes:
            self._echo(text)
        await self.session.ready.wait()
        await command.run(self, argument)
        await self.session.read_model(self.client)

    async def _remember(self, text: str) -> None:
        """`# TEXT`: add a line to a memory file."""
        from parley.terminal.commands.work import remember

        self._echo(text)
        await self.session.ready.wait()
        if (note := await remember(self, text.lstrip("# "))) is not None:
            self._shell_notes.append(note)

    async def _run_shell(self, command: str) -> None:
        if self.session.target.server:
            raise ValueError("!command runs on this machine, but the session is on a gateway: ask the model to run it")
        if not command or self._shell is not None:
            return
        self._echo(f"!{command}")
        self._shell = ShellCommand(command, self.cwd, self._print_output)
        self.transcript.enter(f"Running {reveal_line(command)}")
        try:
            self._shell_notes.append(await self._shell.run())
        finally:
            self._shell = None
            self.transcript.enter("")

    def _echo(self, text: str) -> None:
        if self.transcript.echoes:
            self.transcript.show_prompt(text)

    def _print_output(self, line: str) -> None:
        self.print([f"  {reveal_text(line)}"])

    def escape(self) -> None:
        """Escape: interrupt what runs; twice, rewind."""
        now = monotonic()
        if self._shell is not None:
            self._shell.stop()
        elif self.session.is_busy:
            self.run_task(self.session.interrupt())
        elif now - self._escaped_at < TWICE_SECONDS:
            self._escaped_at, self._hint = float("-inf"), ""
            if self.interface.input_text:
                self.interface.clear_input()
            else:
                self.run_task(self._run_command("/rewind", echoes=False))
        else:
            self._escaped_at = now
            self._show_hint("esc again clears the input" if self.interface.input_text else "esc again rewinds")

    def cancel(self) -> None:
        """Ctrl-C: clear the input or interrupt; twice, quit. What was typed stays in the history."""
        now = monotonic()
        if self.interface.input_text:
            self._keep_input()
            self.interface.clear_input()
        elif now - self._cancelled_at < TWICE_SECONDS:
            self.leave()
            return
        elif self._shell is not None:
            self._shell.stop()
        elif self.session.is_busy:
            self.run_task(self.session.interrupt())
        self._cancelled_at = now
        self._show_hint("ctrl-c again quits")

    def _keep_input(self) -> None:
        """What is typed and not sent is found with Up, also by the next terminal."""
        if self.interface.input_text.strip():
            self._log.append(self.interface.input_text)

    def cycle_mode(self) -> None:
        options = self.session.target.options
        is_unlocked = options.allow_skip_permissions or options.permission_mode == BYPASS or options.skip_permissions
        modes = (*MODES, BYPASS) if is_unlocked else MODES
        mode = self.session.mode
        following = modes[(modes.index(mode) + 1) % len(modes)] if mode in modes else modes[0]
        self.run_task(self.session.set_mode(following))

    def expand_output(self) -> None:
        """Print the last output in full."""
        found = self.transcript.last_output
        if found is None:
            self._show_hint("no tool has run yet")
            return
        title, text = found
        lines = [f"  {line}" for line in reveal_text(text).split("\n")]
        self.print([self.styles.bold(reveal_line(title)), *lines])

    def toggle_thinking(self) -> None:
        """Print the model's last thinking, and show from now on what it thinks; or no longer."""
        self.transcript.shows_thinking = not self.transcript.shows_thinking
        self._show_hint(f"thinking is {'shown' if self.transcript.shows_thinking else 'hidden'} from now on")
        text = self.transcript.last_thinking
        if self.transcript.shows_thinking and text.strip():
            self.print([self.styles.dim(f"  {line}") for line in reveal_text(text).split("\n")])

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
        if not self.session.queue:
            return None
        prompt = self.session.queue.pop()
        self.changed()
        return prompt.text


def is_terminal_open() -> bool:
    try:
        termios.tcgetattr(0)
    except termios.error:
        return False
    return True


def run_conversation(target: SessionTarget, *, is_plain: bool = False) -> int:
    """Run a conversation at this terminal; returns the exit code."""
    return asyncio.run(ConversationApplication(target, os.environ, is_plain=is_plain).run())
