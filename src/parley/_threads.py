"""Work beside the event loop.

A slow disk or a large file must not keep the engine from listening. The thread is a
daemon: one that hangs on a dead file system does not hold up the end of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """The result of `work`, done in a thread. Cancelling lets go of it; it then ends unheard."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, flaw: BaseException | None) -> None:
        if done.done():
            return
        if flaw is not None:
            done.set_exception(flaw)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # T itself where there is no flaw

    def run() -> None:
        result, flaw = None, None
        try:
            result = work()
        except BaseException as raised:
            flaw = raised
        # The loop may be closed by now; then nobody waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, flaw)

    threading.Thread(target=run, name="parley-tool", daemon=True).start()
    return await done
