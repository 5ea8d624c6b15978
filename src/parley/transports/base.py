"""The interface of a transport."""

from __future__ import annotations

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
