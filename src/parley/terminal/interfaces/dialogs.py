"""How a person is asked: `Dialogs` is what questions need, `LiveDialogs` asks in the live lines of a screen.

See also: `questions.py` for what is asked, `plain.py` for the same line by line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from parley.terminal.interfaces.keyboard import KeyPress, LineEditor
from parley.terminal.interfaces.picker import Picker, Row
from parley.terminal.interfaces.screen import Screen
from parley.terminal.rendering.requests import MIN_COLUMNS
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import cell_width, mask_hidden

LEAVING = ("escape", "hangup", "end_of_input")
CONTINUED = "  "
"""Before each row of a text but the first."""


class Dialogs(Protocol):
    """How a person is asked."""

    async def wait_for_pause(self) -> None:
        """Wait while a prompt is being typed, so that a key for it does not answer a question."""

    async def pick(self, picker: Picker) -> list[Row] | None:
        """The picked rows; None after Escape."""

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        """A line of text; None after Escape."""


class LiveDialogs:
    """A `Dialogs` of keys. A subclass reads them, and draws the lines of the question."""

    def __init__(self, screen: Screen, styles: Styles) -> None:
        self.screen = screen
        self.styles = styles

    async def read_key(self) -> KeyPress:
        raise NotImplementedError

    def show_dialog(self, lines: list[str], cursor: tuple[int, int] | None = None) -> None:
        """Draw a question in the live lines; none if it was answered."""
        raise NotImplementedError

    @property
    def dialog_rows(self) -> int:
        """How many rows a list may have."""
        return self.screen.height - 1

    async def wait_for_pause(self) -> None:
        return

    async def pick(self, picker: Picker) -> list[Row] | None:
        drawn: list[str] = []
        while not picker.is_done:
            lines = picker.lines(self.styles, self.screen.width, self.dialog_rows)
            self.show_dialog(lines)
            if not self.screen.has_cursor and lines != drawn:
                self.screen.print(lines)
                drawn = lines
            key = await self.read_key()
            picker.press("escape" if key.name in LEAVING else key.name, key.text)
        self.show_dialog([])
        return picker.result

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        editor = LineEditor(initial)
        if not self.screen.has_cursor:
            self.screen.print([prompt])
        while True:
            self.show_dialog(*lay_out(prompt, editor.text, editor.at, self.screen.width))
            key = await self.read_key()
            if key.name in ("escape", "hangup") or (key.name == "end_of_input" and not editor.text):
                self.show_dialog([])
                return None
            if key.name == "enter":
                self.show_dialog([])
                return editor.text
            editor.press(key)


def lay_out(
    label: str,
    text: str,
    at: int,
    columns: int,
    marked: Collection[int] = (),
    paint: Callable[[str], str] = str,
) -> tuple[list[str], tuple[int, int]]:
    """The rows of a text that is being edited, and the place of the cursor. `paint` shows the marked characters.

    What acts on the terminal or cannot be seen is masked; the text itself stays as it is.
    """
    columns = max(MIN_COLUMNS, columns - 1)
    rows, row, painted, cursor = [], label, label, (0, 0)
    for index, char in enumerate([*mask_hidden(text).replace("\t", " "), ""]):
        # A character may join the ones before it, so its width is that of the row with it.
        if char != "\n" and cell_width(row + char) > columns:
            rows.append(painted)
            row = painted = CONTINUED
        if index == at:
            cursor = (len(rows), cell_width(row))
        if char == "\n":
            rows.append(painted)
            row = painted = CONTINUED
        else:
            row, painted = row + char, painted + (paint(char) if index in marked else char)
    return [*rows, painted], cursor
