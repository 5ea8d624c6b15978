"""An event loop with a virtual clock: if all tasks wait for time to pass, it passes at once.

    seconds, value = run_in_virtual_time(work())      # how long it would have taken, and what it returned

Hours pass in milliseconds, and only timers make time pass. The clock stops while a thread of the loop or of the engine
works. It does not wait for processes and sockets: do not use them in it. If nothing is left that could ever happen,
TimeoutError is raised: that is a hang.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from parley.engine.clock import Clock

T = TypeVar("T")
START_SECONDS = 1_800_000_000
"""The time of day at which a virtual clock starts."""


class VirtualSelector(selectors.DefaultSelector):
    """A selector that moves the clock ahead where a real one would sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.thread_work: set[asyncio.Future[Any]] = set()

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.thread_work:
            return super().select(None)  # its result wakes the loop
        if timeout is None:
            raise TimeoutError("all tasks are waiting and no timer is set: this would never end")
        self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)
        self.thread_work = self._virtual.thread_work
        """The work that threads do now."""

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self.thread_work.add(future)
        future.add_done_callback(self.thread_work.discard)
        return future

    async def shutdown_default_executor(self, *limits: Any) -> None:
        """As in asyncio, but the clock stops meanwhile: it waits for threads."""
        ending: asyncio.Future[None] = self.create_future()
        self.thread_work.add(ending)
        try:
            await super().shutdown_default_executor(*limits)
        finally:
            self.thread_work.discard(ending)


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
