"""A model whose calls are reported to the observer. It is used like any other model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from parley.models.base import Model, ModelEvent, ModelRequest
from parley.observer import Observation, Observer


class TracedModel:
    def __init__(self, model: Model, provider: str, observer: Observer) -> None:
        self._model = model
        self._provider = provider
        self._observer = observer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        with self._observer.model_call(self._provider, request.model) as observation:
            if headers := observation.headers():
                request = msgspec.structs.replace(request, headers=dict(headers))
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if event.type in USAGE_EVENTS:
                        record_event(observation, event)
                    yield event

    async def close(self) -> None:
        await self._model.close()


USAGE_EVENTS = ("message_start", "message_delta")


def record_event(observation: Observation, event: ModelEvent) -> None:
    """Report what an event says about the whole answer."""
    message = event.message or {}
    usage = event.usage or message.get("usage") or {}
    observation.set_attributes(
        response_model=message.get("model"),
        response_id=message.get("id"),
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=usage.get("cache_read_input_tokens"),
        cache_creation_tokens=usage.get("cache_creation_input_tokens"),
        stop_reason=event.delta.stop_reason if event.delta is not None else None,
    )
