"""What a dialect is: how the canonical messages are spelled on a line."""

from __future__ import annotations

from typing import Protocol

from parley.protocol.base import Message


class Dialect(Protocol):
    """A codec at the edge. The engine behind it knows the canonical messages only."""

    name: str

    def decode(self, line: bytes) -> Message:
        """The message of a line; Unknown or Refused where there is none. Never raises."""

    def encode(self, message: Message) -> list[bytes]:
        """The lines that say this message here: often one, sometimes none."""
