"""Read and write pipes and wait for a child process, on asyncio and trio.

The event loop waits for file descriptors; on Windows, where it cannot, threads do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable
from contextlib import suppress

from parley.sdk.errors import CLIConnectionError

CHUNK_BYTES = 256 * 1024
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
