"""`fdatasync` waits for the device, without blocking the event loop."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import threading
from pathlib import Path

import pytest

from parley.stores.files.fdatasync import MAX_PENDING, fdatasync
from parley.testing.virtual_time import run_in_virtual_time

UNUSED = 1 << 20
"""A descriptor that no test has open."""


@pytest.fixture
def file(tmp_path: Path) -> int:
    descriptor = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b"a line\n")
    return descriptor


async def sync_often(descriptor: int, count: int) -> None:
    await asyncio.gather(*(fdatasync(descriptor) for _ in range(count)))


def test_more_syncs_than_the_kernel_takes_at_once_all_end(file: int) -> None:
    asyncio.run(sync_often(file, MAX_PENDING + 20))


def test_a_file_that_is_not_open_is_an_error() -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        asyncio.run(fdatasync(UNUSED))


def test_what_cannot_be_synced_is_an_error() -> None:
    reading, _ = os.pipe()

    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        asyncio.run(fdatasync(reading))


def test_the_sync_of_a_cancelled_caller_is_ignored(file: int) -> None:
    async def cancel_one_of_two() -> None:
        cancelled, kept = (asyncio.ensure_future(fdatasync(file)) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        await kept
        await fdatasync(file)
        assert cancelled.cancelled()

    asyncio.run(cancel_one_of_two())


def test_loops_in_two_threads_do_not_disturb_each_other(file: int) -> None:
    threads = [threading.Thread(target=lambda: asyncio.run(sync_often(file, 50))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not any(thread.is_alive() for thread in threads)


def test_a_virtual_clock_waits_for_a_sync(file: int) -> None:
    seconds, _ = run_in_virtual_time(fdatasync(file))

    assert seconds == 0


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not list open descriptors")
def test_a_loop_that_is_gone_leaves_no_descriptor_open(file: int) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        asyncio.run(fdatasync(file))
    gc.collect()

    assert len(os.listdir("/proc/self/fd")) == before
