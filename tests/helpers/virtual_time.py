"""An event loop with a virtual clock: where nothing is left to do but wait, the wait is over at once.

    seconds, value = run_in_virtual_time(work())      # how long it would have taken, and what came of it

Hours pass in milliseconds, and only timers make time pass. A thread or a socket would lose the race against
the jumping clock. Where nothing is left that could ever happen, TimeoutError is raised: that is a hang.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Jumping(selectors.DefaultSelector):
    """Where a real selector would sleep, time passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise TimeoutError("everybody waits, and nothing will ever happen")
        self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> tuple[float, T]:
    """Run to the end on a clock that jumps. Raises TimeoutError if it would never end."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        value = runner.run(work)
        return runner.get_loop().time(), value
