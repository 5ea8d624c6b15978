"""Two ends joined in one process: the test bed, and the way the SDK runs the engine as a library."""

from __future__ import annotations

from asyncio import Queue
from collections.abc import AsyncIterator


class InMemoryTransport:
    """One end of a joined pair."""

    def __init__(self, incoming: Queue[bytes | None], outgoing: Queue[bytes | None]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._incoming.get()) is not None:
            yield chunk

    def write(self, data: bytes) -> None:
        if self._closed:
            raise BrokenPipeError("this end is closed")
        self._outgoing.put_nowait(data)

    async def drain(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._outgoing.put_nowait(None)


def create_pair() -> tuple[InMemoryTransport, InMemoryTransport]:
    """Two ends; what one writes the other reads."""
    there: Queue[bytes | None] = Queue()
    back: Queue[bytes | None] = Queue()
    return InMemoryTransport(back, there), InMemoryTransport(there, back)
