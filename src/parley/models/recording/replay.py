"""`replay:FILE`: a model that says again what a tape (format.py) has.

A request gets the answer of the first request on the tape that is the same (request_matching.py) and has not been
played: mostly the next one; calls that ran side by side may come in another order. Events are played byte for byte, as
fast as they are taken or at the pace they were recorded. An answer that failed fails again. Where the conversation
departs from the tape, the call fails for good and the error says which request and what differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from parley.errors import ModelError
from parley.models.base import Model, ModelEvent, ModelRequest, ModelSetup
from parley.models.recording.format import RecordedCall, read_recording
from parley.models.recording.request_matching import describe_difference, normalize
from parley.models.redaction import Redactor

DIVERGED = "tape_departed"
"""The kind of the error with which a call fails that is not on the tape."""
CUT = "the recording was cut off here"


class Replay:
    """Plays one tape from start to end."""

    @classmethod
    def open(cls, setup: ModelSetup, name: str) -> Model:
        """Raises UsageError."""
        return setup.replay(Path(setup.cwd, name))

    def __init__(
        self,
        path: Path,
        *,
        places: Mapping[str, str] | None = None,
        redaction: Redactor | None = None,
        pace: float = 0,
        in_order: bool = False,
    ) -> None:
        """`pace` 1 is as recorded, 0 without waiting; `in_order` compares nothing. Raises UsageError."""
        self._recording = read_recording(path)
        self._left = list(self._recording.exchanges)
        self._places = places or {}
        self._redaction = redaction or Redactor()
        self._pace = pace
        self._in_order = in_order

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        exchange = self._find_call(request)
        last_ms = exchange.request.at_ms
        for at_ms, event in exchange.events:
            await self._wait(at_ms - last_ms)
            last_ms = at_ms
            yield event
        if exchange.end is None or exchange.end.closed:
            raise ModelError(f"the tape {self._recording.name} has no more of this answer: {CUT}", kind="tape_cut")
        await self._wait(exchange.end.at_ms - last_ms)
        if exchange.end.error is not None:
            raise exchange.end.error.to_error()

    async def close(self) -> None:
        pass

    async def _wait(self, recorded_ms: float) -> None:
        if self._pace and recorded_ms > 0:
            await asyncio.sleep(recorded_ms / 1000 * self._pace)

    def _find_call(self, request: ModelRequest) -> RecordedCall:
        """The answer to a request; it is not played again. Raises ModelError."""
        name, total = self._recording.name, len(self._recording.exchanges)
        if not self._left:
            raise ModelError(f"the tape {name} is over: it has {total} requests, and this is one more", kind=DIVERGED)
        asked = normalize(self._redaction.redact_value(request.messages), self._places)
        if self._in_order:
            return self._left.pop(0)
        for at, exchange in enumerate(self._left):
            if self._normalize(exchange) == asked:
                return self._left.pop(at)
        number = total - len(self._left) + 1
        differs = describe_difference(self._normalize(self._left[0]), asked)
        what = "is of another conversation" if number == 1 else f"and the conversation part ways at request {number}"
        raise ModelError(f"the tape {name} {what}: {differs}", kind=DIVERGED)

    def _normalize(self, exchange: RecordedCall) -> Any:
        return normalize(exchange.request.messages, self._recording.head.places)
