"""Work beside the event loop."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from parley._threads import run_in_thread
from parley.errors import ToolError


async def test_the_loop_continues_while_the_work_is_done() -> None:
    released = Event()

    def work() -> str:
        assert released.wait(5)
        return "done"

    async with asyncio.timeout(60):
        task = asyncio.create_task(run_in_thread(work))
        await asyncio.sleep(0)
        released.set()
        result = await task

    assert result == "done"


async def test_what_the_work_raises_comes_out() -> None:
    def work() -> None:
        raise ToolError("no")

    with pytest.raises(ToolError, match=r"^no$"):
        await run_in_thread(work)


async def test_cancelling_does_not_wait_for_the_work() -> None:
    started, released, ended = Event(), Event(), Event()

    def work() -> None:
        started.set()
        released.wait(5)
        ended.set()

    task = asyncio.create_task(run_in_thread(work))
    await asyncio.to_thread(started.wait, 5)
    task.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await task

    assert not ended.is_set()
    released.set()
    assert ended.wait(5)
