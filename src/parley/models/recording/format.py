"""The format of a recording: the requests to a model and its answers. One JSON object per line.

    {"type":"tape","version":1,"by":"parley 0.1.0","places":{"cwd":"/home/me/project"}}
    {"type":"request","number":1,"at_ms":12.1,"model":"claude-opus-5-5","system":[…],"tools":[…],"messages":[…]}
    {"type":"event","number":1,"at_ms":840.9,"data":{"type":"message_start",…}}
    {"type":"end","number":1,"at_ms":2210.0}

`number` links lines to their request, because calls may run concurrently. A request contains only what changed: `kept`
counts the messages that it shares with the previous request, and a missing field is the same as there. `data` is the
event as received. An end may have an `error`, or `closed` if the engine aborted the call.

`recorder.py` writes recordings, `replay.py` plays them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from parley.errors import ModelError, UsageError
from parley.models.base import ModelEvent, read_event
from parley.models.model_file import read_model_file
from parley.protocol.base import Json, Struct

VERSION = 1


class RecordingHeader(Struct, frozen=True, kw_only=True, tag="tape", tag_field="type"):
    """The first line."""

    version: int = VERSION
    by: str = ""
    at: str = ""
    places: dict[str, str] = {}
    """Directories whose paths differ between runs."""


class RecordedRequest(Struct, frozen=True, kw_only=True, tag="request", tag_field="type", omit_defaults=True):
    """A request. Headers are not recorded, and so no key is."""

    number: int
    at_ms: float = 0
    model: str = ""
    max_tokens: int = 0
    thinking: Json | None = None
    effort: str | None = None
    betas: tuple[str, ...] = ()
    system: list[Json] | None = None
    tools: list[Json] | None = None
    kept: int = 0
    messages: list[Json] = []


class RecordedEvent(Struct, frozen=True, kw_only=True, tag="event", tag_field="type", omit_defaults=True):
    number: int
    at_ms: float = 0
    data: msgspec.Raw
    request_id: str | None = None


class RecordedError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The error of a failed call."""

    message: str
    status: int | None = None
    kind: str | None = None
    retryable: bool = False
    retry_after_seconds: float | None = None
    request_id: str | None = None

    @classmethod
    def from_error(cls, exc: ModelError) -> RecordedError:
        return cls(**{field: getattr(exc, field) for field in cls.__struct_fields__})

    def to_error(self) -> ModelError:
        return ModelError(self.message, **{k: v for k, v in msgspec.structs.asdict(self).items() if k != "message"})


class RecordedEnd(Struct, frozen=True, kw_only=True, tag="end", tag_field="type", omit_defaults=True):
    """The end of an answer."""

    number: int
    at_ms: float = 0
    error: RecordedError | None = None
    closed: bool = False
    """Whether the engine aborted the call because the turn was interrupted."""


class RecordedCall(Struct, kw_only=True):
    """A request and its answer."""

    request: RecordedRequest
    """With all messages."""
    events: list[tuple[float, ModelEvent]] = []
    """Each with its time in milliseconds."""
    end: RecordedEnd | None = None
    """None if the recording stopped before the end."""


class Recording(Struct, frozen=True):
    name: str
    head: RecordingHeader
    exchanges: list[RecordedCall]


_line = msgspec.json.Decoder(RecordingHeader | RecordedRequest | RecordedEvent | RecordedEnd)


def read_recording(path: Path) -> Recording:
    """Raises UsageError if the file is not a valid recording."""
    try:
        data = read_model_file(path)
    except OSError as exc:
        raise UsageError(f"cannot read recording {path}: {exc.strerror}") from None
    # A crash leaves an incomplete last line. Everything before it is used.
    lines = data.split(b"\n")[:-1]
    if not lines:
        raise UsageError(f"{path} is not a recording: the file is empty")
    head = _read(lines[0], path, 1)
    if not isinstance(head, RecordingHeader):
        raise UsageError(f"{path} is not a recording: the first line is not a header")
    if head.version != VERSION:
        raise UsageError(f"recording {path} has version {head.version}; only version {VERSION} is supported")
    exchanges: dict[int, RecordedCall] = {}
    for at, line in enumerate(lines[1:], 2):
        try:
            _add(_read(line, path, at), exchanges)
        except (ValueError, msgspec.DecodeError) as exc:
            raise UsageError(f"invalid recording {path}: line {at}: {exc}") from None
    if not exchanges:
        raise UsageError(f"recording {path} contains no request")
    return Recording(str(path), head, list(exchanges.values()))


def _read(line: bytes, path: Path, at: int) -> Any:
    try:
        return _line.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        what = f"{path} is not a recording" if at == 1 else f"invalid recording {path}"
        raise UsageError(f"{what}: line {at}: {exc}") from None


def _add(line: Any, exchanges: dict[int, RecordedCall]) -> None:
    """Add a line to its call. Raises ValueError or msgspec.DecodeError."""
    if isinstance(line, RecordingHeader):
        raise ValueError("only the first line can be a header")
    if isinstance(line, RecordedRequest):
        if line.number in exchanges:
            raise ValueError(f"there are two requests with the number {line.number}")
        exchanges[line.number] = RecordedCall(request=_with_shared_fields(line, exchanges))
        return
    exchange = exchanges.get(line.number)
    if exchange is None:
        raise ValueError(f"there is no request {line.number} before this line")
    if exchange.end is not None:
        raise ValueError(f"request {line.number} has already ended")
    if isinstance(line, RecordedEvent):
        event = read_event(bytes(line.data))
        event.request_id = line.request_id
        exchange.events.append((line.at_ms, event))
    else:
        exchange.end = line


def _with_shared_fields(request: RecordedRequest, exchanges: dict[int, RecordedCall]) -> RecordedRequest:
    """The request with the fields that it shares with the previous one."""
    before = list(exchanges.values())[-1].request if exchanges else RecordedRequest(number=0, system=[], tools=[])
    if request.kept > len(before.messages):
        raise ValueError(
            f"request {request.number} reuses {request.kept} messages of the previous request, which "
            f"has {len(before.messages)}"
        )
    return msgspec.structs.replace(
        request,
        messages=[*before.messages[: request.kept], *request.messages],
        system=before.system if request.system is None else request.system,
        tools=before.tools if request.tools is None else request.tools,
    )
