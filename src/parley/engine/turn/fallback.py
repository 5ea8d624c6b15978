"""Other models for a turn whose own model cannot answer (`--fallback-model`).

A model that is not there, or that has failed several times in a row because its servers are
overloaded or out of reach, is replaced for the rest of the turn by the next one named. The
next turn begins with the session's own model again. Each switch is told.
"""

from __future__ import annotations

from parley.engine.context.conversation import Conversation
from parley.errors import ModelError, UsageError
from parley.models.catalog import Choice, resolve
from parley.protocol.messages.system import Informational

FAILURES_BEFORE = 3
"""So often a model may fail before another one takes over; each of them is a retry that is told."""
OUT_OF_REACH = ("connection_failed", "timeout_error", "overloaded_error")
NOT_THERE = 404


class Fallback:
    """What is left of the models that may stand in, for one turn."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._left = [resolve(name) for name in conversation.setup.fallback_models]
        self._own: Choice | None = None
        """The model that another one stands in for."""
        self._standing_in: Choice | None = None

    def takes_over(self, flaw: ModelError, failures: int, *, is_last: bool) -> bool:
        """Whether another model goes on from here. `is_last` says that there would be no other try."""
        if not is_unavailable(flaw) or not (is_last or failures >= FAILURES_BEFORE):
            return False
        talk = self._conversation
        while self._left:
            choice = self._left.pop(0)
            if choice == talk.model or not self._can_open(choice):
                continue
            self._own = self._own or talk.model
            text = f"{talk.model.shown} does not answer ({flaw}); this turn goes on with {choice.shown}"
            talk.tell(Informational(content=text, level="warning", tag="model_fallback"))
            talk.model = self._standing_in = choice
            return True
        return False

    def end(self) -> None:
        """The turn is over: the session's own model is back, unless it was changed meanwhile."""
        if self._own is not None and self._conversation.model == self._standing_in:
            self._conversation.model = self._own

    def _can_open(self, choice: Choice) -> bool:
        try:
            self._conversation.open_model(choice)
        except (UsageError, ModelError) as flaw:
            self._conversation.setup.complain(f"warning: the fallback model {choice.shown} cannot be used: {flaw}")
            return False
        return True


def is_unavailable(flaw: ModelError) -> bool:
    """Whether the failure is that of a model rather than that of the request or the key."""
    if flaw.status is None:
        return flaw.kind in OUT_OF_REACH
    return flaw.status >= 500 or flaw.status == NOT_THERE or flaw.kind == "overloaded_error"
