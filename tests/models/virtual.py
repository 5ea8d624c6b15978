"""An event loop whose clock jumps: where nothing is left to do but wait, the wait is over at once.

    seconds, value = virtually(work())      # how long it would have taken, and what came of it

Only for work that waits for timers. A thread or a socket would lose the race against the jumping clock.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """Where the loop would sleep, the clock is set forward instead."""

    skipped_seconds = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.skipped_seconds += timeout
        elif not ready and timeout is None:
            raise RuntimeError("nothing is left that could ever happen: the work hangs for ever")
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return super().time() + self._jumping.skipped_seconds


def virtually(work: Coroutine[Any, Any, T]) -> tuple[float, T]:
    """Run to the end on a clock that jumps. Raises RuntimeError if it would never end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        begun = loop.time()
        value = runner.run(work)
        return loop.time() - begun, value
