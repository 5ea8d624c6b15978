"""A model that its server knows by another name (`modelOverrides`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from parley.models.base import Model, ModelEvent, ModelRequest


class RenamedModel:
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
