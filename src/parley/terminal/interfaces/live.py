"""The screen of a conversation: finished lines in the scrollback of the terminal, a few live lines below them.

    interface = LiveInterface(actions, log, completer)
    interface.print(lines)          these lines scroll away and are never touched again
    await interface.run(on_start)   until `close`

The live lines are the open end of the answer, the running calls, the queue, the input and the status line; a question
takes the place of the input. `Screen` draws them. `prompt_toolkit` reads the keys and edits the input.

`PromptCompleter` completes a `/command` at the start of a prompt, and an `@path` anywhere in it.

See also: `keys.py` for the keys, `dialogs.py` for questions.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History
from prompt_toolkit.layout import BufferControl, Layout, Window
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import DummyStyle

from parley.sdk.errors import ClaudeSDKError
from parley.settings.secret_variables import without_secrets
from parley.terminal.base import View
from parley.terminal.commands import COMMANDS
from parley.terminal.interfaces.dialogs import LiveDialogs, Picker, Row, lay_out
from parley.terminal.interfaces.keyboard import ESCAPE_SECONDS, PASTES_OFF, PASTES_ON, KeyPress
from parley.terminal.interfaces.screen import Screen
from parley.terminal.prompts import PromptLog
from parley.terminal.rendering.text import reveal_line, shorten
from parley.workspace.search_path import environment_for

if TYPE_CHECKING:
    from parley.terminal.application import ConversationApplication


PAUSE_SECONDS = 0.7
"""A question waits until nothing was typed for this long, so that a key for the prompt does not answer it."""
AWAY_SECONDS = 10.0
"""Who has pressed no key for this long may be looking elsewhere."""
MAX_COMPLETIONS = 8
MAX_PICKER_ROWS = 18
ROOMY_ROWS = 12
"""A window of this height has an empty row above the input."""
PROMPT = "> "


class LoggedHistory(History):
    """The prompts of earlier terminals. The application logs new ones."""

    def __init__(self, log: PromptLog) -> None:
        super().__init__()
        self._log = log

    def load_history_strings(self) -> Iterable[str]:
        return self._log.read()

    def store_string(self, string: str) -> None:
        return


class FrameRenderer(Renderer):
    """Draws our frames in place of those of `prompt_toolkit`."""

    def __init__(self, screen: Screen, draw: Callable[[], None]) -> None:
        super().__init__(DummyStyle(), DummyOutput())
        self._screen = screen
        self._draw = draw
        self._marks_pastes = False

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        self._mark_pastes(True)
        self._draw()

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Before another program uses the terminal, and at the end."""
        self._mark_pastes(False)
        self._screen.clear()

    def clear(self) -> None:
        self.erase()
        self._screen.write("\x1b[2J\x1b[H")

    def _mark_pastes(self, is_on: bool) -> None:
        if is_on != self._marks_pastes:
            self._marks_pastes = is_on
            self._screen.write(PASTES_ON if is_on else PASTES_OFF)


