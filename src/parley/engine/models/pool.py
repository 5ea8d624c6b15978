"""A session's way to its models, which all its agents share."""

from __future__ import annotations

from collections.abc import Callable

from parley.models.base import Model
from parley.models.catalog import Choice
from parley.observer import NOBODY, Observer


class Access:
    """Models, each opened when it is first needed."""

    def __init__(self, open_model: Callable[[Choice], Model], observer: Observer = NOBODY) -> None:
        self._open = open_model
        self._observer = observer
        self._opened: dict[Choice, Model] = {}

    def open(self, choice: Choice) -> Model:
        """Raises UsageError or ModelError."""
        if choice not in self._opened:
            self._opened[choice] = self._watched(choice, self._open(choice))
        return self._opened[choice]

    def _watched(self, choice: Choice, model: Model) -> Model:
        if not self._observer.is_watching:
            return model
        from parley.engine.models.tracing import Watched

        return Watched(model, choice.adapter, self._observer)

    async def close(self) -> None:
        for model in self._opened.values():
            await model.close()
