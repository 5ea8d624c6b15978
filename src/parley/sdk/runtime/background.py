"""Background jobs on asyncio and trio, outside of any task group.

Another task or the garbage collector may close an iterator or a client, and a task group must be
left by the task that entered it. Jobs are therefore started on the event loop itself: as an asyncio
task or a trio system task. Both are cancelled when the loop ends, if not before.
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
Work = Callable[[], Awaitable[object]]


class Job(Protocol):
    """A running background job."""

    @property
    def is_ours(self) -> bool:
        """Whether the caller runs in this job. A job must not wait for itself."""

    def cancel(self) -> None:
        """Cancel the job. Call it only from the loop's thread."""

    async def wait(self) -> None:
        """Wait until the job has ended, for whatever reason."""


def on_trio() -> bool:
    """Whether the caller runs in a trio task."""
    trio: Any = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def current_task() -> object:
    """The running task of asyncio or trio."""
    if on_trio():
        import trio

        return trio.lowlevel.current_task()
    return asyncio.current_task()


class Event(Protocol):
    """Something that happens once."""

    def set(self) -> object:
        """It has happened. Call it only from the loop's thread."""

    async def wait(self) -> object:
        """Wait until it has happened."""


def make_event() -> Event:
    """An event of the running loop. It takes less time than one of anyio, and a turn needs one for each message."""
    if on_trio():
        import trio

        return trio.Event()
    return asyncio.Event()


def is_stray(exc: BaseException) -> bool:
    """Whether a cancellation was not meant for the running task, but for something it was waiting for."""
    if on_trio():
        import trio

        is_meant = isinstance(exc, trio.Cancelled) and trio.current_effective_deadline() == -math.inf
        return isinstance(exc, trio.Cancelled | asyncio.CancelledError) and not is_meant
    if not isinstance(exc, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


def is_cancellation(exc: BaseException) -> bool:
    """Whether an exception cancels the running task: a timeout, a cancel scope, `task.cancel()`."""
    trio: Any = sys.modules.get("trio")
    return isinstance(exc, asyncio.CancelledError) or (trio is not None and isinstance(exc, trio.Cancelled))


def start(work: Work) -> Job:
    """Run a coroutine function in the background. An exception is logged; catch it in `work` to handle it."""
    return TrioJob(work) if on_trio() else AsyncioJob(work)


def log_failure(what: str, exc: BaseException) -> None:
    """Log that a callback failed; without a traceback if the error is in how it is called or what it returns.

    Such a TypeError is raised in the module that calls the callback, which calls this function too.
    """
    innermost = exc.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    frame = None if innermost is None else innermost.tb_frame
    if isinstance(exc, TypeError) and frame is not None and frame.f_globals.get("log_failure") is log_failure:
        log.warning("%s failed: %s", what, exc)
    else:
        log.warning("%s failed", what, exc_info=exc)


async def maybe_await(answer: Any) -> Any:
    """Return a callback's value, whether the callback is async or a plain function."""
    return await answer if inspect.isawaitable(answer) else answer


class AsyncioJob:
    def __init__(self, work: Work) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(work))

    async def _run(self, work: Work) -> None:
        try:
            await work()
        except Exception:
            log.exception("a background job of the client failed")

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
            log.exception("a background job of the client failed")
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
