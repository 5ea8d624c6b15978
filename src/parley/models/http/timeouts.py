"""Timeouts for many waits with one timer.

A stream is awaited thousands of times. A timer for each wait would take longer than reading the stream, so one timer
checks now and then whether the current wait has lasted too long. The time between two waits does not count.

    try:
        async with StreamTimeout(longest_seconds=900) as timeout:
            chunk = await timeout.wait_for(anext(chunks), seconds=45)
    except TimeoutError: ...

`start_wait` and `end_wait` around a wait do the same without a further coroutine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from math import inf
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")


class StreamTimeout:
    def __init__(self, longest_seconds: float = inf, idle_seconds: float = inf) -> None:
        """Every wait ends `longest_seconds` from now at the latest.

        It also ends if no wait since `idle_seconds` was other than `idle` (see `start_wait`).
        """
        self._loop = asyncio.get_running_loop()
        self._last_moment = self._loop.time() + longest_seconds
        self._idle_seconds = idle_seconds
        self._idle_until = inf
        self._deadline: float | None = None
        """When the current wait times out; None between waits."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._task: asyncio.Task[object] | None = None
        self._cancelled_before = 0
        self._expired = False

    async def __aenter__(self) -> StreamTimeout:
        self._task = asyncio.current_task()
        self._cancelled_before = self._task.cancelling() if self._task is not None else 0
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._expired and self._task is not None:
            # Suppress our own cancellation, unless another caller cancelled too.
            ours_alone = self._task.uncancel() <= self._cancelled_before
            if ours_alone and kind is asyncio.CancelledError:
                raise TimeoutError from None

    async def wait_for(self, awaited: Awaitable[T], seconds: float, *, idle: bool = False) -> T:
        """Await with a timeout."""
        self.start_wait(seconds, idle=idle)
        try:
            return await awaited
        finally:
            self.end_wait()

    def start_idle(self) -> None:
        """The idle limit runs from now on."""
        self._idle_until = self._loop.time() + self._idle_seconds

    def start_wait(self, seconds: float, *, idle: bool = False) -> None:
        """Start a wait that times out after `seconds`.

        `idle` means that the previous wait brought no content, so the idle limit keeps running.
        """
        now = self._loop.time()
        if not idle:
            self._idle_until = now + self._idle_seconds
        deadline = self._deadline = min(now + seconds, self._idle_until, self._last_moment)
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)

    def end_wait(self) -> None:
        """End the current wait."""
        self._deadline = None

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(when, self._check), when

    def _check(self) -> None:
        self._timer = None
        if self._deadline is None:
            return  # the next wait sets a timer again
        if self._loop.time() < self._deadline:
            self._set_timer(self._deadline)
        elif self._task is not None:
            self._expired = True
            self._task.cancel()
