"""`--record FILE`: record the requests to the model and its answers, as records (`stores/records.py`).

    {"parley_records":"model","version":1,"by":"parley 0.1.0","places":{"cwd":"/home/me/project"}}
    {"n":1,"at_ms":12.1,"type":"request","call":1,"model":"claude-opus-5-5","system":[…],"tools":[…],"messages":[…]}
    {"n":2,"at_ms":840.9,"type":"event","call":1,"data":{"type":"message_start",…}}
    {"n":3,"at_ms":2210.0,"type":"end","call":1}

`call` links the records of one call, because calls may run concurrently. A request contains only what changed: `kept`
counts the messages that it shares with the previous request, and a missing field is the same as there. `data` is the
event as received. An end may have an `error`, or `closed` if the engine aborted the call.

    writer = RecordingWriter(path, header, redactor, clock, warn)
    model = Recorder(model, writer)         # any model; several can share one recording
    read_recording(path).calls              # what `replay.py` plays

Each line is written at once, so that a crash keeps what was recorded. The events of a block are written when it ends,
because a secret may span several of them. If the file cannot be written, one warning is given and the run continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import ModelError, UsageError
from parley.models.base import Model, ModelEvent, ModelRequest, read_event, read_model_file
from parley.models.redaction import Redactor
from parley.protocol.base import Json, Struct
from parley.stores.records import MODEL, FiledRecord, RecordWriter, parse_records


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


class RecordingWriter:
    """Writes a recording: one file, one writer."""

    def __init__(
        self,
        path: Path,
        head: RecordingHeader,
        redaction: Redactor,
        clock: Callable[[], float],
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Raises UsageError. An existing file is not touched."""
        try:
            self._file = RecordWriter.create(path, MODEL, head)
        except FileExistsError:
            raise UsageError(f"option '--record': {path} already exists; recordings are not overwritten") from None
        except OSError as exc:
            raise UsageError(f"option '--record': cannot create {path}: {exc.strerror}") from None
        self.redaction = redaction
        self._path = path
        self._clock = clock
        self._started = clock()
        self._warn = warn
        self._requests = 0
        self._last = RecordedRequest(call=0)

    def write_request(self, request: ModelRequest) -> int:
        """Write a request and return the number of its call."""
        self._requests += 1
        at_ms = self.now_ms()
        recorded = RecordedRequest(
            call=self._requests,
            model=request.model,
            max_tokens=request.max_tokens,
            thinking=request.thinking,
            effort=request.effort,
            betas=request.betas,
            system=self.redaction.redact_value(without_cache_marks(request.system)),
            tools=self.redaction.redact_value(request.tools),
            messages=self.redaction.redact_value(without_cache_marks(request.messages)),
        )
        self.write(at_ms, without_repeats(recorded, self._last))
        self._last = recorded
        return recorded.call

    def write(self, at_ms: float, record: RecordedRequest | RecordedEvent | RecordedEnd) -> None:
        try:
            if self._file.is_open:
                self._file.append(at_ms, record)
        except OSError as exc:
            self._warn(f"cannot write to recording {self._path}; the recording is incomplete: {exc.strerror}")

    def now_ms(self) -> float:
        return round((self._clock() - self._started) * 1000, 1)

    def close(self) -> None:
        self._file.close()


def without_repeats(request: RecordedRequest, before: RecordedRequest) -> RecordedRequest:
    """The request without what it shares with the previous one."""
    pairs = zip(request.messages, before.messages, strict=False)
    kept = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
    if kept is None:
        kept = min(len(request.messages), len(before.messages))
    return msgspec.structs.replace(
        request,
        kept=kept,
        messages=request.messages[kept:],
        system=None if request.system == before.system else request.system,
        tools=None if request.tools == before.tools else request.tools,
    )


def without_cache_marks(value: Any) -> Any:
    """The same JSON without cache markers, which move with every request."""
    if isinstance(value, list):
        return [without_cache_marks(item) for item in value]
    if isinstance(value, dict) and "cache_control" in value:
        return {key: item for key, item in value.items() if key != "cache_control"}
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return {**value, "content": without_cache_marks(value["content"])}
    return value


class Recorder:
    """A model whose answers are recorded."""

    def __init__(self, model: Model, writer: RecordingWriter) -> None:
        self._model = model
        self._writer = writer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        answer = ResponseRecorder(self._writer, self._writer.write_request(request))
        request = msgspec.structs.replace(request, joins_texts=False)  # every event is recorded
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    answer.write(event)
                    yield event
        except ModelError as exc:
            answer.end(error=RecordedError.from_error(exc))
            raise
        except (asyncio.CancelledError, GeneratorExit):
            answer.end(closed=True)
            raise
        else:
            answer.end()

    async def close(self) -> None:
        await self._model.close()
        self._writer.close()


class ResponseRecorder:
    """Records one answer."""

    def __init__(self, writer: RecordingWriter, call: int) -> None:
        self._writer = writer
        self._call = call
        self._waiting: list[tuple[float, ModelEvent]] = []
        """The events of the open blocks."""
        self._open: set[int] = set()

    def write(self, event: ModelEvent) -> None:
        self._waiting.append((self._writer.now_ms(), event))
        if event.type == "content_block_start":
            self._open.add(event.index)
        elif event.type == "content_block_stop":
            self._open.discard(event.index)
        if not self._open:
            self._write()

    def end(self, error: RecordedError | None = None, *, closed: bool = False) -> None:
        self._write()
        redaction = self._writer.redaction
        if error is not None:
            error = msgspec.structs.replace(error, message=redaction.redact_text(error.message))
        self._writer.write(self._writer.now_ms(), RecordedEnd(call=self._call, error=error, closed=closed))

    def _write(self) -> None:
        for (at_ms, event), data in zip(
            self._waiting, redact_events([event for _, event in self._waiting], self._writer.redaction), strict=True
        ):
            record = RecordedEvent(call=self._call, data=msgspec.Raw(data), request_id=event.request_id)
            self._writer.write(at_ms, record)
        self._waiting.clear()


def redact_events(events: list[ModelEvent], redaction: Redactor) -> list[bytes]:
    """The events as JSON, one line each, without secrets, even if one spans several deltas."""
    found: list[Json] = [msgspec.json.decode(event.raw) for event in events]
    clean: list[Any] = [redaction.redact_value(json) for json in found]
    redaction.redact_streams(zip(repeat(None), found, clean, strict=False))
    return [
        event.raw if json == before and b"\n" not in event.raw else msgspec.json.encode(json)
        for event, before, json in zip(events, found, clean, strict=True)
    ]
