"""`--dialect plain`: a line of text is a prompt, and the answer is lines of text."""

from __future__ import annotations

from typing import ClassVar

from parley.protocol.base import Message
from parley.protocol.blocks import Text
from parley.protocol.dialects.base import DialectContext, DialectProfile
from parley.protocol.messages.conversation import Assistant, User, UserContent
from parley.protocol.messages.result import Result


class Plain:
    name: ClassVar[str] = "plain"
    can_request: ClassVar[bool] = False
    profile: ClassVar[DialectProfile] = DialectProfile(over_stdio=True, client_tools="never")

    def __init__(self, context: DialectContext) -> None:
        self._context = context

    def decode(self, line: bytes) -> list[Message]:
        text = line.decode(errors="replace")
        return [User(message=UserContent(content=text), uuid=self._context.new_uuid(), timestamp=self._context.now())]

    def encode(self, message: Message) -> list[bytes]:
        if isinstance(message, Assistant):
            texts = [block.text for block in message.message.content if isinstance(block, Text)]
            return [line.encode() for text in texts for line in text.splitlines()]
        if isinstance(message, Result):
            return [b"-- " + message.subtype.encode()]
        return []
