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
from parley.models.base import Event, Model, ModelRequest
from parley.models.recording.format import Asked, Ended, Flaw, Head, Told
from parley.models.recording.request_matching import unmarked
from parley.models.redaction import Redaction
from parley.protocol.base import Json
from parley.workspace import private_files

PIECES = ("text", "thinking", "partial_json")
"""The fields of a delta that are a part of something longer."""


class Writer:
    """The tape itself: one file, one writer."""

    def __init__(
        self,
        path: Path,
        head: Head,
        redaction: Redaction,
        clock: Callable[[], float],
        complain: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Raises UsageError. A tape that is there already is not touched."""
        try:
            self._file = private_files.open_file(path, private_files.NEW | os.O_APPEND, make_folders=False)
        except FileExistsError:
            raise UsageError(f"option '--record': {path} is there already; a tape is never overwritten") from None
        except OSError as flaw:
            raise UsageError(f"option '--record': {path} cannot be made: {flaw.strerror}") from None
        self.redaction = redaction
        self._path = path
        self._clock = clock
        self._begun = clock()
        self._complain = complain
        self._requests = 0
        self._last = Asked(number=0)
        self.write(head)

    def begin(self, request: ModelRequest) -> int:
        """Write a request down; returns its number."""
        self._requests += 1
        asked = Asked(
            number=self._requests,
            at_ms=self.now_ms(),
            model=request.model,
            max_tokens=request.max_tokens,
            thinking=request.thinking,
            effort=request.effort,
            betas=request.betas,
            system=self.redaction.value(unmarked(request.system)),
            tools=self.redaction.value(request.tools),
            messages=self.redaction.value(unmarked(request.messages)),
        )
        self.write(news(asked, self._last))
        self._last = asked
        return asked.number

    def write(self, line: Head | Asked | Told | Ended) -> None:
        if self._file < 0:
            return
        data = msgspec.json.encode(line) + b"\n"
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as flaw:
            self._complain(f"the tape {self._path} ends here, it cannot be written: {flaw.strerror}")
            self.close()

    def now_ms(self) -> float:
        return round((self._clock() - self._begun) * 1000, 1)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def news(asked: Asked, before: Asked) -> Asked:
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

    def __init__(self, model: Model, writer: Writer) -> None:
        self._model = model
        self._writer = writer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        answer = Answer(self._writer, self._writer.begin(request))
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    answer.tell(event)
                    yield event
        except ModelError as flaw:
            answer.end(error=Flaw.of(flaw))
            raise
        except (asyncio.CancelledError, GeneratorExit):
            answer.end(closed=True)
            raise
        else:
            answer.end()

    async def close(self) -> None:
        await self._model.close()
        self._writer.close()


class Answer:
    """One answer on its way onto the tape."""

    def __init__(self, writer: Writer, number: int) -> None:
        self._writer = writer
        self._number = number
        self._waiting: list[tuple[float, Event]] = []
        """The events of the blocks that are open."""
        self._open: set[int] = set()

    def tell(self, event: Event) -> None:
        self._waiting.append((self._writer.now_ms(), event))
        if event.type == "content_block_start":
            self._open.add(event.index)
        elif event.type == "content_block_stop":
            self._open.discard(event.index)
        if not self._open:
            self._write()

    def end(self, error: Flaw | None = None, *, closed: bool = False) -> None:
        self._write()
        redaction = self._writer.redaction
        if error is not None:
            error = msgspec.structs.replace(error, message=redaction.text(error.message))
        self._writer.write(Ended(number=self._number, at_ms=self._writer.now_ms(), error=error, closed=closed))

    def _write(self) -> None:
        for (at_ms, event), data in zip(
            self._waiting, redacted([event for _, event in self._waiting], self._writer.redaction), strict=True
        ):
            self._writer.write(
                Told(number=self._number, at_ms=at_ms, data=msgspec.Raw(data), request_id=event.request_id)
            )
        self._waiting.clear()


def redacted(events: list[Event], redaction: Redaction) -> list[bytes]:
    """The events as JSON on one line each, without secrets, also where one lies across several deltas."""
    found: list[Json] = [msgspec.json.decode(event.raw) for event in events]
    clean: list[Any] = [redaction.value(json) for json in found]
    threads: dict[tuple[int, str], list[int]] = {}
    for at, event in enumerate(events):
        for field in PIECES:
            if event.delta is not None and getattr(event.delta, field):
                threads.setdefault((event.index, field), []).append(at)
    for (_, field), places in threads.items():
        pieces = [str(found[at]["delta"][field]) for at in places]
        for at, piece in zip(places, redaction.pieces(pieces), strict=True):
            clean[at]["delta"][field] = piece
    return [
        event.raw if json == before and b"\n" not in event.raw else msgspec.json.encode(json)
        for event, before, json in zip(events, found, clean, strict=True)
    ]
