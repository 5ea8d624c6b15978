"""Timeouts for many waits with one timer."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, Future, Task
from collections.abc import Callable

import pytest

from parley.models.http.timeouts import StreamTimeout
from parley.testing.virtual_time import run_in_virtual_time

SOON = 0.01
NEVER = 3600.0


async def soon(value: str) -> str:
    """A value that is available in the next iteration of the loop."""
    return value


def endless() -> Future[str]:
    return asyncio.get_running_loop().create_future()


async def test_what_comes_in_time_comes_through() -> None:
    async with StreamTimeout() as patience:
        result = [await patience.wait_for(soon(letter), NEVER) for letter in "abc"]

    assert result == ["a", "b", "c"]


@pytest.mark.parametrize("before", [[], [NEVER], [SOON, NEVER], [NEVER, SOON]])
async def test_a_wait_that_lasts_too_long_ends_with_a_timeout(before: list[float]) -> None:
    async def work() -> None:
        async with StreamTimeout() as patience:
            for seconds in before:
                await patience.wait_for(soon(""), seconds)
            await patience.wait_for(endless(), SOON)

    with pytest.raises(TimeoutError):
        await work()


async def test_a_longer_wait_outlives_the_timer_of_a_shorter_one() -> None:
    loop = asyncio.get_running_loop()
    async with StreamTimeout() as patience:
        await patience.wait_for(soon(""), SOON)
        value = endless()
        loop.call_later(3 * SOON, value.set_result, "late")
        result = await patience.wait_for(value, NEVER)

    assert result == "late"


async def test_what_happens_between_two_waits_does_not_count() -> None:
    loop = asyncio.get_running_loop()
    async with StreamTimeout() as patience:
        await patience.wait_for(soon(""), SOON)
        value = endless()
        loop.call_later(3 * SOON, value.set_result, "")
        await value
        result = await patience.wait_for(soon("still here"), SOON)

    assert result == "still here"


async def test_an_error_comes_through_as_it_is() -> None:
    async def fail() -> str:
        raise ValueError("mine")

    async def work() -> None:
        async with StreamTimeout() as patience:
            await patience.wait_for(fail(), NEVER)

    with pytest.raises(ValueError, match="mine"):
        await work()


async def ended(task: Task[None]) -> str:
    await asyncio.wait({task})
    return "cancelled" if task.cancelled() else type(task.exception()).__name__


async def test_a_cancellation_from_outside_is_not_a_timeout() -> None:
    async def patient() -> None:
        async with StreamTimeout() as patience:
            await patience.wait_for(endless(), NEVER)

    task = asyncio.create_task(patient())
    await asyncio.wait({task}, timeout=0)
    task.cancel()
    assert await ended(task) == "cancelled"


async def test_a_cancellation_from_outside_wins_over_a_timeout_at_the_same_time() -> None:
    async def patient() -> None:
        async with StreamTimeout() as patience:
            try:
                await patience.wait_for(endless(), SOON)
            except CancelledError:
                task.cancel()
                raise

    task = asyncio.create_task(patient())
    assert await ended(task) == "cancelled"


async def swallowed() -> str:
    """A wait that answers its cancellation with its own error."""
    try:
        return await endless()
    except CancelledError:
        raise OSError("broken") from None


@pytest.mark.parametrize(("awaited", "error"), [(endless, TimeoutError), (swallowed, OSError)])
async def test_the_task_is_not_left_in_a_cancelled_state(
    awaited: Callable[[], Future[str]], error: type[Exception]
) -> None:
    with pytest.raises(error):
        async with StreamTimeout() as patience:
            await patience.wait_for(awaited(), SOON)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_timeout_is_reported_also_in_a_task_that_was_cancelled_before() -> None:
    async def tidy() -> None:
        try:
            await endless()
        except CancelledError:
            async with StreamTimeout() as patience:
                await patience.wait_for(endless(), SOON)

    task = asyncio.create_task(tidy())
    await asyncio.wait({task}, timeout=0)
    task.cancel()
    assert await ended(task) == "TimeoutError"


@pytest.mark.parametrize(("idle", "error"), [(True, TimeoutError), (False, None)])
def test_signs_of_life_are_enough_only_for_a_while(idle: bool, error: type[Exception] | None) -> None:
    async def work() -> None:
        async with StreamTimeout(idle_seconds=5 * SOON) as patience:
            for number in range(10):
                patience.start_wait(NEVER, idle=idle and number > 0)
                await asyncio.sleep(SOON)
                patience.end_wait()

    if error is None:
        run_in_virtual_time(work())
    else:
        with pytest.raises(error):
            run_in_virtual_time(work())
