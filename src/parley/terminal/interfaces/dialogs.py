"""How a person is asked: `Dialogs` is what questions need, `LiveDialogs` asks in the live lines of a screen.

`Picker` is a list to pick from: rows, a search text, a selected row. It does no I/O: dialogs pass keys and draw lines.

    picker = Picker("Which model?", rows)
    picker.press("down"); picker.press("enter")
    picker.result            -> [Row(...)]

See also: `questions.py` for what is asked, `plain.py` for the same line by line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from parley.terminal.interfaces.keyboard import KeyPress, LineEditor
from parley.terminal.interfaces.screen import Screen
from parley.terminal.rendering.requests import MIN_COLUMNS
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import cell_width, mask_hidden, reveal_line, reveal_text, shorten, wrap

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


PAGE_ROWS = 10
MAX_PREVIEW_LINES = 8
MIN_ROWS = 3


@dataclass(frozen=True)
class Row:
    """One row of a picker."""

    key: str
    label: str
    detail: str = ""
    mark: str = ""


@dataclass
class Picker:
    """A list that is being picked from."""

    title: str
    rows: Sequence[Row]
    _: KW_ONLY
    search: bool = True
    """Whether what is typed is searched for. If not, the key of a row picks it."""
    several: bool = False
    preview: Callable[[Row], str] | None = None
    selected: int = 0
    """The place of the selected row in those that match the search."""
    escape: str = "cancels"
    """What Escape does, for the hint."""
    search_text: str = field(default="", init=False)
    is_done: bool = field(default=False, init=False)
    result: list[Row] | None = field(default=None, init=False)
    """The picked rows; None after Escape."""
    _marked: set[str] = field(default_factory=set, init=False)
    """The keys of the rows that were picked so far, if several can be."""

    @property
    def matches(self) -> list[Row]:
        """The rows that contain every word of the search text."""
        words = self.search_text.lower().split()
        return [row for row in self.rows if all(word in f"{row.label} {row.detail}".lower() for word in words)]

    def press(self, key: str, text: str = "") -> None:
        """Handle a key: the name of one, or `text` with what it adds."""
        rows = self.matches
        moves = {"up": -1, "down": 1, "pageup": -PAGE_ROWS, "pagedown": PAGE_ROWS}
        if key in moves:
            self.selected = max(0, min(len(rows) - 1, self.selected + moves[key]))
        elif key == "escape":
            self._finish(None)
        elif key == "enter":
            self._accept(rows)
        elif key == "backspace":
            self.search_text, self.selected = self.search_text[:-1], 0
        elif key == "text":
            self._type(text, rows)

    def _accept(self, rows: list[Row]) -> None:
        if self.several and self._marked:
            self._finish([row for row in self.rows if row.key in self._marked])
        elif self.selected < len(rows):
            self._finish([rows[self.selected]])

    def _type(self, text: str, rows: list[Row]) -> None:
        if self.several and (text == " " or self._find_hot(text) is not None):
            found = self._find_hot(text) or rows[self.selected]
            self._marked ^= {found.key}
        elif self.search:
            self.search_text, self.selected = self.search_text + text, 0
        elif (hot := self._find_hot(text)) is not None:
            self._finish([hot])

    def _find_hot(self, text: str) -> Row | None:
        """The row whose key was pressed."""
        return next((row for row in self.rows if len(row.key) == 1 and row.key == text.lower()), None)

    def _finish(self, result: list[Row] | None) -> None:
        self.result, self.is_done = result, True

    def lines(self, styles: Styles, columns: int, max_rows: int) -> list[str]:
        """How it looks in a window of this size."""
        rows = self.matches
        head = [styles.bold(line) for line in wrap(reveal_text(self.title), columns)] if self.title else []
        if self.search:
            head.append(f"  search: {reveal_line(self.search_text)}{styles.reverse(' ')}")
        preview = self._preview_lines(rows, styles, columns, max_rows)
        room = max(MIN_ROWS, max_rows - len(head) - len(preview) - 1)
        first = max(0, min(self.selected - room // 2, len(rows) - room))
        shown = rows[first : first + room]
        # Details begin in one column, unless a label is too long for it.
        widths = [cell_width(self._label(row)) for row in shown]
        column = max((width for width in widths if width <= columns // 2), default=0)
        listed = [
            self._row_line(row, styles, (column, columns), is_selected=first + index == self.selected)
            for index, row in enumerate(shown)
        ]
        hint = f"{'space marks, enter answers' if self.several else 'enter picks'}, esc {self.escape}"
        if len(rows) > room:
            hint = f"{self.selected + 1} of {len(rows)} · {hint}"
        empty = [] if rows else [styles.dim("  nothing matches")]
        return [*head, *listed, *empty, *preview, styles.dim(shorten(f"  {hint}", columns))]

    def _label(self, row: Row) -> str:
        hot = f"{row.key} " if len(row.key) == 1 and not self.search else ""
        box = ("[x] " if row.key in self._marked else "[ ] ") if self.several else ""
        mark = f"{row.mark} " if row.mark else ""
        return f"{hot}{box}{mark}{reveal_line(row.label)}"

    def _row_line(self, row: Row, styles: Styles, size: tuple[int, int], *, is_selected: bool) -> str:
        """`size`: the column after the longest label, and the columns of the window."""
        column, columns = size
        start = "❯ " if is_selected else "  "
        label = shorten(self._label(row), max(1, columns - 2))
        gap = " " * (2 + max(0, column - cell_width(label)))
        room = columns - 2 - cell_width(label) - len(gap)
        detail = f"{gap}{shorten(reveal_line(row.detail), room)}" if row.detail and room > 4 else ""
        return start + (styles.accent(styles.bold(label)) if is_selected else label) + styles.dim(detail)

    def _preview_lines(self, rows: list[Row], styles: Styles, columns: int, max_rows: int) -> list[str]:
        if self.preview is None or self.selected >= len(rows):
            return []
        text = reveal_text(self.preview(rows[self.selected]))
        room = max(0, min(MAX_PREVIEW_LINES, max_rows // 3))
        lines = [f"  │ {line}" for line in wrap(text, max(10, columns - 4))]
        return [styles.dim(line) for line in lines[:room]]
