"""The interface of a model: a request goes in, Messages API stream events come out.

`Model.stream(request)` yields `ModelEvent`s. The Messages API events are canonical because `stream_event` lines
contain them. Every backend streams; partial messages are filtered out where the client did not ask for them. Text
deltas that arrive together may be one event (`join_texts`), for callers that ask for it.

See also: implementations in `backends/`, `fake/` and `recording/`; `accumulator.py` builds a message from the events.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from parley.errors import ModelError, UsageError
from parley.protocol.base import Json, Struct, replace_lone_surrogates
from parley.protocol.messages.notices import RateLimitInfo

if TYPE_CHECKING:
    import ssl

    from parley.models.endpoint import ModelEndpoint
    from parley.models.http.call import Deadlines


class Delta(Struct, gc=False):
    """Added content of a block (`type` says which), or the end of the message (`stop_reason`)."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""
    citation: Any = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None
    """Why the model refused: an object with `category` and `explanation`."""


class ModelEvent(Struct, gc=False):
    """One event of the stream, or several text deltas. `raw` is its JSON, byte for byte."""

    type: str
    index: int = 0
    message: Json | None = None
    content_block: Json | None = None
    delta: Delta | None = None
    usage: Json | None = None
    error: Json | None = None
    # Our own fields. No backend sends fields with these names.
    raw: bytes = msgspec.field(default=b"", name="parley:raw")
    request_id: str | None = msgspec.field(default=None, name="parley:request_id")
    """The backend's request id, on message_start."""
    quota: RateLimitInfo | None = msgspec.field(default=None, name="parley:quota")
    """The rate limit status on message_start, if the backend reports it."""
    joined: tuple[bytes, ...] = msgspec.field(default=(), name="parley:joined")
    """The JSON of each text delta, if the event is several; `raw` is then empty and `delta` has the whole text."""
    becomes: Json | None = msgspec.field(default=None, name="parley:becomes")
    """On content_block_stop: the empty block that a text turned out to be."""
    ending: ModelEvent | None = msgspec.field(default=None, name="parley:ending")
    """On content_block_stop: the message_delta of the answer, if that ends here and all of it has arrived."""


class _EventHead(Struct):
    """The only required field of an event of unknown type."""

    type: str


NOTE = "session-note"
"""The tag of a text by which the model is told of a change: at the end of the conversation, never in its past."""
DEFER = "defer_loading"
"""The field of a tool whose definition is loaded when a reference names it (tool_references.py)."""
REFERENCE = "tool_reference"
"""The type of a block that names such a tool."""
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
    """Created on first use, because it takes 0.5 ms and fake models do not need it."""
    return msgspec.json.Decoder(ModelEvent)


def read_event(data: bytes) -> ModelEvent:
    """Parse the data field of one server-sent event. Raises msgspec.DecodeError."""
    try:
        event = _decode_event(data)
    except RecursionError:
        raise msgspec.DecodeError("the JSON is nested too deeply") from None
    except msgspec.DecodeError:
        repaired = replace_lone_surrogates(data)
        if repaired is None:
            raise
        return read_event(repaired)
    # The event is embedded in a line, and JSON may contain newlines between tokens.
    event.raw = data if data.find(b"\n") < 0 else data.replace(b"\n", b" ")
    return event


def _decode_event(data: bytes) -> ModelEvent:
    """Raises msgspec.DecodeError or RecursionError."""
    try:
        return _decoder().decode(data)
    except msgspec.ValidationError:
        # An unknown event type may use our field names with other types.
        kind = msgspec.json.decode(data, type=_EventHead).type
        if kind in KNOWN:
            raise
        return ModelEvent(type=kind)


