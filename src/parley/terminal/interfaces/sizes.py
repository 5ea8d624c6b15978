"""The size of the window, and of what is drawn in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit.data_structures import Point
    from prompt_toolkit.layout.screen import Screen

DEFAULT_SIZE = (80, 24)


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
