"""The Messages API as a server speaks it. Its stream events are those of every model here, so they pass as they are.

Another API is another class of this shape (chat_completions.py).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Protocol

import msgspec

from parley.errors import ModelError
from parley.models.base import Event, ModelRequest
from parley.protocol.base import Json, Struct
from parley.testing.http import refused


class Asked(Struct, frozen=True):
    """A request, and how it wants to be answered."""

    request: ModelRequest
    stream: bool
    with_usage: bool = True
    """Whether a stream tells at its end what was used."""


class Wire(Protocol):
    def read(self, raw: bytes) -> Asked:
        """Raises ModelError."""

    def spelled(self, events: AsyncIterator[Event], asked: Asked) -> AsyncGenerator[bytes, None]:
        """The stream, one event a chunk."""

    def whole(self, message: Json) -> Json:
        """An answer in one piece, from a finished message of the Messages API."""

    def error(self, flaw: ModelError) -> Json:
        """The body of a refusal."""


class _Body(Struct, frozen=True, kw_only=True):
    """The part of a body that decides how it is answered."""

    model: str
    messages: list[Json]
    max_tokens: int = 0
    stream: bool = False
    system: Any = None
    tools: list[Json] = []


class _Block(Struct, frozen=True):
    type: str
    text: str = ""


class _Said(Struct, frozen=True):
    """What a message must be, whatever else it has."""

    role: str
    content: str | list[_Block]


class Messages:
    def read(self, raw: bytes) -> Asked:
        try:
            body = msgspec.json.decode(raw, type=_Body)
            msgspec.convert(body.messages, list[_Said])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as flaw:
            raise refused(400, str(flaw)) from None
        system = [{"type": "text", "text": body.system}] if isinstance(body.system, str) else body.system or []
        request = ModelRequest(
            model=body.model, system=system, messages=body.messages, tools=body.tools, max_tokens=body.max_tokens
        )
        return Asked(request, body.stream)

    async def spelled(self, events: AsyncIterator[Event], asked: Asked) -> AsyncGenerator[bytes, None]:
        async for event in events:
            yield b"event: %b\ndata: %b\n\n" % (event.type.encode(), event.raw)

    def whole(self, message: Json) -> Json:
        return message

    def error(self, flaw: ModelError) -> Json:
        return {"type": "error", "error": {"type": flaw.kind or "api_error", "message": flaw.message}}
