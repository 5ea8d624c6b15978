"""When a terminal is drawn: soon after something has changed, and again while the picture moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

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
