"""A session's way to its models, which all its agents share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from parley.models.base import Model
from parley.models.names import Choice

if TYPE_CHECKING:
    pass


class Access:
    """Models, each opened when it is first needed."""

    def __init__(self, open_model: Callable[[Choice], Model]) -> None:
        self._open = open_model
        self._opened: dict[Choice, Model] = {}

    def open(self, choice: Choice) -> Model:
        """Raises UsageError or ModelError."""
        if choice not in self._opened:
            self._opened[choice] = self._open(choice)
        return self._opened[choice]

    async def close(self) -> None:
        for model in self._opened.values():
            await model.close()
