"""The lines on the terminal: those that are printed for good, and a few live ones below them.

    screen.print(lines)             these lines scroll away and are never touched again
    screen.show(lines, cursor)      replaces the live lines

The screen of one prompt and that of a conversation are the same.

A frame is one write: the old live lines are erased, new lines printed, and the live lines drawn again. Live lines are
never wider or taller than the window, so that erasing them finds each where it was drawn. After a resize, most
terminals have wrapped lines that no longer fit; that is counted when they are erased.

A terminal that cannot move its cursor has no live lines.

`FrameTimer` says when to draw: soon after something has changed, and again while the picture moves.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
from collections.abc import Callable, Sequence
from time import monotonic

from parley.terminal.rendering.text import cell_width

DEFAULT_SIZE = (80, 24)

SEQUENCE = re.compile("\x1b\\[[0-9;?]*[a-zA-Z]")
"""The sequences that we write ourselves."""
BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
"""Ask the terminal to show the frame at once. Terminals that do not know it ignore it."""
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"


def terminal_size() -> tuple[int, int]:
    """Columns and rows of the window."""
    try:
        columns, rows = os.get_terminal_size(1)
    except OSError:
        return DEFAULT_SIZE
    return columns or DEFAULT_SIZE[0], rows or DEFAULT_SIZE[1]


def write_stdout(text: str) -> None:
    """Raises OSError if the terminal is gone."""
    left = memoryview(text.encode(errors="replace"))
    while left:
        try:
            left = left[os.write(1, left) :]
        except BlockingIOError:
            select.select([], [1], [])


class Screen:
    def __init__(
        self,
        *,
        has_cursor: bool,
        reflows: bool = True,
        size: Callable[[], tuple[int, int]] = terminal_size,
        write: Callable[[str], object] = write_stdout,
    ) -> None:
        self.has_cursor = has_cursor
        """Whether the terminal can move its cursor."""
        self._reflows = reflows
        """Whether a narrower window wraps the lines that are on it."""
        self._size = size
        self.write = write
        self._live: list[str] = []
        self._cursor: tuple[int, int] | None = None
        """Row and column of the cursor in the live lines; None at the end of the last."""
        self._drawn: tuple[list[str], tuple[int, int] | None, int] = ([], None, 0)
        """What is drawn now: lines, cursor, and the columns of the window at that time."""

    @property
    def width(self) -> int:
        return self._size()[0]

    @property
    def height(self) -> int:
        return self._size()[1]

    def print(self, lines: Sequence[str]) -> None:
        if lines:
            self._draw(lines)

    def show(self, lines: Sequence[str], cursor: tuple[int, int] | None = None, printed: Sequence[str] = ()) -> None:
        """`printed`: lines that are printed in the same frame."""
        self._live, self._cursor = list(lines), cursor
        if printed or self._drawn != self._fit():
            self._draw(printed)

    def clear(self) -> None:
        self.show(())

    def redraw(self) -> None:
        """Draw the live lines where the cursor is now, after something else wrote to the terminal."""
        self._drawn = ([], None, 0)
        self._draw(())

    def run_clear(self, action: Callable[[], None]) -> None:
        """Call something that writes to the same terminal, without the live lines in its way."""
        live, cursor = self._live, self._cursor
        self.clear()
        action()
        self.show(live, cursor)

    def _fit(self) -> tuple[list[str], tuple[int, int] | None, int]:
        """The live lines that the window has room for: the last ones."""
        columns, rows = self._size()
        if not self.has_cursor:
            return [], None, columns
        cut = max(0, len(self._live) - max(1, rows - 1))
        cursor = self._cursor and (max(0, self._cursor[0] - cut), self._cursor[1])
        return self._live[cut:], cursor, columns

    def _draw(self, printed: Sequence[str]) -> None:
        fitted = lines, cursor, columns = self._fit()
        parts = [self._erase(columns), *(f"{line}\n" for line in printed)]
        if lines:
            parts += [WRAP_OFF, "\n".join(lines), WRAP_ON]
            if cursor is not None:
                below = len(lines) - 1 - cursor[0]
                parts += ["\r", f"\x1b[{below}A" if below else "", f"\x1b[{cursor[1]}C" if cursor[1] else ""]
        self._drawn = fitted
        frame = "".join(parts)
        self.write(f"{BEGIN_FRAME}{frame}{END_FRAME}" if self.has_cursor else frame)

    def _erase(self, columns: int) -> str:
        """Move to the start of the live lines and erase from there on."""
        lines, cursor, drawn_columns = self._drawn
        if not lines:
            return ""
        above = lines if cursor is None else lines[: cursor[0] + 1]
        rows, total = len(above) - 1, len(lines)
        if self._reflows and columns < drawn_columns:
            rows = sum(rows_of(line, columns) for line in above[:-1])
            last = visible_width(above[-1]) if cursor is None else cursor[1]
            rows += max(0, min(last, drawn_columns) - 1) // columns
            total = sum(rows_of(line, columns) for line in lines)
        # tmux moves the window into its history if all of it is erased at once, so the first row is erased by itself.
        rest = "\x1b[B\x1b[J\x1b[A" if total > 1 else ""
        return "\r" + (f"\x1b[{rows}A" if rows else "") + "\x1b[K" + rest


def visible_width(line: str) -> int:
    return cell_width(SEQUENCE.sub("", line))


def rows_of(line: str, columns: int) -> int:
    """How many rows a line takes in a window of this width."""
    return max(1, -(-visible_width(line) // columns))


FRAME_SECONDS = 0.05
"""How often text that arrives is drawn."""
SPIN_SECONDS = 0.1
PAUSE_FACTOR = 4
"""After a frame that took long, messages have the loop for this many times as long."""


class FrameTimer:
    def __init__(self, draw: Callable[[], bool]) -> None:
        self._draw = draw
        """Draws a frame; returns whether the picture moves by itself."""
        self._timer: asyncio.TimerHandle | None = None
        self._pause_seconds = FRAME_SECONDS
        self._is_closed = False

    def schedule(self) -> None:
        """Something that is shown may have changed."""
        self._start(self._pause_seconds)

    def close(self) -> None:
        """Draw no more frames."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _start(self, seconds: float) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer, started_at = None, monotonic()
        is_moving = self._draw()
        self._pause_seconds = max(FRAME_SECONDS, PAUSE_FACTOR * (monotonic() - started_at))
        if is_moving:
            self._start(max(SPIN_SECONDS, self._pause_seconds))
