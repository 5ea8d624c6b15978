"""An event loop with a virtual clock: if all tasks wait for time to pass, it passes at once.

    seconds, value = run_in_virtual_time(work())      # how long it would have taken, and what it returned

Hours pass in milliseconds, and only timers make time pass. Do not use threads, processes or sockets in it: the clock
does not wait for them. If nothing is left that could ever happen, TimeoutError is raised: that is a hang.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from parley.engine.clock import Clock

T = TypeVar("T")
START_SECONDS = 1_800_000_000
"""The time of day at which a virtual clock starts."""


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
            raise TimeoutError("all tasks wait, and nothing will ever happen")
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


def make_virtual_clock(loop: asyncio.AbstractEventLoop) -> Clock:
    """The ids and times of an engine on this loop: the same in each run."""
    from parley.engine.clock import Clock

    numbers = count(1)
    return Clock(
        new_uuid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}",
        seconds=lambda: START_SECONDS + loop.time(),
        monotonic=loop.time,
    )
