"""What a model is: a request goes in, the events of the Messages API come out.

That vocabulary is canonical because `stream_event` lines carry it. Every adapter
streams; "not streaming" is a filter at the door.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from parley.protocol.base import Json, Struct, replace_lone_surrogates
from parley.protocol.messages.notices import RateLimitInfo

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from parley.models.endpoint import ModelEndpoint
    from parley.models.http.call import Deadlines


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


class ModelEvent(Struct, gc=False):
    """One event of the stream. `raw` is its JSON, byte for byte."""

    type: str
    index: int = 0
    message: Json | None = None
    content_block: Json | None = None
    delta: Delta | None = None
    usage: Json | None = None
    error: Json | None = None
    # Ours: the names cannot be those of a field that a backend sends.
    raw: bytes = msgspec.field(default=b"", name="parley:raw")
    request_id: str | None = msgspec.field(default=None, name="parley:request_id")
    """The backend's id of the request, on message_start."""
    quota: RateLimitInfo | None = msgspec.field(default=None, name="parley:quota")
    """The state of the quota, on message_start, where the backend tells it."""


class _EventHead(Struct):
    """All that an event of an unknown kind must have."""

    type: str


KNOWN = frozenset(
    {
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "ping",
        "error",
    }
)


@cache
def _decoder() -> msgspec.json.Decoder[ModelEvent]:
    """Made when the first event comes: it takes 0.5 ms, and a played model has no use for it."""
    return msgspec.json.Decoder(ModelEvent)


def read_event(data: bytes) -> ModelEvent:
    """The event of one SSE data field. Raises msgspec.DecodeError."""
    try:
        event = _decoder().decode(data)
    except msgspec.ValidationError:
        # A kind we do not know may use our names for other things.
        kind = msgspec.json.decode(data, type=_EventHead).type
        if kind in KNOWN:
            raise
        event = ModelEvent(type=kind)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deep") from None
    except msgspec.DecodeError:
        mended = replace_lone_surrogates(data)
        if mended is None:
            raise
        return read_event(mended)
    # It becomes part of a line, and JSON may have line breaks between its words.
    event.raw = data.replace(b"\n", b" ") if b"\n" in data else data
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
    task_budget: int | None = None
    """Tokens for the whole work, of which the model keeps count."""
    output_schema: Json | None = None
    """The form of the answer, for a model that knows schemas."""
    headers: dict[str, str] = {}
    """What goes with the request over HTTP beside the adapter's own."""


class Model(Protocol):
    """A source of answers."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """The answer's events. Raises ModelError. Closing the iterator aborts the call."""

    async def close(self) -> None:
        """Let go of connections."""


class ModelSetup(Protocol):
    """What a backend may use of the session that opens it."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the session, keys included."""

    @property
    def cwd(self) -> str: ...

    @property
    def warn(self) -> Callable[[str], None]:
        """Writes a line to stderr."""

    @property
    def new_id(self) -> Callable[[], str]:
        """Makes a short id, for messages and tool calls."""

    def deadlines(self) -> Deadlines:
        """How long to wait for a silent server. Raises UsageError."""

    def trust(self) -> Callable[[], ssl.SSLContext]:
        """Makes the TLS context with the certificates that the environment names."""

    def extra_trust(self) -> Callable[[], ssl.SSLContext] | None:
        """The same, if the environment adds certificates to those of the machine; else None."""

    def find_endpoint(self, service: str) -> ModelEndpoint:
        """The address and the key of a service that settings know. Raises UsageError or ModelError."""

    def cloud_options(self, cloud: str) -> dict[str, str]:
        """The arguments for a cloud's client."""

    def replay(self, path: Path) -> Model:
        """The model that plays a recording, with this session's redaction. Raises UsageError."""
