"""Read and write pipes and wait for a child process, on asyncio and trio.

The event loop waits for file descriptors; on Windows, where it cannot, threads do.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from parley.sdk.errors import CLIConnectionError
from parley.sdk.runtime.background import Job, on_trio, start

if TYPE_CHECKING:
    import socket

CHUNK_BYTES = 64 * 1024
"""What a pipe holds. For more, malloc would map and unmap memory at each read."""
ON_WINDOWS = sys.platform == "win32"
NOT_READ = "the engine no longer reads its input"


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


class Writer:
    """Writes to a pipe or socket without waiting. A job writes what does not fit at once, so data is never mixed."""

    def __init__(
        self,
        file: IO[bytes] | socket.socket,
        explain: Callable[[], str] = lambda: "",
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        """`explain` says why nothing is read any more, if that is known. `on_broken` is called at the end of a job."""
        self._file = file
        self._explain = explain
        self._on_broken = on_broken
        self._held = bytearray()
        self._job: Job | None = None
        self.is_broken = False
        """Whether nothing can be written any more."""

    @property
    def is_busy(self) -> bool:
        """Whether a job writes. Only that job may close the file: the loop may be waiting for it."""
        return self._job is not None

    def write(self, data: bytes) -> None:
        """Raises CLIConnectionError."""
        if self.is_broken:
            raise CLIConnectionError(NOT_READ)
        self._held += data
        if self._job is None and (ON_WINDOWS or not self._write_some()):
            self._job = start(self._write_held)

    def _write_some(self) -> bool:
        """Write as much as possible without waiting; returns whether nothing is left. Raises CLIConnectionError."""
        try:
            while self._held:
                del self._held[: os.write(self._file.fileno(), self._held)]
        except BlockingIOError:
            return False
        except OSError as exc:
            self._break()
            raise CLIConnectionError(f"{NOT_READ}: {self._explain() or exc.strerror}") from None
        except ValueError:  # the file is closed
            self._break()
            raise CLIConnectionError(NOT_READ) from None
        return True

    def _break(self) -> None:
        self.is_broken = True
        self._held.clear()

    async def _write_held(self) -> None:
        from anyio import ClosedResourceError, to_thread, wait_writable

        try:
            while self._held and not self.is_broken:
                if ON_WINDOWS:
                    written = await to_thread.run_sync(os.write, self._file.fileno(), bytes(self._held))
                    del self._held[:written]
                else:
                    await wait_writable(self._file.fileno())
                    self._write_some()
        except (OSError, ValueError, CLIConnectionError, ClosedResourceError):
            self._break()
        finally:
            self._job = None
            if self.is_broken:
                self._on_broken()

    async def wait(self) -> None:
        """Wait until everything is written, or nothing more can be."""
        while (job := self._job) is not None:
            await job.wait()

    def cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()


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
