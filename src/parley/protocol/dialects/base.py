"""What a dialect is: how the canonical messages are spelled on the lines of one connection.

    line -> decode() -> messages for the engine          message of the engine -> encode() -> lines

A dialect may remember what passed through it: there is one object a connection, it sees every
line in both directions, and each line is decoded only when the engine has taken the ones before
it. What it can answer from that by itself it gives back as a `Reply`, in place of a message.
Time and ids come in from outside (`World`).

What only some dialects say, the engine says to all of them as messages of `NOTES`
(messages/dialects.py); the canonical dialect spells those as no line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from parley.protocol.base import Message, Struct


class Reply(Message, frozen=True, kw_only=True, tag="reply"):
    """Lines that answer one of the peer's at once. The engine does not hear of it."""

    lines: list[bytes]


class DialectContext(Struct, frozen=True):
    """What a dialect needs of the world outside and must not fetch by itself."""

    now: Callable[[], str]
    """UTC with milliseconds, as every line spells it."""
    new_uuid: Callable[[], str]


class Dialect(Protocol):
    """A codec at the edge. The engine behind it knows the canonical messages only."""

    name: str
    can_request: bool
    """Whether the peer can be asked anything: only then it answers `control_request` lines."""

    def decode(self, line: bytes) -> list[Message]:
        """What a line says: messages, Unknown or Refused where it says nothing, Reply where we answer. Never raises."""

    def encode(self, message: Message) -> list[bytes]:
        """The lines that say this message here: often one, sometimes none or several."""
