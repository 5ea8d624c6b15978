"""The canonical dialect: a message is its line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from parley.protocol.base import Message, decode, encode, encode_lines
from parley.protocol.dialects.base import DialectContext, DialectProfile
from parley.protocol.messages.conversation import StreamEvent
from parley.protocol.messages.dialects import DIALECT_EVENTS


class StreamJson:
    name = "stream-json"
    can_request = True
    profile: ClassVar[DialectProfile] = DialectProfile()

    def __init__(self, context: DialectContext | None = None) -> None:
        """The canonical dialect needs neither time nor ids."""

    def decode(self, line: bytes) -> list[Message]:
        return [decode(line)]

    def encode(self, message: Message) -> list[bytes]:
        return [] if type(message) in DIALECT_EVENTS else [encode(message)]

    def encode_events(self, events: Sequence[StreamEvent]) -> bytes:
        return encode_lines(events)
