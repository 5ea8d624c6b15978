"""Work in the background, on asyncio and on trio, that is in nobody's scope.

An iterator or a client may be dropped, closed by another task or by the garbage collector;
a task group that one task enters and another leaves would break then. So background work is
started with the loop itself: as a task of asyncio, as a system task of trio. Both are cancelled
when the loop ends, at the latest.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

log = logging.getLogger("parley.sdk")
Work = Callable[[], Awaitable[None]]


class Job(Protocol):
    @property
    def is_ours(self) -> bool:
        """Whether it is the running task itself, which must not wait for its own end."""

    def cancel(self) -> None:
        """Ask it to end. Only from the loop's own thread."""

    async def wait(self) -> None:
        """Until it has ended, however it did."""


def on_trio() -> bool:
    """Whether the running task is trio's."""
    trio: Any = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def is_stray(flaw: BaseException) -> bool:
    """Whether it is a cancellation nobody meant for the running task: one of something that it only waited for."""
    if on_trio():
        import trio

        meant = isinstance(flaw, trio.Cancelled) and trio.current_effective_deadline() == -math.inf
        return isinstance(flaw, trio.Cancelled | asyncio.CancelledError) and not meant
    if not isinstance(flaw, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


def start(work: Work) -> Job:
    """Run it beside everything else. An exception of it is logged: whoever has to know of one catches it."""
    return TrioJob(work) if on_trio() else AsyncioJob(work)


async def awaited(answer: Any) -> Any:
    """What a callback answers, whether it is `async` or a plain function."""
    return await answer if inspect.isawaitable(answer) else answer


class AsyncioJob:
    def __init__(self, work: Work) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(work))

    async def _run(self, work: Work) -> None:
        try:
            await work()
        except Exception:
            log.exception("background work of the client failed")

    @property
    def is_ours(self) -> bool:
        return asyncio.current_task() is self._task

    def cancel(self) -> None:
        self._task.cancel()

    async def wait(self) -> None:
        await asyncio.wait([self._task])


class TrioJob:
    def __init__(self, work: Work) -> None:
        import trio

        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._task = trio.lowlevel.spawn_system_task(self._run, work)

    async def _run(self, work: Work) -> None:
        try:
            with self._scope:
                await work()
        except Exception:
            log.exception("background work of the client failed")
        finally:
            self._ended.set()

    @property
    def is_ours(self) -> bool:
        import trio

        return trio.lowlevel.current_task() is self._task

    def cancel(self) -> None:
        self._scope.cancel()

    async def wait(self) -> None:
        await self._ended.wait()
