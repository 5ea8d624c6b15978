"""Two ends of a dialect, with ids that are counted and a clock that stands still."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import count
from typing import Any

from parley.protocol.base import Message
from parley.protocol.dialects.base import Dialect, DialectContext, Reply

Json = dict[str, Any]
NOW = "2027-01-15T08:00:00.000Z"


def world() -> DialectContext:
    numbers = count(1)
    return DialectContext(now=lambda: NOW, new_uuid=lambda: f"u{next(numbers)}")


def said(dialect: Dialect, *messages: Message) -> list[Json]:
    """The lines that say these messages."""
    return [json.loads(line) for message in messages for line in dialect.encode(message)]


def heard(dialect: Dialect, *lines: Json | bytes) -> list[Message]:
    """What these lines say."""
    spelled = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return [message for line in spelled for message in dialect.decode(line)]


def replies(messages: Iterable[Message]) -> list[Json]:
    """What the dialect answers by itself."""
    return [json.loads(line) for message in messages if isinstance(message, Reply) for line in message.lines]
