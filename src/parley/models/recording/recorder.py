"""`--record FILE`: a tape of what the model was asked and what it said.

    writer = Writer(path, head, redaction, clock, complain)
    model = Recorder(model, writer)         # any model; many may share one tape

A line is written whole and at once, so that a crash keeps what was recorded. The events of a block wait for its
end, because a secret may lie across two of them. A tape that cannot be written on is told of once, and the run
goes on without it.
"""

from __future__ import annotations

import asyncio
import os
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
from parley.workspace import private_files

PIECES = ("text", "thinking", "partial_json")
"""The fields of a delta that are a part of something longer."""


class RecordingWriter:
    """The tape itself: one file, one writer."""

    def __init__(
        self,
        path: Path,
        head: RecordingHeader,
        redaction: Redactor,
        clock: Callable[[], float],
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Raises UsageError. A tape that is there already is not touched."""
        try:
            self._file = private_files.open_file(path, private_files.NEW | os.O_APPEND, make_folders=False)
        except FileExistsError:
            raise UsageError(f"option '--record': {path} is there already; a tape is never overwritten") from None
        except OSError as exc:
            raise UsageError(f"option '--record': {path} cannot be made: {exc.strerror}") from None
        self.redaction = redaction
        self._path = path
        self._clock = clock
        self._started = clock()
        self._warn = warn
        self._requests = 0
        self._last = RecordedRequest(number=0)
        self.write(head)

    def write_request(self, request: ModelRequest) -> int:
        """Write a request down; returns its number."""
        self._requests += 1
        asked = RecordedRequest(
            number=self._requests,
            at_ms=self.now_ms(),
            model=request.model,
            max_tokens=request.max_tokens,
            thinking=request.thinking,
            effort=request.effort,
            betas=request.betas,
            system=self.redaction.redact_value(without_cache_marks(request.system)),
            tools=self.redaction.redact_value(request.tools),
            messages=self.redaction.redact_value(without_cache_marks(request.messages)),
        )
        self.write(without_repeats(asked, self._last))
        self._last = asked
        return asked.number

    def write(self, line: RecordingHeader | RecordedRequest | RecordedEvent | RecordedEnd) -> None:
        if self._file < 0:
            return
        data = msgspec.json.encode(line) + b"\n"
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as exc:
            self._warn(f"the tape {self._path} ends here, it cannot be written: {exc.strerror}")
            self.close()

    def now_ms(self) -> float:
        return round((self._clock() - self._started) * 1000, 1)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def without_repeats(asked: RecordedRequest, before: RecordedRequest) -> RecordedRequest:
    """A request without what it has in common with the one before it."""
    pairs = zip(asked.messages, before.messages, strict=False)
    kept = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
    if kept is None:
        kept = min(len(asked.messages), len(before.messages))
    return msgspec.structs.replace(
        asked,
        kept=kept,
        messages=asked.messages[kept:],
        system=None if asked.system == before.system else asked.system,
        tools=None if asked.tools == before.tools else asked.tools,
    )


class Recorder:
    """A model whose answers are written down on their way."""

    def __init__(self, model: Model, writer: RecordingWriter) -> None:
        self._model = model
        self._writer = writer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        answer = ResponseRecorder(self._writer, self._writer.write_request(request))
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
    """One answer on its way onto the tape."""

    def __init__(self, writer: RecordingWriter, number: int) -> None:
        self._writer = writer
        self._number = number
        self._waiting: list[tuple[float, ModelEvent]] = []
        """The events of the blocks that are open."""
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
        self._writer.write(RecordedEnd(number=self._number, at_ms=self._writer.now_ms(), error=error, closed=closed))

    def _write(self) -> None:
        for (at_ms, event), data in zip(
            self._waiting, redact_events([event for _, event in self._waiting], self._writer.redaction), strict=True
        ):
            self._writer.write(
                RecordedEvent(number=self._number, at_ms=at_ms, data=msgspec.Raw(data), request_id=event.request_id)
            )
        self._waiting.clear()


def redact_events(events: list[ModelEvent], redaction: Redactor) -> list[bytes]:
    """The events as JSON on one line each, without secrets, also where one lies across several deltas."""
    found: list[Json] = [msgspec.json.decode(event.raw) for event in events]
    clean: list[Any] = [redaction.redact_value(json) for json in found]
    threads: dict[tuple[int, str], list[int]] = {}
    for at, event in enumerate(events):
        for field in PIECES:
            if event.delta is not None and getattr(event.delta, field):
                threads.setdefault((event.index, field), []).append(at)
    for (_, field), places in threads.items():
        pieces = [str(found[at]["delta"][field]) for at in places]
        for at, piece in zip(places, redaction.redact_pieces(pieces), strict=True):
            clean[at]["delta"][field] = piece
    return [
        event.raw if json == before and b"\n" not in event.raw else msgspec.json.encode(json)
        for event, before, json in zip(events, found, clean, strict=True)
    ]
