"""Dialect A, the canonical one: a message is its line."""

from __future__ import annotations

import parley.protocol.messages  # noqa: F401  # fills the catalogue
from parley.protocol.base import Message, decode, encode


class StreamJson:
    name = "stream-json"

    def decode(self, line: bytes) -> Message:
        return decode(line)

    def encode(self, message: Message) -> list[bytes]:
        return [encode(message)]
