"""The screen of a conversation: finished lines in the scrollback of the terminal, a few live lines below them.

    screen = ConversationScreen(actions, styles, PromptSettings(...))
    screen.print(lines)             these lines scroll away and are never touched again
    await screen.run()              until `exit`

The live lines are the open end of the answer, the running calls, the queue, the input and the status line; a question
takes the place of the input. `prompt_toolkit` edits the input and draws the live lines; it never uses the alternate
screen. A frame is one write, so that nothing flickers: the live lines are erased, new lines printed, and the live
lines drawn again.

See also: `keys.py` for the keys, `picker.py` for questions.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import History
from prompt_toolkit.layout import BufferControl, ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from parley.settings.secret_variables import without_secrets
from parley.terminal.base import Row
from parley.terminal.interfaces.base import count_wrapped_rows, terminal_size
from parley.terminal.interfaces.picker import Picker
from parley.terminal.prompts import PromptLog
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import mask_hidden, reveal_line, shorten
from parley.workspace.search_path import environment_for

if TYPE_CHECKING:
    from parley.terminal.application import ConversationApplication

BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
"""Ask the terminal to show the frame at once. Terminals that do not know it ignore it."""
ESCAPE_SECONDS = 0.05
"""How long the rest of a sequence may take: an Escape that is alone for longer was pressed as such."""
PAUSE_SECONDS = 0.7
"""A question waits until nothing was typed for this long, so that a key for the prompt does not answer it."""
MAX_COMPLETIONS = 8
MAX_PICKER_ROWS = 18
ROOMY_ROWS = 12
"""A window of this height has an empty row above the input."""
PROMPT = "> "


@dataclass(frozen=True)
class PromptSettings:
    """How the input behaves."""

    log: PromptLog
    completer: Completer | None = None
    reflows: bool = True
    """Whether a narrower window wraps the lines that are on it. xterm cuts them."""


class LoggedHistory(History):
    """The prompts of earlier terminals. The application logs new ones."""

    def __init__(self, log: PromptLog) -> None:
        super().__init__()
        self._log = log

    def load_history_strings(self) -> Iterable[str]:
        return self._log.read()

    def store_string(self, string: str) -> None:
        return


class HiddenCharacters(Processor):
    """Shows what a paste has brought that acts on the terminal or cannot be seen. The text itself stays as it is."""

    def apply_transformation(self, given: TransformationInput) -> Transformation:
        return Transformation([(style, mask_hidden(text)) for style, text, *_ in given.fragments])


class FrameOutput(Vt100_Output):
    """Writes each frame at once."""

    is_held = False

    def flush(self) -> None:
        if self._buffer and not self.is_held:
            self._buffer = [BEGIN_FRAME, *self._buffer, END_FRAME]
            super().flush()

    @contextmanager
    def frame(self) -> Iterator[None]:
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False
            self.flush()


class InlineApplication(Application[None]):
    """An application below the lines that it prints."""

    reflows = True

    def print_above(self, lines: Sequence[str]) -> None:
        """Print lines for good, above the live ones."""
        output = self.output
        assert isinstance(output, FrameOutput)
        with output.frame():
            self._erase_live()
            for line in lines:
                output.write_raw(f"{line}\r\n")
            self._redraw()

    def _erase_live(self) -> None:
        """Move to the start of the live lines and erase from there on."""
        renderer, output = self.renderer, self.output
        screen, size, cursor = renderer.last_rendered_screen, renderer._last_size, renderer._cursor_pos
        if screen is not None and size is not None:
            columns = output.get_size().columns
            above, total = cursor.y, screen.height
            if self.reflows and columns < size.columns:
                above, total = count_wrapped_rows(screen, cursor, columns)
            output.write_raw("\r")
            output.cursor_up(above)
            # tmux moves the window into its history if all of it is erased at once: erase the first row by itself.
            output.write_raw("\x1b[K" + ("\x1b[B\x1b[J\x1b[A" if total > 1 else ""))
        renderer._cursor_pos = Point(x=0, y=0)
        output.reset_attributes()
        output.enable_autowrap()
        renderer.reset(leave_alternate_screen=False)

    def _on_resize(self) -> None:
        if self._is_running and not self._running_in_terminal:
            self.print_above([])

    @property
    def can_print(self) -> bool:
        return self._is_running and not self._running_in_terminal


class ConversationScreen:
    def __init__(self, actions: ConversationApplication, styles: Styles, settings: PromptSettings) -> None:
        self.actions = actions
        self.styles = styles
        self.picker: Picker | None = None
        self._picked: asyncio.Future[list[Row] | None] | None = None
        self.asked: asyncio.Future[str | None] | None = None
        self._label = ""
        self._dialog = asyncio.Lock()
        """One question at a time: a request of the engine waits while a command asks something."""
        self._pending: list[str] = []
        """Lines that wait until the screen can print them."""
        self.typed_at = 0.0
        self._is_guarded = False
        self._guarded_until = 0.0
        """Until then, keys are still meant for the prompt."""
        self.input = Buffer(
            completer=settings.completer,
            complete_while_typing=Condition(self._completes),
            history=LoggedHistory(settings.log),
            multiline=True,
            tempfile_suffix=".md",
        )
        self.answer = Buffer(multiline=False)
        self._picker_control = FormattedTextControl(self._picker_text, focusable=True, show_cursor=False)
        shown: list[Processor] = [HiddenCharacters()]
        self._input_control = BufferControl(self.input, focusable=True, input_processors=shown)
        self._answer_control = BufferControl(self.answer, focusable=True, input_processors=shown)
        self.app = self._make_application(settings)

    # What is shown.

    def _make_application(self, settings: PromptSettings) -> InlineApplication:
        from parley.terminal.interfaces.keys import bind_keys

        output = FrameOutput(
            sys.stdout, lambda: Size(*reversed(terminal_size())), default_color_depth=ColorDepth.DEPTH_4_BIT,
            enable_bell=False, enable_cpr=False,
        )  # fmt: skip
        app = InlineApplication(
            layout=Layout(self._make_layout(), focused_element=self._input_control),
            key_bindings=bind_keys(self),
            output=output,
            color_depth=ColorDepth.DEPTH_4_BIT,
            erase_when_done=True,
            terminal_size_polling_interval=None,
            include_default_pygments_style=False,
        )
        app.reflows = settings.reflows
        app.ttimeoutlen = app.timeoutlen = ESCAPE_SECONDS
        app.key_processor.before_key_press += self._note_key
        return app

    def _make_layout(self) -> HSplit:
        def text_window(lines: Callable[[], list[str]]) -> ConditionalContainer:
            control = FormattedTextControl(lambda: ANSI("\n".join(lines())))
            window = Window(control, dont_extend_height=True, wrap_lines=False, height=Dimension(min=0))
            return ConditionalContainer(window, Condition(lambda: bool(lines())))

        is_picking, is_asking = Condition(lambda: self.picker is not None), Condition(lambda: self.asked is not None)
        picker = Window(self._picker_control, dont_extend_height=True, height=Dimension(min=0))
        prompt = Window(
            self._input_control,
            get_line_prefix=lambda line, wrapped: PROMPT if line == wrapped == 0 else "  ",
            wrap_lines=True,
            dont_extend_height=True,
            height=lambda: Dimension(min=1, max=max(1, terminal_size()[1] // 2)),
        )
        answer = Window(
            self._answer_control,
            get_line_prefix=lambda line, wrapped: self._label if line == wrapped == 0 else "  ",
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(min=1, max=5),
        )
        is_free = ~is_picking & ~is_asking
        return HSplit(
            [
                text_window(self._live_lines),
                ConditionalContainer(Window(height=1), Condition(lambda: terminal_size()[1] >= ROOMY_ROWS)),
                ConditionalContainer(picker, is_picking),
                ConditionalContainer(answer, is_asking),
                ConditionalContainer(
                    HSplit([text_window(self.actions.queue_lines), prompt, text_window(self._list_completions)]),
                    is_free,
                ),
                text_window(lambda: self.actions.status_lines(terminal_size()[0])),
            ]
        )

    def _live_lines(self) -> list[str]:
        columns, rows = terminal_size()
        room = max(0, rows - self._rows_below(columns, rows) - 2)
        lines = self.actions.live_lines
        return lines[max(0, len(lines) - room) :] if room else []

    def _rows_below(self, columns: int, rows: int) -> int:
        """How many rows everything but the live lines needs."""
        status = len(self.actions.status_lines(columns))
        if self.picker is not None:
            return status + len(self.picker.lines(self.styles, columns, self._picker_rows(rows)))
        if self.asked is not None:
            return status + 2
        typed = sum(len(line) // max(1, columns - 2) + 1 for line in self.input.text.split("\n"))
        listed = len(self._list_completions())
        return status + len(self.actions.queue_lines()) + min(typed, max(1, rows // 2)) + listed

    def _picker_rows(self, rows: int) -> int:
        return max(6, min(rows - 6, MAX_PICKER_ROWS))

    def _picker_text(self) -> ANSI:
        columns, rows = terminal_size()
        if self.picker is None:
            return ANSI("")
        return ANSI("\n".join(self.picker.lines(self.styles, columns, self._picker_rows(rows))))

    def _completes(self) -> bool:
        """Whether completions are listed while the prompt is typed: for /commands and @paths."""
        before = self.input.document.text_before_cursor
        return before.startswith("/") or before.rpartition(" ")[2].rpartition("\n")[2].startswith("@")

    def _list_completions(self) -> list[str]:
        state, columns = self.input.complete_state, terminal_size()[0]
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
        return terminal_size()[0]

    @property
    def input_text(self) -> str:
        return self.input.text

    def set_input(self, text: str) -> None:
        self.input.text = text
        self.input.cursor_position = len(text)

    def insert_text(self, text: str) -> None:
        self.input.insert_text(text)

    def clear_input(self) -> None:
        """The prompt was sent, or dropped: it is in the history."""
        self.typed_at = 0.0
        self.input.reset(append_to_history=bool(self.input.text.strip()))

    def set_vi(self, is_on: bool) -> None:
        self.app.editing_mode = EditingMode.VI if is_on else EditingMode.EMACS

    async def edit(self, path: str, folders: Sequence[str]) -> None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        environment = environment_for(editor, without_secrets(os.environ), folders)
        await run_in_terminal(lambda: subprocess.call([*shlex.split(editor), path], env=environment), in_executor=True)

    def print(self, lines: Sequence[str]) -> None:
        """Print lines with the next frame."""
        self._pending += lines

    def draw(self) -> None:
        """Draw a frame, with the lines that were printed since the last."""
        if not self.app.can_print:
            return
        if self._pending:
            lines, self._pending = self._pending, []
            self.app.print_above(lines)
        else:
            self.app.invalidate()

    async def run(self, on_start: Callable[[], None]) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in self.take_pending()))
        await self.app.run_async(pre_run=on_start, set_exception_handler=False)

    def close(self) -> None:
        """Leave the screen as it is, without the live lines."""
        self.draw()
        if self.app.is_running:
            self.app.exit()

    def take_pending(self) -> list[str]:
        """The lines that were not printed before the end."""
        lines, self._pending = self._pending, []
        return lines

    async def pick(self, picker: Picker) -> list[Row] | None:
        """Let the person pick; None after Escape."""
        async with self._dialog:
            self.picker = picker
            self._guarded_until = monotonic() + PAUSE_SECONDS if self._is_guarded else 0.0
            self._is_guarded = False
            self._picked = asyncio.get_running_loop().create_future()
            self.app.layout.focus(self._picker_control)
            self.draw()
            try:
                return await self._picked
            finally:
                self.picker = self._picked = None
                self._focus_input()

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        """Ask for a line of text; None after Escape."""
        async with self._dialog:
            self.answer.text = initial
            self.answer.cursor_position = len(initial)
            self._label, self.asked = prompt, asyncio.get_running_loop().create_future()
            self.app.layout.focus(self._answer_control)
            self.draw()
            try:
                return await self.asked
            finally:
                self.asked = None
                self._focus_input()

    def _focus_input(self) -> None:
        if not self.app.is_done:
            self.app.layout.focus(self._input_control)
            self.draw()

    async def wait_for_pause(self) -> None:
        """Wait while a prompt is being typed; if it is not finished, its next keys do not answer the question."""
        while (left := self.typed_at + PAUSE_SECONDS - monotonic()) > 0:  # noqa: ASYNC110  # each key moves the end
            await asyncio.sleep(left)
        self._is_guarded = bool(self.input.text)

    def press_picker(self, key: str, text: str = "") -> None:
        if monotonic() < self._guarded_until:
            self._guarded_until = monotonic() + PAUSE_SECONDS
            return
        picker, picked = self.picker, self._picked
        if picker is not None and picked is not None and not picked.done():
            picker.press(key, text)
            if picker.is_done:
                picked.set_result(picker.result)

    def answer_asked(self, text: str | None) -> None:
        if self.asked is not None and not self.asked.done():
            self.asked.set_result(text)

    def _note_key(self, _sender: Any) -> None:
        if self.picker is None and self.asked is None:
            self.typed_at = monotonic()