class LiveInterface(LiveDialogs):
    def __init__(
        self, actions: ConversationApplication, log: PromptLog, completer: Completer, *, reflows: bool = True
    ) -> None:
        """`reflows`: a narrower window wraps the lines that are on it. xterm cuts them."""
        super().__init__(Screen(has_cursor=True, reflows=reflows), actions.styles)
        self.actions = actions
        self.is_asking = False
        self._question: tuple[list[str], tuple[int, int] | None] = ([], None)
        """How the question looks now, and the cursor in it."""
        self._keys: asyncio.Queue[KeyPress] = asyncio.Queue()
        """The keys for the question."""
        self._turn = asyncio.Lock()
        """One question at a time: a request of the engine waits while a command asks something."""
        self._pending: list[str] = []
        """Lines that wait until the screen can print them."""
        self._typed_at = 0.0
        self._pressed_at = monotonic()
        self._is_guarded = False
        self._guarded_until = 0.0
        """Until then, keys are still meant for the prompt."""
        self.input = Buffer(
            completer=completer,
            complete_while_typing=Condition(self._completes),
            history=LoggedHistory(log),
            multiline=True,
            tempfile_suffix=".md",
        )
        self.app = self._make_application()

    def _make_application(self) -> Application[None]:
        from parley.terminal.interfaces.keys import bind_keys

        app: Application[None] = Application(
            layout=Layout(Window(BufferControl(self.input))),
            key_bindings=bind_keys(self),
            output=DummyOutput(),
            erase_when_done=True,
            terminal_size_polling_interval=None,
            include_default_pygments_style=False,
        )
        app.ttimeoutlen = app.timeoutlen = ESCAPE_SECONDS
        app.key_processor.before_key_press += lambda _: self._note_key()
        app.renderer = FrameRenderer(self.screen, self.draw)
        return app

    # What is shown.

    def draw(self) -> None:
        """Draw a frame, with the lines that were printed since the last."""
        if self.app.is_running and not self.app._running_in_terminal:
            self.screen.show(*self._lay_out(), self.take_pending())

    def _lay_out(self) -> tuple[list[str], tuple[int, int] | None]:
        """The live lines: those of the conversation that there is room for, the question or the input, the status."""
        columns, rows = self.screen.width, self.screen.height
        (lines, cursor), status = self._question, self.actions.status_lines(columns)
        if not self.is_asking:
            lines, cursor = self._lay_out_input(columns, max(1, rows // 2))
        room = max(0, rows - len(lines) - len(status) - 2)
        above = [*self.actions.live_lines[-room:]] if room else []
        above += [""] if rows >= ROOMY_ROWS else []
        at = None if cursor is None else (len(above) + cursor[0], cursor[1])
        return [*above, *lines, *status], at

    def _lay_out_input(self, columns: int, max_rows: int) -> tuple[list[str], tuple[int, int]]:
        """The prompts that wait, what is typed, and completions of it."""
        queue, document = self.actions.queue_lines(), self.input.document
        marked = range(*document.selection_range()) if document.selection is not None else ()
        typed, (row, column) = lay_out(
            PROMPT, document.text, document.cursor_position, columns, marked, self.styles.reverse
        )
        first = max(0, row - max_rows + 1)
        lines = [*queue, *typed[first : first + max_rows], *self._list_completions(columns)]
        return lines, (len(queue) + row - first, column)

    def _completes(self) -> bool:
        """Whether completions are listed while the prompt is typed: for /commands and @paths."""
        before = self.input.document.text_before_cursor
        return before.startswith("/") or before.rpartition(" ")[2].rpartition("\n")[2].startswith("@")

    def _list_completions(self, columns: int) -> list[str]:
        state = self.input.complete_state
        if state is None or not state.completions:
            return []
        selected = state.complete_index or 0
        first = max(0, min(selected - MAX_COMPLETIONS // 2, len(state.completions) - MAX_COMPLETIONS))
        lines = []
        for index, one in enumerate(state.completions[first : first + MAX_COMPLETIONS], first):
            label, about = reveal_line(one.display_text), reveal_line(one.display_meta_text)
            line = shorten(f"  {label:<24} {about}" if about else f"  {label}", columns)
            lines.append(self.styles.reverse(line) if index == state.complete_index else self.styles.dim(line))
        return lines

    # What others do with it.

    @property
    def width(self) -> int:
        return self.screen.width

    @property
    def input_text(self) -> str:
        """What is typed and not sent."""
        return self.input.text

    def set_input(self, text: str) -> None:
        self.input.text = text
        self.input.cursor_position = len(text)

    def insert_text(self, text: str) -> None:
        """Add text where the cursor is."""
        self.input.insert_text(text)

    def clear_input(self) -> None:
        """The prompt was sent, or dropped: it is in the history."""
        self._typed_at = 0.0
        self.input.reset(append_to_history=bool(self.input.text.strip()))
        self.input.load_history_if_not_yet_loaded()

    def alert(self, text: str, *, is_silent: bool) -> None:
        """A bell and, in terminals that know OSC 9, a notification of the desktop; if no key was pressed lately."""
        if is_silent or monotonic() - self._pressed_at < AWAY_SECONDS:
            return
        desktop = "" if os.environ.get("TERM") == "linux" else f"\x1b]9;{text}\x1b\\"
        self.screen.write(f"\x07{desktop}")

    def copy(self, encoded: str) -> bool:
        """Ask the terminal to put a text, in base64, on the clipboard (OSC 52)."""
        self.screen.write(f"\x1b]52;c;{encoded}\x1b\\")
        return True

    def set_vi(self, is_on: bool) -> None:
        """Edit the input with the keys of vi."""
        self.app.editing_mode = EditingMode.VI if is_on else EditingMode.EMACS

    async def edit(self, path: str, folders: Sequence[str]) -> None:
        """Open a file in the person's editor, which is in none of the folders, and wait until it is closed."""
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        environment = environment_for(editor, without_secrets(os.environ), folders)
        await run_in_terminal(lambda: subprocess.call([*shlex.split(editor), path], env=environment), in_executor=True)

    def print(self, lines: Sequence[str]) -> None:
        """Print lines with the next frame."""
        self._pending += lines

    async def run(self, on_start: Callable[[], None]) -> None:
        """Read keys until `close`."""
        self.screen.print(self.take_pending())
        self.input.load_history_if_not_yet_loaded()
        await self.app.run_async(pre_run=on_start, set_exception_handler=False)

    def close(self) -> None:
        """Leave the screen as it is, without the live lines."""
        self.draw()
        if self.app.is_running:
            self.app.exit()

    def take_pending(self) -> list[str]:
        """The lines that are not printed yet."""
        lines, self._pending = self._pending, []
        return lines

    # Questions.

    @property
    def dialog_rows(self) -> int:
        return max(6, min(self.screen.height - 6, MAX_PICKER_ROWS))

    def show_dialog(self, lines: list[str], cursor: tuple[int, int] | None = None) -> None:
        self._question = lines, cursor
        self.draw()

    async def read_key(self) -> KeyPress:
        return await self._keys.get()

    async def pick(self, picker: Picker) -> list[Row] | None:
        async with self._asking():
            return await super().pick(picker)

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        async with self._asking():
            return await super().ask(prompt, initial)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        async with self._turn:
            self._keys, self.is_asking = asyncio.Queue(), True
            self._guarded_until = monotonic() + PAUSE_SECONDS if self._is_guarded else 0.0
            self._is_guarded = False
            try:
                yield
            finally:
                self.is_asking = False
                self.draw()

    async def wait_for_pause(self) -> None:
        """Wait while a prompt is being typed; if it is not finished, its next keys do not answer the question."""
        while (left := self._typed_at + PAUSE_SECONDS - monotonic()) > 0:  # noqa: ASYNC110  # each key moves the end
            await asyncio.sleep(left)
        self._is_guarded = bool(self.input.text)

    def press(self, key: KeyPress) -> None:
        """A key for the question."""
        if monotonic() < self._guarded_until:
            self._guarded_until = monotonic() + PAUSE_SECONDS
        else:
            self._keys.put_nowait(key)

    def _note_key(self) -> None:
        self._pressed_at = monotonic()
        if not self.is_asking:
            self._typed_at = monotonic()


COMMAND = re.compile(r"/([\w:-]*)")
MENTION = re.compile(r"""(?:^|(?<=[\s(]))@("?)([^\s"`]*)$""")
MAX_META_CELLS = 60
OWN = (("exit", "Quit"),)
"""Commands of the application itself."""


class PromptCompleter(Completer):
    def __init__(self, view: View) -> None:
        self._view = view

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Commands only: files are known to the engine, which is asked without blocking."""
        typed = COMMAND.fullmatch(document.text_before_cursor)
        if typed is None:
            return
        name = typed[1].lower()
        for command, summary in sorted(self._list_commands().items()):
            if command.lower().startswith(name):
                yield Completion(
                    f"/{command}",
                    start_position=-len(typed[0]),
                    display=f"/{reveal_line(command)}",
                    display_meta=shorten(reveal_line(summary), MAX_META_CELLS),
                )

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        for completion in self.get_completions(document, complete_event):
            yield completion
        typed = MENTION.search(document.text_before_cursor)
        if typed is None:
            return
        for path in await self._find_files(typed[2]):
            yield Completion(
                quote_mention(path), start_position=-len(typed[1] + typed[2]) - 1, display=reveal_line(path)
            )

    def _list_commands(self) -> dict[str, str]:
        """What each does, by name; those of the terminal hide those of the engine."""
        try:
            found = (self._view.client.server_info or {}).get("commands") or ()
        except ValueError:  # the engine is not ready
            found = ()
        theirs = {str(row.get("name")): str(row.get("description", "")) for row in found if isinstance(row, dict)}
        return {**theirs, **dict(OWN), **{command.name: command.summary for command in COMMANDS}}

    async def _find_files(self, query: str) -> list[str]:
        try:
            return [path for path in await self._view.client.file_suggestions(query) if path.isprintable()]
        except (ClaudeSDKError, ValueError):  # the engine is not ready, or ends: there is nothing to suggest
            return []


def quote_mention(path: str) -> str:
    """How a prompt names a file, as the engine reads it."""
    return f'@"{path}"' if re.search(r"\s", path) else f"@{path}"
