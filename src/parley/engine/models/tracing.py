"""A model whose requests somebody watches. Whoever asks it need not know."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from parley.models.base import Event, Model, ModelRequest
from parley.observer import Observer, Watch


class Watched:
    def __init__(self, model: Model, provider: str, observer: Observer) -> None:
        self._model = model
        self._provider = provider
        self._observer = observer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        with self._observer.model_call(self._provider, request.model) as watch:
            if headers := watch.headers():
                request = msgspec.structs.replace(request, headers=dict(headers))
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if event.type in TELLING:
                        note(watch, event)
                    yield event

    async def close(self) -> None:
        await self._model.close()


TELLING = ("message_start", "message_delta")


def note(watch: Watch, event: Event) -> None:
    """What an event tells of the answer as a whole."""
    message = event.message or {}
    usage = event.usage or message.get("usage") or {}
    watch.note(
        response_model=message.get("model"),
        response_id=message.get("id"),
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=usage.get("cache_read_input_tokens"),
        cache_creation_tokens=usage.get("cache_creation_input_tokens"),
        stop_reason=event.delta.stop_reason if event.delta is not None else None,
    )
