"""What a model is: a request goes in, the events of the Messages API come out.

That vocabulary is canonical because `stream_event` lines carry it. Every adapter
streams; "not streaming" is a filter at the door.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec

from parley.protocol.base import Json, Struct


class Delta(Struct, gc=False):
    """What grew: a block (`type` says how), or the message as a whole (`stop_reason`)."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""
    citation: Any = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class Event(Struct, gc=False):
    """One event of the stream. `raw` is its JSON, byte for byte."""

    type: str
    index: int = 0
    message: Json | None = None
    content_block: Json | None = None
    delta: Delta | None = None
    usage: Json | None = None
    error: Json | None = None
    raw: bytes = b""
    request_id: str | None = None
    """The backend's id of the request, on message_start."""


_decoder = msgspec.json.Decoder(Event)


def read_event(data: bytes) -> Event:
    """The event of one SSE data field. Raises msgspec.DecodeError."""
    event = _decoder.decode(data)
    event.raw = data
    return event


class ModelRequest(Struct, frozen=True, kw_only=True):
    """Everything a model call needs. Fields a backend does not know are left out by its adapter."""

    model: str
    system: list[Json]
    messages: list[Json]
    tools: list[Json] = []
    max_tokens: int
    thinking: Json | None = None
    effort: str | None = None
    betas: tuple[str, ...] = ()
    session_id: str = ""


class Model(Protocol):
    """A source of answers."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Event]:
        """The answer's events. Raises ModelError. Closing the iterator aborts the call."""

    async def close(self) -> None:
        """Let go of connections."""
