"""The process's own stdin and stdout.

Pipes, sockets and terminals are read and written without blocking the loop. Files and
devices cannot be waited for (they are always ready), so they are read directly.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator

CHUNK_BYTES = 256 * 1024


class Stdio:
    def __init__(self, stdin: int = 0, stdout: int = 1) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._waits_for_output = can_wait(stdout)
        self._outgoing: list[bytes] = []
        self._held = b""
        self._scheduled = False
        self._broken = False
        self._drained = asyncio.Event()
        self._drained.set()
        if self._waits_for_output:
            os.set_blocking(stdout, False)

    async def chunks(self) -> AsyncIterator[bytes]:
        if not can_wait(self._stdin):
            while chunk := os.read(self._stdin, CHUNK_BYTES):
                yield chunk
                await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        os.set_blocking(self._stdin, False)
        ready = asyncio.Event()
        loop.add_reader(self._stdin, ready.set)
        try:
            while True:
                await ready.wait()
                ready.clear()
                try:
                    chunk = os.read(self._stdin, CHUNK_BYTES)
                except BlockingIOError:
                    continue
                if not chunk:
                    return
                yield chunk
        finally:
            loop.remove_reader(self._stdin)

    def write(self, data: bytes) -> None:
        """Lines told in one go of the loop leave in one system call."""
        if self._broken:
            raise BrokenPipeError("nobody reads stdout any more")
        self._outgoing.append(data)
        if not self._scheduled:
            self._scheduled = True
            self._drained.clear()
            asyncio.get_running_loop().call_soon(self._flush)

    async def drain(self) -> None:
        await self._drained.wait()

    def close(self) -> None:
        if self._waits_for_output:
            # The terminal or pipe may be shared with others, who expect it to block.
            os.set_blocking(self._stdout, True)

    def _flush(self) -> None:
        data = self._held + b"".join(self._outgoing) if self._outgoing else self._held
        self._outgoing.clear()
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._stdout, left) :]
        except BlockingIOError:
            self._held = bytes(left)
            asyncio.get_running_loop().add_writer(self._stdout, self._resume)
            return
        except OSError:
            self._broken = True
        self._held = b""
        self._scheduled = False
        self._drained.set()

    def _resume(self) -> None:
        asyncio.get_running_loop().remove_writer(self._stdout)
        self._flush()


def can_wait(descriptor: int) -> bool:
    """Whether the loop can wait for this descriptor. /dev/null and files are always ready, and cannot."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
