"""The Messages API, server side. Its stream events are those of our models and are passed on unchanged.

`chat_completions.py` and `responses_api.py` implement the same interface for other APIs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Protocol

import msgspec

from parley.errors import ModelError
from parley.models.base import ModelEvent, ModelRequest
from parley.protocol.base import Json, Struct


def request_error(status: int, text: str, kind: str = "invalid_request_error") -> ModelError:
    return ModelError(text, status=status, kind=kind)


class ApiRequest(Struct, frozen=True):
    """A request and the form of its response."""

    request: ModelRequest
    stream: bool
    with_usage: bool = True
    """Whether a stream ends with the usage."""


class ApiFormat(Protocol):
    def read(self, raw: bytes) -> ApiRequest:
        """Raises ModelError."""

    def encode_events(self, events: AsyncIterator[ModelEvent], request: ApiRequest) -> AsyncGenerator[bytes, None]:
        """The stream, one event per chunk."""

    def encode_message(self, message: Json) -> Json:
        """A response without streaming, from a complete Messages API message."""

    def error(self, exc: ModelError) -> Json:
        """The body of an error response."""


class _MessagesBody(Struct, frozen=True, kw_only=True):
    """The fields of a body that affect the response."""

    model: str
    messages: list[Json]
    max_tokens: int = 0
    stream: bool = False
    system: Any = None
    tools: list[Json] = []


class _Block(Struct, frozen=True):
    type: str
    text: str = ""


class _MessageShape(Struct, frozen=True):
    """What every message must have."""

    role: str
    content: str | list[_Block]


class MessagesApi:
    def read(self, raw: bytes) -> ApiRequest:
        try:
            body = msgspec.json.decode(raw, type=_MessagesBody)
            msgspec.convert(body.messages, list[_MessageShape])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise request_error(400, str(exc)) from None
        system = [{"type": "text", "text": body.system}] if isinstance(body.system, str) else body.system or []
        request = ModelRequest(
            model=body.model, system=system, messages=body.messages, tools=body.tools, max_tokens=body.max_tokens
        )
        return ApiRequest(request, body.stream)

    async def encode_events(
        self, events: AsyncIterator[ModelEvent], request: ApiRequest
    ) -> AsyncGenerator[bytes, None]:
        async for event in events:
            yield b"event: %b\ndata: %b\n\n" % (event.type.encode(), event.raw)

    def encode_message(self, message: Json) -> Json:
        return message

    def error(self, exc: ModelError) -> Json:
        return {"type": "error", "error": {"type": exc.kind or "api_error", "message": exc.message}}
