"""Other models for a turn whose own model cannot answer (`--fallback-model`).

A model that is not there, or that has failed several times in a row because its servers are
overloaded or out of reach, is replaced for the rest of the turn by the next one named. The
next turn begins with the session's own model again. Each switch is told.
"""

from __future__ import annotations

from parley.engine.context.conversation import Conversation
from parley.errors import ModelError, UsageError
from parley.models.catalog import ModelRef, resolve
from parley.protocol.messages.system import Informational

FAILURES_BEFORE = 3
"""So often a model may fail before another one takes over; each of them is a retry that is told."""
UNREACHABLE = ("connection_failed", "timeout_error", "overloaded_error")
NOT_FOUND = 404


class Fallback:
    """What is left of the models that may stand in, for one turn."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._remaining = [resolve(name) for name in conversation.config.model.fallbacks]
        self._original: ModelRef | None = None
        """The model that another one stands in for."""
        self._substitute: ModelRef | None = None

    def try_next(self, error: ModelError, failures: int, *, is_last: bool) -> bool:
        """Whether another model goes on from here. `is_last` says that there would be no other try."""
        if not is_unavailable(error) or not (is_last or failures >= FAILURES_BEFORE):
            return False
        conversation = self._conversation
        while self._remaining:
            choice = self._remaining.pop(0)
            if choice == conversation.model or not self._can_open(choice):
                continue
            self._original = self._original or conversation.model
            failed, next_name = conversation.model.display_name, choice.display_name
            text = f"{failed} does not answer ({error}); this turn goes on with {next_name}"
            conversation.send(Informational(content=text, level="warning", tag="model_fallback"))
            conversation.model = self._substitute = choice
            return True
        return False

    def restore(self) -> None:
        """The turn is over: the session's own model is back, unless it was changed meanwhile."""
        if self._original is not None and self._conversation.model == self._substitute:
            self._conversation.model = self._original

    def _can_open(self, choice: ModelRef) -> bool:
        try:
            self._conversation.open_model(choice)
        except (UsageError, ModelError) as exc:
            self._conversation.config.warn(f"warning: the fallback model {choice.display_name} cannot be used: {exc}")
            return False
        return True


def is_unavailable(error: ModelError) -> bool:
    """Whether the failure is that of a model rather than that of the request or the key."""
    if error.status is None:
        return error.kind in UNREACHABLE
    return error.status >= 500 or error.status == NOT_FOUND or error.kind == "overloaded_error"
