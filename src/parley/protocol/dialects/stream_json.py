"""Dialect A, the canonical one: a message is its line."""

from __future__ import annotations

from parley.protocol.base import Message, decode, encode
from parley.protocol.dialects.base import DialectContext
from parley.protocol.messages.dialects import DIALECT_EVENTS


class StreamJson:
    name = "stream-json"
    can_request = True

    def __init__(self, world: DialectContext | None = None) -> None:
        """It needs nothing of the world."""

    def decode(self, line: bytes) -> list[Message]:
        return [decode(line)]

    def encode(self, message: Message) -> list[bytes]:
        return [] if type(message) in DIALECT_EVENTS else [encode(message)]
