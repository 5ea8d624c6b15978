"""How bytes get in and out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class Transport(Protocol):
    """A pair of byte streams with one reader and one writer."""

    def chunks(self) -> AsyncIterator[bytes]:
        """What the peer writes, as it comes, until it hangs up."""

    def write(self, data: bytes) -> None:
        """Hand over bytes. Never waits; what the peer is slow to read is kept. Raises BrokenPipeError."""

    async def drain(self) -> None:
        """Wait until everything is with the operating system."""

    def close(self) -> None:
        """Hang up."""
