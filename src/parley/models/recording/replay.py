"""`replay:FILE`: a model that replays a recording (format.py).

A request gets the answer of the first unused recorded request that matches it (request_matching.py). That is usually
the next one; concurrent calls may come in another order. Events are replayed byte for byte, at full speed or at the
recorded pace. A recorded failure fails again. If the conversation differs from the recording, the call fails and the
error says at which request and what differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from parley.errors import ModelError
from parley.models.base import Model, ModelEvent, ModelRequest, ModelSetup, find_model_file
from parley.models.recording.format import RecordedCall, read_recording
from parley.models.recording.request_matching import describe_difference, normalize
from parley.models.redaction import Redactor

DIVERGED = "recording_diverged"
"""The error kind of a request that is not in the recording."""


class Replay:
    """Replays one recording from start to end."""

    @classmethod
    def open(cls, setup: ModelSetup, name: str) -> Model:
        """Raises UsageError."""
        return setup.replay(find_model_file(setup.cwd, name, setup.environment))

    def __init__(
        self,
        path: Path,
        *,
        places: Mapping[str, str] | None = None,
        redaction: Redactor | None = None,
        pace: float = 0,
        in_order: bool = False,
    ) -> None:
        """`pace` 1 is the recorded pace, 0 does not wait. `in_order` skips matching. Raises UsageError."""
        self._recording = read_recording(path)
        self._left = list(self._recording.calls)
        self._places = places or {}
        self._redaction = redaction or Redactor()
        self._pace = pace
        self._in_order = in_order

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        call = self._find_call(request)
        last_ms = call.at_ms
        for at_ms, event in call.events:
            await self._wait(at_ms - last_ms)
            last_ms = at_ms
            yield event
        if call.end is None or call.end.closed:
            raise ModelError(
                f"recording {self._recording.name} ends in the middle of this answer", kind="recording_cut"
            )
        await self._wait(call.ended_ms - last_ms)
        if call.end.error is not None:
            raise call.end.error.to_error()

    async def close(self) -> None:
        pass

    async def _wait(self, recorded_ms: float) -> None:
        if self._pace and recorded_ms > 0:
            await asyncio.sleep(recorded_ms / 1000 * self._pace)

    def _find_call(self, request: ModelRequest) -> RecordedCall:
        """The recorded call for a request. Each is used once. Raises ModelError."""
        name, total = self._recording.name, len(self._recording.calls)
        if not self._left:
            raise ModelError(f"recording {name} has no more answers ({total} recorded)", kind=DIVERGED)
        messages = normalize(self._redaction.redact_value(request.messages), self._places)
        if self._in_order:
            return self._left.pop(0)
        for at, call in enumerate(self._left):
            if self._normalize(call) == messages:
                return self._left.pop(at)
        number = total - len(self._left) + 1
        differs = describe_difference(self._normalize(self._left[0]), messages)
        what = "does not match this conversation" if number == 1 else f"differs from request {number} on"
        raise ModelError(f"recording {name} {what}: {differs}", kind=DIVERGED)

    def _normalize(self, call: RecordedCall) -> Any:
        return normalize(call.request.messages, self._recording.head.places)
