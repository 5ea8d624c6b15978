"""Models around models: fault injection, recording, and another name for the server (`modelOverrides`).

Faults are inside, the recorder outside, so that a recording has what the engine received. The answer of a model with
faults is encoded as an event stream, changed by the fault (faults.py), and decoded with the deadlines and the parser of
a real backend. The engine therefore sees what it would see over a network.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec

from parley.errors import ModelError
from parley.models.backends.base import is_content, parse_event
from parley.models.base import Model, ModelEvent, ModelRequest
from parley.models.faults import Fault, FaultPlan, Reset
from parley.models.http.call import LATE, Deadlines
from parley.models.http.response import EventReader
from parley.models.http.timeouts import StreamTimeout
from parley.models.recording import Recorder, RecordingHeader, RecordingWriter
from parley.models.redaction import Redactor
from parley.models.replay import Replay
from parley.protocol.base import Struct
from parley.version import __version__


class RecordingTarget(Struct, frozen=True):
    """The file to record to, and the clocks for its timestamps."""

    path: Path
    now: Callable[[], str]
    """The current time, for the header."""
    clock: Callable[[], float]
    """Monotonic seconds, for the lines."""


class ModelWrapper:
    """All models of a session share one recording and one fault plan."""

    def __init__(
        self,
        *,
        secrets: Iterable[str],
        places: Mapping[str, str],
        recording: RecordingTarget | None = None,
        faults: Sequence[str] = (),
        deadlines: Deadlines | None = None,
        warn: Callable[[str], None],
    ) -> None:
        """`places` are directories whose paths differ between runs. Raises UsageError for an unknown fault."""
        self.redaction = Redactor(secrets)
        self._plan = FaultPlan.read(faults, "option '--fault'") if faults else None
        self._deadlines = deadlines
        self._places = dict(places)
        self._target = recording
        self._warn = warn
        self._writer: RecordingWriter | None = None

    def wrap(self, model: Model) -> Model:
        """Raises UsageError if the recording cannot be created."""
        if self._plan is not None:
            model = FaultyModel(model, self._plan, self._deadlines)
        writer = self.open_recording()
        return model if writer is None else Recorder(model, writer)

    def open_recording(self) -> RecordingWriter | None:
        """The recording, if requested; created on first use. Raises UsageError."""
        target = self._target
        if self._writer is None and target is not None:
            head = RecordingHeader(by=f"parley {__version__}", at=target.now(), places=self._places)
            self._writer = RecordingWriter(target.path, head, self.redaction, target.clock, self._warn)
        return self._writer

    def replay(self, path: Path) -> Model:
        """Raises UsageError."""
        return Replay(path, places=self._places, redaction=self.redaction)


class RenamedModel:
    """A model that its server knows by another name."""

    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self._name = name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Raises ModelError."""
        events = self._model.stream(msgspec.structs.replace(request, model=self._name))
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def close(self) -> None:
        await self._model.close()


class FaultyModel:
    """Any model, with a plan of faults."""

    def __init__(self, model: Model, plan: FaultPlan, deadlines: Deadlines | None = None) -> None:
        self._model = model
        self._plan = plan
        self._deadlines = deadlines

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        fault = self._plan.next()
        if fault is None:
            events = self._model.stream(request)
        else:
            each = msgspec.structs.replace(request, joins_texts=False)  # faults count events
            events = apply_fault(self._model.stream(each), fault, self._deadlines)
        async with aclosing(events) as stream:
            async for event in stream:
                yield event

    async def close(self) -> None:
        await self._model.close()


async def apply_fault(
    events: AsyncGenerator[ModelEvent, None], fault: Fault, deadlines: Deadlines | None = None
) -> AsyncGenerator[ModelEvent, None]:
    """The events after the fault is applied. Raises ModelError."""
    if (refusal := fault.refusal()) is not None:
        raise refusal
    try:
        async with aclosing(events), aclosing(decode_events(fault, events, deadlines or Deadlines())) as stream:
            async for event in stream:
                yield event
    except TimeoutError:
        raise ModelError(LATE, kind="timeout_error", retryable=True) from None
    except Reset:
        raise ModelError("the connection to the model broke", kind="connection_failed", retryable=True) from None


async def decode_events(
    fault: Fault, events: AsyncGenerator[ModelEvent, None], limits: Deadlines
) -> AsyncGenerator[ModelEvent, None]:
    """Raises ModelError, TimeoutError or Reset."""
    reader, seconds, has_content = EventReader(), limits.first_byte_seconds, True
    chunks = fault.on_chunks(encode_events(fault.on_events(events)))
    async with StreamTimeout(limits.request_seconds, limits.content_seconds) as timeout:
        while True:
            timeout.start_wait(seconds, idle=not has_content)
            chunk = await anext(chunks, None)
            batch = [parse_event(data) for data in (reader.end() if chunk is None else reader.feed(chunk))]
            timeout.end_wait()
            seconds, has_content = limits.silence_seconds, any(map(is_content, batch))
            for event in batch:
                yield event
            if chunk is None:
                return


async def encode_events(events: AsyncIterator[ModelEvent]) -> AsyncGenerator[bytes, None]:
    """Encode each event as one chunk of server-sent events."""
    async for event in events:
        yield b"event: %b\ndata: %b\n\n" % (event.type.encode(), event.raw)
