"""A model with injected faults, for `--fault` and for script turns with a `fault`.

The wrapped model's answer is encoded as an event stream, changed by the fault (catalog.py), and decoded with the
deadlines and the parser of a real backend. The engine therefore sees what it would see over a network.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import msgspec

from parley.errors import ModelError
from parley.models.backends.anthropic import is_content, parse_event
from parley.models.base import Model, ModelEvent, ModelRequest
from parley.models.faults.catalog import Fault, FaultPlan, Reset
from parley.models.http.call import LATE, Deadlines
from parley.models.http.sse import EventReader
from parley.models.http.timeouts import StreamTimeout


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
