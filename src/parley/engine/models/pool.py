"""The open models of a session, shared by all its agents."""

from __future__ import annotations

from collections.abc import Callable

from parley.models.base import Model
from parley.models.catalog import ModelRef
from parley.observer import NULL_OBSERVER, Observer


class ModelPool:
    """Opens each model at its first use."""

    def __init__(self, open_model: Callable[[ModelRef], Model], observer: Observer = NULL_OBSERVER) -> None:
        self._open = open_model
        self._observer = observer
        self._opened: dict[ModelRef, Model] = {}

    def open(self, choice: ModelRef) -> Model:
        """Raises UsageError or ModelError."""
        if choice not in self._opened:
            self._opened[choice] = self._trace(choice, self._open(choice))
        return self._opened[choice]

    def _trace(self, choice: ModelRef, model: Model) -> Model:
        if not self._observer.is_enabled:
            return model
        from parley.engine.models.tracing import TracedModel

        return TracedModel(model, choice.backend.provider or choice.adapter, self._observer)

    async def close(self) -> None:
        for model in self._opened.values():
            await model.close()
