"""What a conversation needs of a terminal: `screen.py` implements it with live lines, `plain.py` line by line."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from parley.terminal.base import Row
from parley.terminal.interfaces.picker import Picker

if TYPE_CHECKING:
    from prompt_toolkit.data_structures import Point
    from prompt_toolkit.layout.screen import Screen

DEFAULT_SIZE = (80, 24)


class Dialogs(Protocol):
    """How a person is asked."""

    async def wait_for_pause(self) -> None:
        """Wait while a prompt is being typed, so that a key for it does not answer a question."""

    async def pick(self, picker: Picker) -> list[Row] | None:
        """The picked rows; None after Escape."""

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        """A line of text; None after Escape."""


class Interface(Dialogs, Protocol):
    """A terminal."""

    @property
    def width(self) -> int: ...

    @property
    def input_text(self) -> str:
        """What is typed and not sent."""

    def set_input(self, text: str) -> None: ...

    def insert_text(self, text: str) -> None:
        """Add text where the cursor is."""

    def clear_input(self) -> None: ...

    def set_vi(self, is_on: bool) -> None:
        """Edit the input with the keys of vi."""

    def print(self, lines: Sequence[str]) -> None:
        """Print lines with the next frame."""

    def draw(self) -> None:
        """Draw a frame, with the lines that were printed since the last."""

    async def run(self, on_start: Callable[[], None]) -> None:
        """Read keys until `close`."""

    def close(self) -> None: ...

    def take_pending(self) -> list[str]:
        """The lines that were not printed before the end."""

    async def edit(self, path: str, folders: Sequence[str]) -> None:
        """Open a file in the person's editor, which is in none of the folders, and wait until it is closed."""


def terminal_size() -> tuple[int, int]:
    """Columns and rows of the window."""
    try:
        columns, rows = os.get_terminal_size(1)
    except OSError:
        return DEFAULT_SIZE
    return columns or DEFAULT_SIZE[0], rows or DEFAULT_SIZE[1]


def count_wrapped_rows(screen: Screen, cursor: Point, columns: int) -> tuple[int, int]:
    """After a terminal wrapped a drawn screen: how many rows are above the cursor, and how many there are in all."""
    heights = [max(1, -(-row_width(screen, row) // columns)) for row in range(screen.height)]
    return sum(heights[: cursor.y]) + cursor.x // columns, sum(heights)


def row_width(screen: Screen, row: int) -> int:
    """The cells of a row up to the last that is not blank."""
    return max((x + char.width for x, char in screen.data_buffer[row].items() if char.char.strip()), default=0)
