"""An asyncio protocol that reads into one buffer.

For each read, the loop's own way allocates 256 KiB, which malloc maps and unmaps: that takes ten times as long as the
read itself. `READ_BYTES` is also the size for direct reads. It is as much as a pipe holds, and below the size that
malloc maps.
"""

from __future__ import annotations

import asyncio
import threading

READ_BYTES = 64 * 1024


class ReadBuffer(threading.local):
    """One for each thread, because loops in several threads read at the same time."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES))


_buffer = ReadBuffer()


class Receiver(asyncio.BufferedProtocol):
    """Receives data like `asyncio.Protocol`."""

    def get_buffer(self, sizehint: int) -> memoryview:
        return _buffer.view

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(_buffer.view[:nbytes]))

    def data_received(self, data: bytes) -> None:
        raise NotImplementedError
