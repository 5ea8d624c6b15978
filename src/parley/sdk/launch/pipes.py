"""Read and write pipes and wait for a child process, on asyncio and trio.

The event loop waits for file descriptors; on Windows, where it cannot, threads do.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable
from contextlib import suppress

from parley.sdk.errors import CLIConnectionError
from parley.sdk.runtime.background import on_trio

CHUNK_BYTES = 64 * 1024
"""What a pipe holds. For more, malloc would map and unmap memory at each read."""
ON_WINDOWS = sys.platform == "win32"


async def read(descriptor: int) -> bytes:
    """Return the next bytes; empty at the end, or if the pipe was closed."""
    import anyio

    try:
        if ON_WINDOWS:
            return await anyio.to_thread.run_sync(os.read, descriptor, CHUNK_BYTES, abandon_on_cancel=True)
        while True:
            await anyio.wait_readable(descriptor)
            with suppress(BlockingIOError):
                return os.read(descriptor, CHUNK_BYTES)
    except (OSError, anyio.ClosedResourceError):
        return b""


class Watch:
    """Reads a pipe or socket again and again, on asyncio. The loop watches it all the time, not anew for each read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._data: bytes | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_watching = False

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end."""
        while self._data is None:
            if not self._is_watching:
                self._loop.add_reader(self._descriptor, self._take)
                self._is_watching = True
            self._waiter = self._loop.create_future()
            await self._waiter
        data, self._data = self._data, None
        return data

    def close(self) -> None:
        """Stop watching. Call it before the descriptor is closed."""
        if self._is_watching:
            self._loop.remove_reader(self._descriptor)
            self._is_watching = False

    def _take(self) -> None:
        if self._data is not None:
            self.close()  # until the last bytes are taken
            return
        try:
            self._data = os.read(self._descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._data = b""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Poll:
    """The same on trio."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def read(self) -> bytes:
        return await read(self._descriptor)

    def close(self) -> None:
        """Nothing to stop."""


def watch(descriptor: int) -> Watch | Poll:
    """A reader of a pipe or socket on the running loop. Not for Windows."""
    return Poll(descriptor) if on_trio() else Watch(descriptor)


async def wait_writable(descriptor: int) -> None:
    import anyio

    if not ON_WINDOWS:
        try:
            await anyio.wait_writable(descriptor)
        except anyio.ClosedResourceError:
            raise CLIConnectionError("the engine's input is closed") from None


async def write_some(descriptor: int, data: bytes) -> bytes:
    """Write as much as possible; returns the rest."""
    if ON_WINDOWS:
        from anyio import to_thread

        return data[await to_thread.run_sync(os.write, descriptor, data) :]
    try:
        return data[os.write(descriptor, data) :]
    except BlockingIOError:
        return data


def wait_exited(child: subprocess.Popen[bytes]) -> Awaitable[None]:
    """Wait until a process has exited and is reaped."""
    return wait_by_pidfd(child) if hasattr(os, "pidfd_open") else wait_by_thread(child)


async def wait_by_pidfd(child: subprocess.Popen[bytes]) -> None:
    from anyio import wait_readable

    if child.poll() is not None:
        return
    try:
        descriptor = os.pidfd_open(child.pid)
    except OSError:  # not supported by the kernel or sandbox
        await wait_by_thread(child)
        return
    try:
        while child.poll() is None:
            await wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def wait_by_thread(child: subprocess.Popen[bytes]) -> None:
    from anyio import to_thread

    await to_thread.run_sync(child.wait, abandon_on_cancel=True)
