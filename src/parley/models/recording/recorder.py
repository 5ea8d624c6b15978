"""`--record FILE`: record the requests to the model and its answers.

    writer = RecordingWriter(path, header, redactor, clock, warn)
    model = Recorder(model, writer)         # any model; several can share one recording

Each line is written at once, so that a crash keeps what was recorded. The events of a block are written when it ends,
because a secret may span several of them. If the file cannot be written, one warning is given and the run continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import ModelError, UsageError
from parley.models.base import Model, ModelEvent, ModelRequest
from parley.models.recording.format import RecordedEnd, RecordedError, RecordedEvent, RecordedRequest, RecordingHeader
from parley.models.recording.request_matching import without_cache_marks
from parley.models.redaction import Redactor
from parley.protocol.base import Json
from parley.stores.records import MODEL, RecordWriter

PIECES = ("text", "thinking", "partial_json")
"""Delta fields that are pieces of a longer text."""


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
    streams: dict[tuple[int, str], list[int]] = {}
    for at, event in enumerate(events):
        for field in PIECES:
            if event.delta is not None and getattr(event.delta, field):
                streams.setdefault((event.index, field), []).append(at)
    for (_, field), indexes in streams.items():
        pieces = [str(found[at]["delta"][field]) for at in indexes]
        for at, piece in zip(indexes, redaction.redact_pieces(pieces), strict=True):
            clean[at]["delta"][field] = piece
    return [
        event.raw if json == before and b"\n" not in event.raw else msgspec.json.encode(json)
        for event, before, json in zip(events, found, clean, strict=True)
    ]
