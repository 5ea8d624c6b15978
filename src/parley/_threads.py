"""Run blocking work in a daemon thread, so that a slow disk or a large file does not block the event loop.

A daemon thread that hangs, for example on a dead network file system, does not delay the exit of the process. Idle
threads are used again. Work never waits for a busy one: a new thread is started instead.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
Work = Callable[[], Callable[[], None]]
"""Does the work and returns how to report it."""

MAX_IDLE = 4
_idle: list[SimpleQueue[Work]] = []
"""The inboxes of the idle threads."""
os.register_at_fork(after_in_child=_idle.clear)  # a child process has none of the threads


async def run_in_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`. If the caller is cancelled, the thread continues and its result is discarded."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    hold_virtual_time(done)

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # a T, because there was no error

    def run() -> Callable[[], None]:
        result, error = None, None
        try:
            result = work()
        except BaseException as exc:
            error = exc

        def report() -> None:
            # The loop may be closed by now. Then the result is not needed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, result, error)

        return report

    hand_over(run)
    return await done


def hold_virtual_time(done: asyncio.Future[T]) -> None:
    """Let no time pass until `done`, on a loop with a virtual clock (testing/virtual_time.py)."""
    if (working := getattr(done.get_loop(), "thread_work", None)) is not None:
        working.add(done)
        done.add_done_callback(working.discard)


def hand_over(work: Work) -> None:
    """Give work to an idle thread or to a new one."""
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = SimpleQueue()
        threading.Thread(target=serve, args=(inbox,), name="parley-tool", daemon=True).start()
    inbox.put(work)


def serve(inbox: SimpleQueue[Work]) -> None:
    """Do the work that arrives in an inbox, until there are enough idle threads."""
    is_idle = True
    while is_idle:
        report = inbox.get()()
        is_idle = len(_idle) < MAX_IDLE
        if is_idle:
            # Before the report, so that work that follows at once finds this thread.
            _idle.append(inbox)
        report()
        del report  # what the work returned may be large
