"""The models of a session: which one is called, and those that are open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from parley._threads import run_in_thread
from parley.models.base import Model
from parley.models.catalog import ModelRef
from parley.observer import NULL_OBSERVER, Observer

LONG_TOKENS = 6_000
"""A shorter conversation fits into nearly every window."""


class ModelPool:
    """The open models of a session, shared by all its agents. Opens each at its first use."""

    def __init__(
        self,
        open_model: Callable[[ModelRef], Model],
        observer: Observer = NULL_OBSERVER,
        discover: Callable[[ModelRef], None] = lambda choice: None,
    ) -> None:
        """`discover` asks a server of the user for the limits of a model; it blocks."""
        self._open = open_model
        self._observer = observer
        self._discover = discover
        self._opened: dict[ModelRef, Model] = {}
        self._discoveries: dict[ModelRef, asyncio.Task[None]] = {}

    def open(self, choice: ModelRef) -> Model:
        """Raises UsageError or ModelError."""
        if choice not in self._opened:
            self._opened[choice] = self._trace(choice, self._open(choice))
        return self._opened[choice]

    def _trace(self, choice: ModelRef, model: Model) -> Model:
        if not self._observer.is_enabled:
            return model
        from parley.engine.context.model_tracing import TracedModel

        return TracedModel(model, choice.backend.provider or choice.adapter, self._observer)

    def discover(self, choice: ModelRef, conversation_tokens: Callable[[], int]) -> None:
        """Begin to ask for the limits of a model on a user's server, once a conversation is so long that they matter.

        It has answered, so it is loaded.
        """
        if choice.backend.adapts_info and choice not in self._discoveries and conversation_tokens() >= LONG_TOKENS:
            self._discoveries[choice] = asyncio.create_task(run_in_thread(partial(self._discover, choice)))

    async def close(self) -> None:
        for task in self._discoveries.values():
            task.cancel()
        await asyncio.gather(*self._discoveries.values(), return_exceptions=True)
        for model in self._opened.values():
            await model.close()


class ModelSelection:
    """The model of a conversation. Which one is called can depend on the permission mode."""

    def __init__(self, chosen: ModelRef, mode: Callable[[], str] = lambda: "default") -> None:
        self.chosen = chosen
        """The model that was asked for."""
        self.mode = mode
        """The permission mode, which can change."""

    @property
    def current(self) -> ModelRef:
        """The model to call now."""
        return self.chosen.in_mode(self.mode())
