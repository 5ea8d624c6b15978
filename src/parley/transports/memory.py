"""Two connected transports in one process, for tests and for the SDK's in-process engine."""

from __future__ import annotations

from asyncio import Queue
from collections.abc import AsyncIterator


class InMemoryTransport:
    """One end of a connected pair."""

    def __init__(self, incoming: Queue[bytes | None], outgoing: Queue[bytes | None]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._incoming.get()) is not None:
            yield chunk

    def write(self, data: bytes) -> None:
        if self._closed:
            raise BrokenPipeError("the transport is closed")
        self._outgoing.put_nowait(data)

    async def drain(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._outgoing.put_nowait(None)


def create_pair() -> tuple[InMemoryTransport, InMemoryTransport]:
    """Two ends. Each reads what the other writes."""
    there: Queue[bytes | None] = Queue()
    back: Queue[bytes | None] = Queue()
    return InMemoryTransport(back, there), InMemoryTransport(there, back)
