"""Work beside the event loop."""

from __future__ import annotations

import asyncio
import sys
from threading import Event, get_ident

import pytest

from parley._threads import MAX_IDLE, run_in_thread
from parley.errors import ToolError
from tests.helpers.patience import PATIENCE_SECONDS


async def test_the_loop_continues_while_the_work_is_done() -> None:
    released = Event()

    def work() -> str:
        assert released.wait(PATIENCE_SECONDS)
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
        released.wait(PATIENCE_SECONDS)
        ended.set()

    task = asyncio.create_task(run_in_thread(work))
    await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
    task.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await task

    assert not ended.is_set()
    released.set()
    assert ended.wait(PATIENCE_SECONDS)


async def test_a_thread_is_used_again() -> None:
    await run_in_thread(get_ident)

    assert await run_in_thread(get_ident) == await run_in_thread(get_ident)


async def test_work_does_not_wait_for_a_thread_that_hangs() -> None:
    released = Event()
    hanging = [asyncio.create_task(run_in_thread(released.wait)) for _ in range(MAX_IDLE + 2)]
    await asyncio.sleep(0)

    async with asyncio.timeout(60):
        assert await run_in_thread(lambda: "done") == "done"
        released.set()
        assert await asyncio.gather(*hanging) == [True] * len(hanging)


async def test_a_child_process_starts_threads_of_its_own() -> None:
    program = (
        "import asyncio, os\n"
        "from parley._threads import MAX_IDLE, run_in_thread\n"
        "asyncio.run(run_in_thread(lambda: None))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    asyncio.run(asyncio.wait_for(run_in_thread(lambda: None), 60))\n"
        "    os._exit(7)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-W", "ignore", "-c", program)

    assert await process.wait() == 7
