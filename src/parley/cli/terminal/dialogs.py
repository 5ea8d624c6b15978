"""How a run of one prompt asks: live lines that keys answer, without the extra `tui`.

See also: `terminal/questions.py` for what is asked, `terminal/interfaces/` for the same in a conversation.
"""

from __future__ import annotations

from parley.cli.terminal.keyboard import Keyboard, LineEditor
from parley.cli.terminal.screen import Screen
from parley.terminal.base import Row
from parley.terminal.interfaces.picker import Picker
from parley.terminal.rendering.requests import MIN_COLUMNS
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import cell_width, reveal_text

JOINERS = ("", "\u200d", "\ufe0f")
"""Characters of emoji, which have no effect of their own."""
LEAVING = ("escape", "hangup", "end_of_input")


class LiveDialogs:
    """A `Dialogs` of a screen and a keyboard."""

    def __init__(self, screen: Screen, keyboard: Keyboard, styles: Styles) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._styles = styles

    async def wait_for_pause(self) -> None:
        return  # `Keyboard.asking` drops the keys that were pressed before

    async def pick(self, picker: Picker) -> list[Row] | None:
        drawn: list[str] = []
        while not picker.is_done:
            lines = picker.lines(self._styles, self._screen.width, self._screen.height - 1)
            self._screen.show(lines)
            if not self._screen.has_cursor and lines != drawn:
                self._screen.print(lines)
                drawn = lines
            key = await self._keyboard.read()
            picker.press("escape" if key.name in LEAVING else key.name, key.text)
        self._screen.clear()
        return picker.result

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        editor = LineEditor(initial)
        if not self._screen.has_cursor:
            self._screen.print([prompt])
        while True:
            self._show_editor(prompt, editor)
            key = await self._keyboard.read()
            if key.name in ("escape", "hangup") or (key.name == "end_of_input" and not editor.text):
                self._screen.clear()
                return None
            if key.name == "enter":
                self._screen.clear()
                return editor.text
            editor.press(key)

    def _show_editor(self, label: str, editor: LineEditor) -> None:
        """The text with the cursor in it, broken at the edge of the window."""
        columns = max(MIN_COLUMNS, self._screen.width - 1)
        rows, cursor, row = [], (0, 0), label
        for index, char in enumerate([*editor.text, ""]):
            shown = char if char in JOINERS else reveal_text(char).rstrip("\n")
            if cell_width(row) + cell_width(shown) > columns:
                rows.append(row)
                row = ""
            if index == editor.at:
                cursor = (len(rows), cell_width(row))
            row += shown
            if char == "\n":
                rows.append(row)
                row = ""
        self._screen.show([*rows, row], cursor)
