"""Bounded waits, at the price of one timer for many of them.

A stream is waited for thousands of times. A timer for each wait would cost more than
reading the stream, so one timer looks from time to time whether the present wait has
lasted too long. What happens between two waits does not count.

    try:
        async with Patience(longest_seconds=900) as patience:
            chunk = await patience.on(anext(chunks), seconds=45)
    except TimeoutError: ...

`begin` and `end` around a wait do the same without a coroutine of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from math import inf
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")


class Patience:
    def __init__(self, longest_seconds: float = inf, idle_seconds: float = inf) -> None:
        """No wait goes on after `longest_seconds`, counted from now.

        None goes on while for `idle_seconds` nothing came of it either, counted from the first that is not `idle`.
        """
        self._loop = asyncio.get_running_loop()
        self._last_moment = self._loop.time() + longest_seconds
        self._idle_seconds = idle_seconds
        self._idle_until = inf
        self._deadline: float | None = None
        """When the present wait is too long; None between waits."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._task: asyncio.Task[object] | None = None
        self._cancelled_before = 0
        self._expired = False

    async def __aenter__(self) -> Patience:
        self._task = asyncio.current_task()
        self._cancelled_before = self._task.cancelling() if self._task is not None else 0
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, flaw: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._expired and self._task is not None:
            # Our own cancellation, unless somebody else cancelled as well.
            ours_alone = self._task.uncancel() <= self._cancelled_before
            if ours_alone and kind is asyncio.CancelledError:
                raise TimeoutError from None

    async def on(self, awaited: Awaitable[T], seconds: float, *, idle: bool = False) -> T:
        """Wait for it, but no longer than this."""
        self.begin(seconds, idle=idle)
        try:
            return await awaited
        finally:
            self.end()

    def begin(self, seconds: float, *, idle: bool = False) -> None:
        """A wait begins, which must end in time.

        `idle`: the last one brought only a sign of life, which is not enough for ever.
        """
        now = self._loop.time()
        if not idle:
            self._idle_until = now + self._idle_seconds
        deadline = self._deadline = min(now + seconds, self._idle_until, self._last_moment)
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)

    def end(self) -> None:
        """The wait is over."""
        self._deadline = None

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(when, self._look), when

    def _look(self) -> None:
        self._timer = None
        if self._deadline is None:
            return  # the next wait sets a timer again
        if self._loop.time() < self._deadline:
            self._set_timer(self._deadline)
        elif self._task is not None:
            self._expired = True
            self._task.cancel()
