"""The format of a recording of a model: the requests to it and its answers, as records (`stores/records.py`).

    {"parley_records":"model","version":1,"by":"parley 0.1.0","places":{"cwd":"/home/me/project"}}
    {"n":1,"at_ms":12.1,"type":"request","call":1,"model":"claude-opus-5-5","system":[…],"tools":[…],"messages":[…]}
    {"n":2,"at_ms":840.9,"type":"event","call":1,"data":{"type":"message_start",…}}
    {"n":3,"at_ms":2210.0,"type":"end","call":1}

`call` links the records of one call, because calls may run concurrently. A request contains only what changed: `kept`
counts the messages that it shares with the previous request, and a missing field is the same as there. `data` is the
event as received. An end may have an `error`, or `closed` if the engine aborted the call.

`recorder.py` writes recordings, `replay.py` plays them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from parley.errors import ModelError, UsageError
from parley.models.base import ModelEvent, read_event
from parley.models.model_file import read_model_file
from parley.protocol.base import Json, Struct
from parley.stores.records import MODEL, FiledRecord, parse_records


class RecordingHeader(Struct, frozen=True, kw_only=True):
    """The header of the file."""

    by: str = ""
    at: str = ""
    places: dict[str, str] = {}
    """Directories whose paths differ between runs."""


class RecordedRequest(Struct, frozen=True, kw_only=True, tag="request", tag_field="type", omit_defaults=True):
    """A request. Headers are not recorded, and so no key is."""

    call: int
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
    call: int
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

    call: int
    error: RecordedError | None = None
    closed: bool = False
    """Whether the engine aborted the call because the turn was interrupted."""


class RecordedCall(Struct, kw_only=True):
    """A request and its answer."""

    request: RecordedRequest
    """With all messages."""
    at_ms: float
    events: list[tuple[float, ModelEvent]] = []
    """Each with its time in milliseconds."""
    end: RecordedEnd | None = None
    """None if the recording stopped before the end."""
    ended_ms: float = 0


class Recording(Struct, frozen=True):
    name: str
    head: RecordingHeader
    calls: list[RecordedCall]


_record = msgspec.json.Decoder(RecordedRequest | RecordedEvent | RecordedEnd)


def read_recording(path: Path) -> Recording:
    """Raises UsageError if the file is not a valid recording."""
    try:
        data = read_model_file(path)
    except OSError as exc:
        raise UsageError(f"cannot read recording {path}: {exc.strerror}") from None
    # A crash leaves an incomplete last line. Everything before it is used.
    found = parse_records(data, str(path), MODEL)
    calls: dict[int, RecordedCall] = {}
    for record in found.records:
        try:
            _add(record, calls)
        except (ValueError, msgspec.DecodeError) as exc:
            raise UsageError(f"{record.place}: {exc}") from None
    if not calls:
        raise UsageError(f"recording {path} contains no request")
    return Recording(str(path), found.decode_header(RecordingHeader), list(calls.values()))


def _add(record: FiledRecord, calls: dict[int, RecordedCall]) -> None:
    """Add a record to its call. Raises UsageError, ValueError or msgspec.DecodeError."""
    line = record.decode(_record)
    if isinstance(line, RecordedRequest):
        if line.call in calls:
            raise ValueError(f"there are two requests of call {line.call}")
        calls[line.call] = RecordedCall(request=_with_shared_fields(line, calls), at_ms=record.at_ms)
        return
    call = calls.get(line.call)
    if call is None:
        raise ValueError(f"there is no request of call {line.call} before this line")
    if call.end is not None:
        raise ValueError(f"call {line.call} has already ended")
    if isinstance(line, RecordedEvent):
        event = read_event(bytes(line.data))
        event.request_id = line.request_id
        call.events.append((record.at_ms, event))
    else:
        call.end, call.ended_ms = line, record.at_ms


def _with_shared_fields(request: RecordedRequest, calls: dict[int, RecordedCall]) -> RecordedRequest:
    """The request with the fields that it shares with the previous one."""
    before = list(calls.values())[-1].request if calls else RecordedRequest(call=0, system=[], tools=[])
    if request.kept > len(before.messages):
        raise ValueError(
            f"request {request.call} reuses {request.kept} messages of the previous request, which "
            f"has {len(before.messages)}"
        )
    return msgspec.structs.replace(
        request,
        messages=[*before.messages[: request.kept], *request.messages],
        system=before.system if request.system is None else request.system,
        tools=before.tools if request.tools is None else request.tools,
    )
