"""The interface of a transport."""

from __future__ import annotations

from asyncio import Queue
from collections.abc import AsyncIterator
from typing import Protocol


class Transport(Protocol):
    """A pair of byte streams with one reader and one writer."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The bytes that the peer writes, as they arrive, until it closes the stream."""

    def write(self, data: bytes) -> None:
        """Queue bytes without waiting. Bytes that the peer does not read yet are buffered. Raises BrokenPipeError."""

    async def drain(self) -> None:
        """Wait until everything is written to the operating system."""

    def close(self) -> None:
        """Close the transport."""


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
