"""The virtual clock: pauses pass at once, the work of threads takes no time, and a hang is an error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from parley._threads import run_in_thread
from parley.testing import make_virtual_clock, run_in_virtual_time


def work() -> str:
    time.sleep(0.01)  # the work itself, and not a wait for anything
    return "done"


@pytest.mark.parametrize("start", [lambda: asyncio.to_thread(work), lambda: run_in_thread(work)])
def test_time_does_not_pass_while_a_thread_works(start: Callable[[], Awaitable[str]]) -> None:
    async def wait() -> str:
        async with asyncio.timeout(3600):
            return await start()

    assert run_in_virtual_time(wait()) == (0, "done")


def test_hours_pass_at_once_on_a_clock_that_starts_at_the_same_time() -> None:
    async def wait() -> list[str]:
        clock = make_virtual_clock(asyncio.get_running_loop())
        await asyncio.sleep(7200)
        return [clock.new_uuid(), clock.now()]

    seconds, found = run_in_virtual_time(wait())

    assert (seconds, found) == (7200, ["00000000-0000-4000-8000-000000000001", "2027-01-15T10:00:00.000Z"])


def test_a_wait_for_nothing_is_an_error() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="this would never end"):
        run_in_virtual_time(wait())
