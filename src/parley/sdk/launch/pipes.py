"""Pipes to a child, and its end, on any loop.

Where a loop can wait for descriptors, nothing but the loop is needed; on Windows threads do the waiting.
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
    """The next bytes; none at the end, and where somebody closed the pipe."""
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


async def writable(descriptor: int) -> None:
    import anyio

    if not ON_WINDOWS:
        try:
            await anyio.wait_writable(descriptor)
        except anyio.ClosedResourceError:
            raise CLIConnectionError("the engine's input is closed") from None


async def written(descriptor: int, data: bytes) -> bytes:
    """Write a piece; what is left."""
    if ON_WINDOWS:
        from anyio import to_thread

        return data[await to_thread.run_sync(os.write, descriptor, data) :]
    try:
        return data[os.write(descriptor, data) :]
    except BlockingIOError:
        return data


def exited(child: subprocess.Popen[bytes]) -> Awaitable[None]:
    """Until a process has ended and is reaped."""
    return by_descriptor(child) if hasattr(os, "pidfd_open") else by_thread(child)


async def by_descriptor(child: subprocess.Popen[bytes]) -> None:
    from anyio import wait_readable

    if child.poll() is not None:
        return
    try:
        descriptor = os.pidfd_open(child.pid)
    except OSError:  # kernels and sandboxes that do not know it
        await by_thread(child)
        return
    try:
        while child.poll() is None:
            await wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def by_thread(child: subprocess.Popen[bytes]) -> None:
    from anyio import to_thread

    await to_thread.run_sync(child.wait, abandon_on_cancel=True)
