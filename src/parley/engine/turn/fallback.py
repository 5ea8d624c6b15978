"""Other models for a turn whose model is unavailable or refuses to answer (`--fallback-model`).

A model that does not exist, or fails several times in a row because its servers are overloaded or unreachable, is
replaced by the next one for the rest of the turn. The next turn starts with the session's own model again. Each switch
is reported.

See also: `refusal.py` for models that refuse.
"""

from __future__ import annotations

from parley.engine.context.conversation import Conversation
from parley.errors import ModelError, UsageError
from parley.models.catalog import ModelRef
from parley.protocol.messages.system import Informational

FAILURES_BEFORE = 3
"""Failures before the next model is used. Each is reported as a retry."""
UNREACHABLE = ("connection_failed", "timeout_error", "overloaded_error")
NOT_FOUND = 404


class Fallback:
    """The fallback models of one turn."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._remaining = [conversation.config.model.resolve(name) for name in conversation.config.model.fallbacks]
        self._original: ModelRef | None = None
        """The model that was replaced."""
        self._substitute: ModelRef | None = None

    def try_next(self, error: ModelError, failures: int, *, is_last: bool) -> bool:
        """Switch to the next model; False if there is none. `is_last`: there would be no further retry."""
        if not is_unavailable(error) or not (is_last or failures >= FAILURES_BEFORE):
            return False
        failed = self._conversation.model.display_name
        choice = self.switch()
        if choice is None:
            return False
        text = f"{failed} does not answer ({error}); this turn continues with {choice.display_name}"
        self._conversation.send(Informational(content=text, level="warning", tag="model_fallback"))
        return True

    def switch(self) -> ModelRef | None:
        """Switch to the next model; None if there is none."""
        conversation = self._conversation
        while self._remaining:
            choice = self._remaining.pop(0)
            if choice == conversation.model or not self._can_open(choice):
                continue
            self._original = self._original or conversation.model
            old, conversation.model = conversation.model, choice
            self._substitute = choice
            dispatcher = conversation.hooks.dispatcher
            if dispatcher is not None and conversation.parent_tool_use_id is None:
                dispatcher.session_hooks.model_switched(old, choice, choice.display_name)
            return choice
        return None

    def restore(self) -> ModelRef | None:
        """Return to the session's own model at the end of the turn, unless the client has changed it.

        The model that is returned from; None if nothing changes.
        """
        if self._original is None or self._conversation.model != self._substitute:
            return None
        self._conversation.model = self._original
        return self._substitute

    def _can_open(self, choice: ModelRef) -> bool:
        try:
            self._conversation.open_model(choice)
        except (UsageError, ModelError) as exc:
            self._conversation.config.warn(f"warning: the fallback model {choice.display_name} cannot be used: {exc}")
            return False
        return True


def is_unavailable(error: ModelError) -> bool:
    """Whether the model failed, and not the request or the key."""
    if error.status is None:
        return error.kind in UNREACHABLE
    return error.status >= 500 or error.status == NOT_FOUND or error.kind == "overloaded_error"
