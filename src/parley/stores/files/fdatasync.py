"""Sync a file without blocking the event loop.

    await fdatasync(descriptor)     # raises OSError

On Linux, the kernel's asynchronous I/O does the work and reports its end through an eventfd. A thread, which is used
elsewhere, takes a tenth more processor time for a whole turn, because it and the loop compete for the interpreter lock.

See also: io_submit(2) and `linux/aio_abi.h`.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import weakref
from contextlib import suppress
from itertools import count
from typing import Any

from parley._threads import hold_virtual_time, run_in_thread
from parley.workspace.syscalls import last_error, libc

SYSTEM_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""The numbers of io_setup, io_destroy, io_getevents and io_submit."""
MAX_PENDING = 512
"""Of one loop. More syncs at the same time use threads."""
CONTROL_BLOCK = struct.Struct("=QIIHhIQQqQII")
EVENT = struct.Struct("=QQqq")
FDSYNC = 3
REPORT_TO_EVENTFD = 1


async def fdatasync(descriptor: int) -> None:
    """Wait until the data of a file is on the device. Raises OSError.

    If the caller is cancelled, the sync continues and its result is discarded.
    """
    done = None
    if (queue := get_queue()) is not None:
        with suppress(OSError):  # there are too many, or the file system does not support it
            done = queue.submit(descriptor)
    await (done or run_in_thread(lambda: os.fdatasync(descriptor)))


class SyncQueue:
    """The syncs of one event loop that the kernel works on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises OSError if asynchronous I/O is not permitted."""
        import ctypes

        calls = SYSTEM_CALLS[os.uname().machine]
        self._setup, self._destroy, self._get_events, self._submit = map(ctypes.c_long, calls)
        self._context = ctypes.c_ulong()
        self._block = ctypes.create_string_buffer(CONTROL_BLOCK.size)
        self._blocks = (ctypes.c_void_p * 1)(ctypes.addressof(self._block))
        self._events = ctypes.create_string_buffer(EVENT.size * MAX_PENDING)
        self._no_wait = ctypes.create_string_buffer(16)
        self._none, self._one, self._most = map(ctypes.c_long, (0, 1, MAX_PENDING))
        self._numbers = count()
        self._pending: dict[int, asyncio.Future[None]] = {}
        self._call(self._setup, ctypes.c_uint(MAX_PENDING), ctypes.byref(self._context))
        self._ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        loop.add_reader(self._ended, self._finish)

    def submit(self, descriptor: int) -> asyncio.Future[None]:
        """Start a sync. Raises OSError."""
        if len(self._pending) == MAX_PENDING:  # the kernel takes more, but `_finish` has no room for their events
            raise BlockingIOError
        number = next(self._numbers)
        CONTROL_BLOCK.pack_into(
            self._block, 0, number, 0, 0, FDSYNC, 0, descriptor, 0, 0, 0, 0, REPORT_TO_EVENTFD, self._ended
        )
        self._call(self._submit, self._context, self._one, self._blocks)
        done = self._pending[number] = asyncio.get_running_loop().create_future()
        hold_virtual_time(done)
        return done

    def _finish(self) -> None:
        os.eventfd_read(self._ended)
        ended = self._call(self._get_events, self._context, self._none, self._most, self._events, self._no_wait)
        for number, _, result, _ in EVENT.iter_unpack(self._events.raw[: ended * EVENT.size]):
            done = self._pending.pop(number)
            if done.done():
                continue  # cancelled
            if result < 0:
                done.set_exception(OSError(-result, os.strerror(-result)))
            else:
                done.set_result(None)

    def close(self) -> None:
        os.close(self._ended)
        with suppress(OSError):  # in a forked process
            self._call(self._destroy, self._context)

    def _call(self, *arguments: Any) -> int:
        """Raises OSError."""
        result: int = libc().syscall(*arguments)
        if result < 0:
            raise last_error()
        return result


_queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, SyncQueue | None] = weakref.WeakKeyDictionary()


def get_queue() -> SyncQueue | None:
    """The queue of the running loop; None where asynchronous I/O is not available."""
    loop = asyncio.get_running_loop()
    try:
        return _queues[loop]
    except KeyError:
        queue = _queues[loop] = open_queue(loop)
        return queue


def open_queue(loop: asyncio.AbstractEventLoop) -> SyncQueue | None:
    is_64_bit = sys.maxsize > 1 << 32
    if not sys.platform.startswith("linux") or not is_64_bit or os.uname().machine not in SYSTEM_CALLS:
        return None
    try:
        queue = SyncQueue(loop)
    except OSError:
        return None
    weakref.finalize(loop, queue.close).atexit = False
    return queue
