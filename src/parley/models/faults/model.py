"""A model that something goes wrong with: `--fault`, and turns of a script with a `fault`.

The answer of the model behind it is spelled as the bytes of an event stream, spoiled (catalog.py), and read again with
the deadlines and the reader of a real backend. So what the engine sees is what it would see of a network.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from parley.errors import ModelError
from parley.models.backends.anthropic import is_content, parse_event
from parley.models.base import Model, ModelEvent, ModelRequest
from parley.models.faults.catalog import Fault, FaultPlan, Reset
from parley.models.http.call import LATE, Deadlines
from parley.models.http.sse import EventReader
from parley.models.http.timeouts import StreamTimeout


class FaultyModel:
    """Any model, with a plan of what goes wrong."""

    def __init__(self, model: Model, plan: FaultPlan, deadlines: Deadlines | None = None) -> None:
        self._model = model
        self._plan = plan
        self._deadlines = deadlines

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        events: AsyncGenerator[ModelEvent, None] = self._model.stream(request)
        fault = self._plan.next()
        if fault is not None:
            events = apply_fault(events, fault, self._deadlines)
        async with aclosing(events) as told:
            async for event in told:
                yield event

    async def close(self) -> None:
        await self._model.close()


async def apply_fault(
    events: AsyncGenerator[ModelEvent, None], fault: Fault, deadlines: Deadlines | None = None
) -> AsyncGenerator[ModelEvent, None]:
    """The events as they arrive through the fault. Raises ModelError."""
    if (refusal := fault.refusal()) is not None:
        raise refusal
    try:
        async with aclosing(events), aclosing(decode_events(fault, events, deadlines or Deadlines())) as told:
            async for event in told:
                yield event
    except TimeoutError:
        raise ModelError(LATE, kind="timeout_error", retryable=True) from None
    except Reset:
        raise ModelError("the line to the model broke", kind="connection_failed", retryable=True) from None


async def decode_events(
    fault: Fault, events: AsyncGenerator[ModelEvent, None], limits: Deadlines
) -> AsyncGenerator[ModelEvent, None]:
    """Raises ModelError, TimeoutError or Reset."""
    reader, seconds, has_grown = EventReader(), limits.first_byte_seconds, True
    chunks = fault.on_chunks(encode_events(fault.on_events(events)))
    async with StreamTimeout(limits.request_seconds, limits.content_seconds) as patience:
        while True:
            patience.start_wait(seconds, idle=not has_grown)
            chunk = await anext(chunks, None)
            batch = [parse_event(data) for data in (reader.end() if chunk is None else reader.feed(chunk))]
            patience.end_wait()
            seconds, has_grown = limits.silence_seconds, any(map(is_content, batch))
            for event in batch:
                yield event
            if chunk is None:
                return


async def encode_events(events: AsyncIterator[ModelEvent]) -> AsyncGenerator[bytes, None]:
    """Server-sent events, one a chunk."""
    async for event in events:
        yield b"event: %b\ndata: %b\n\n" % (event.type.encode(), event.raw)
