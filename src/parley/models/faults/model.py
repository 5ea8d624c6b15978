"""A model that something goes wrong with: `--fault`, and turns of a script with a `fault`.

The answer of the model behind it is spelled as the bytes of an event stream, spoiled (catalog.py), and read again with
the deadlines and the reader of a real backend. So what the engine sees is what it would see of a network.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from parley.errors import ModelError
from parley.models.backends.anthropic import is_content, understood
from parley.models.base import Event, Model, ModelRequest
from parley.models.faults.catalog import Fault, Plan, Reset
from parley.models.http.call import LATE, Deadlines
from parley.models.http.sse import EventReader
from parley.models.http.timeouts import Patience


class Faulty:
    """Any model, with a plan of what goes wrong."""

    def __init__(self, model: Model, plan: Plan, deadlines: Deadlines | None = None) -> None:
        self._model = model
        self._plan = plan
        self._deadlines = deadlines

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        events: AsyncGenerator[Event, None] = self._model.stream(request)
        fault = self._plan.next()
        if fault is not None:
            events = struck(events, fault, self._deadlines)
        async with aclosing(events) as told:
            async for event in told:
                yield event

    async def close(self) -> None:
        await self._model.close()


async def struck(
    events: AsyncGenerator[Event, None], fault: Fault, deadlines: Deadlines | None = None
) -> AsyncGenerator[Event, None]:
    """The events as they arrive through the fault. Raises ModelError."""
    if (refusal := fault.refusal()) is not None:
        raise refusal
    try:
        async with aclosing(events), aclosing(read_again(fault, events, deadlines or Deadlines())) as told:
            async for event in told:
                yield event
    except TimeoutError:
        raise ModelError(LATE, kind="timeout_error", retryable=True) from None
    except Reset:
        raise ModelError("the line to the model broke", kind="connection_failed", retryable=True) from None


async def read_again(
    fault: Fault, events: AsyncGenerator[Event, None], limits: Deadlines
) -> AsyncGenerator[Event, None]:
    """Raises ModelError, TimeoutError or Reset."""
    reader, seconds, has_grown = EventReader(), limits.first_byte_seconds, True
    chunks = fault.on_chunks(spelled(fault.on_events(events)))
    async with Patience(limits.request_seconds, limits.content_seconds) as patience:
        while True:
            patience.begin(seconds, idle=not has_grown)
            chunk = await anext(chunks, None)
            batch = [understood(data) for data in (reader.end() if chunk is None else reader.feed(chunk))]
            patience.end()
            seconds, has_grown = limits.silence_seconds, any(map(is_content, batch))
            for event in batch:
                yield event
            if chunk is None:
                return


async def spelled(events: AsyncIterator[Event]) -> AsyncGenerator[bytes, None]:
    """Server-sent events, one a chunk."""
    async for event in events:
        yield b"event: %b\ndata: %b\n\n" % (event.type.encode(), event.raw)