def join_texts(events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
    """The events that arrived together, with consecutive text deltas of one block as one event.

    If reading an event raises ModelError, the events before it come first.
    """
    run: list[ModelEvent] = []
    try:
        for event in events:
            delta = event.delta
            is_text = delta is not None and delta.type == "text_delta"
            if run and not (is_text and event.index == run[0].index):
                yield join_run(run)
                run = []
            if is_text:
                run.append(event)
            else:
                yield event
    except ModelError:
        if run:
            yield join_run(run)
        raise
    if run:
        yield join_run(run)


LAST_EVENTS = ("content_block_stop", "message_delta", "message_stop")
"""How an answer ends."""


def attach_endings(events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
    """The events that arrived together. If the answer ends with them, the end of its last block says how.

    If reading an event raises ModelError, the events before it come first.
    """
    held: list[ModelEvent] = []
    """The last events so far."""
    try:
        for event in events:
            if event.type != LAST_EVENTS[len(held)]:
                yield from held
                held = []
            if event.type == LAST_EVENTS[len(held)]:
                held.append(event)
            else:
                yield event
            if len(held) == len(LAST_EVENTS):
                held[0].ending = held[1]
                yield from held
                held = []
    except ModelError:
        yield from held
        raise
    yield from held


def join_run(run: list[ModelEvent]) -> ModelEvent:
    if len(run) == 1:
        return run[0]
    text = "".join([event.delta.text for event in run if event.delta is not None])
    delta = Delta(type="text_delta", text=text)
    return ModelEvent(run[0].type, run[0].index, delta=delta, joined=tuple([event.raw for event in run]))


class SettledMessages(list[Json]):
    """The messages of a request. The first `settled` are the same objects in all such lists with the same `origin`.

    So a list of 100,000 messages need not be compared with that of the request before, message by message.
    """

    def __init__(self, messages: Iterable[Json], origin: object, settled: int = 0) -> None:
        super().__init__(messages)
        self.origin = origin
        self.settled = settled


class ModelRequest(Struct, frozen=True, kw_only=True):
    """Everything a model call needs. A backend leaves out the fields that its server does not support."""

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
    """Token budget of the whole task. The model keeps count."""
    output_schema: Json | None = None
    """JSON Schema of the answer, for models that support one."""
    headers: dict[str, str] = {}
    """Additional HTTP headers."""
    joins_texts: bool = False
    """Whether text deltas that arrive together may be one event. It is not sent."""
    report_wait: Callable[[str], None] = lambda text: None
    """Called with what the call waits for from now on; empty before anything is sent to the server."""


class Model(Protocol):
    """A model backend."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the events of the answer. Raises ModelError. Closing the generator aborts the call."""

    async def close(self) -> None:
        """Close all connections."""


MODEL_ROOTS = "PARLEY_MODEL_ROOTS"
"""A gateway sets it: the folders that a session of a token may name files in, as JSON with base64: a path can have any
character and any byte. The sessions of the server's operator, and engines without a gateway, do not have it."""


def find_model_file(cwd: str, name: str, environment: Mapping[str, str]) -> Path:
    """Raises UsageError if the file is outside of the folders that the environment names."""
    roots = environment.get(MODEL_ROOTS)
    if roots is None:
        return Path(cwd, name)
    path = Path(os.path.realpath(os.path.join(cwd, name)))
    folders = map(os.fsdecode, msgspec.json.decode(roots, type=list[bytes]))
    if not any(path.is_relative_to(os.path.realpath(root)) for root in folders):
        raise UsageError(f"the model file {name!r:.200} is outside the roots that the token allows")
    return path


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

    def find_endpoint(self, service: str, name: str = "") -> ModelEndpoint:
        """The address and the key of a service that settings know. Raises UsageError or ModelError."""

    def cloud_options(self, cloud: str) -> dict[str, str]:
        """The arguments for a cloud's client."""

    def replay(self, path: Path) -> Model:
        """The model that plays a recording, with this session's redaction. Raises UsageError."""


def read_model_file(path: Path) -> bytes:
    """Raises OSError. Only regular files are read: a pipe or a device could stop all sessions of the process."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read()


def is_note(block: Json) -> bool:
    """Whether a block tells the model of a change (`NOTE`)."""
    return str(block.get("text") or "").startswith(f"<{NOTE}>")
