"""A model whose calls are reported to the observer. It is used like any other model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from parley.models.base import Model, ModelEvent, ModelRequest
from parley.observer import Observation, Observer
from parley.protocol.base import Json


class TracedModel:
    def __init__(self, model: Model, provider: str, observer: Observer) -> None:
        self._model = model
        self._provider = provider
        self._observer = observer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        with self._observer.model_call(self._provider, request.model) as observation:
            if headers := observation.headers():
                request = msgspec.structs.replace(request, headers=dict(headers))
            usage: Json = {}
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if event.type in USAGE_EVENTS:
                        usage = record_event(observation, event, usage)
                    yield event

    async def close(self) -> None:
        await self._model.close()


USAGE_EVENTS = ("message_start", "message_delta")
CACHE_READ, CACHE_CREATION = "cache_read_input_tokens", "cache_creation_input_tokens"


def record_event(observation: Observation, event: ModelEvent, earlier: Json) -> Json:
    """Report what an event says about the whole answer; returns the usage that is known so far."""
    message = event.message or {}
    reported = event.usage or message.get("usage") or {}
    usage = earlier | {name: count for name, count in reported.items() if count is not None}
    observation.set_attributes(
        response_model=message.get("model"),
        response_id=message.get("id"),
        input_tokens=all_input_tokens(usage),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=usage.get(CACHE_READ),
        cache_creation_tokens=usage.get(CACHE_CREATION),
        stop_reason=event.delta.stop_reason if event.delta is not None else None,
    )
    return usage


def all_input_tokens(usage: Json) -> int | None:
    """The tokens of the request, including cached ones, as the OpenTelemetry conventions count them."""
    if usage.get("input_tokens") is None:
        return None
    return sum(usage.get(name) or 0 for name in ("input_tokens", CACHE_READ, CACHE_CREATION))
