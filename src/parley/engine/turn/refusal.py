"""A model that refuses to answer.

With a fallback model the refused answer is retracted, and the next model answers for the rest of the turn. The client
is told which messages it should remove. Without one the refusal is the answer, and a message says so.

See also: `fallback.py` for models that are unavailable.
"""

from __future__ import annotations

from parley.engine.context.conversation import Conversation
from parley.engine.session.prompt_queue import Prompt
from parley.engine.turn.fallback import Fallback
from parley.models.accumulator import MessageAccumulator
from parley.models.catalog import ModelRef
from parley.protocol.base import Json

REFUSAL = "refusal"
"""The stop reason."""


class Refusals:
    """The refusals of one turn."""

    def __init__(self, conversation: Conversation, fallback: Fallback, prompts: list[Prompt]) -> None:
        self._conversation = conversation
        self._fallback = fallback
        self._prompts = prompts
        self._last: Json | None = None
        """The fields of the last fallback."""
        self.retracted: list[str] = []
        """The messages that the next one replaces."""

    def try_next(self, accumulator: MessageAccumulator) -> bool:
        """Retract a refused answer and switch to the next model; False if there is none. Raises SessionError."""
        from parley.protocol.messages.occasional import ModelRefusalFallback, ModelRefusalNoFallback

        conversation, refusing = self._conversation, self._conversation.model
        fields = self._describe(accumulator, refusing)
        choice = self._fallback.switch()
        if choice is None:
            text = f"{refusing.display_name} refused to answer{because(accumulator)}"
            conversation.send(ModelRefusalNoFallback(**fields, content=text))
            return False
        self.retracted = retract(conversation, accumulator.id)
        text = f"{refusing.display_name} refused to answer{because(accumulator)}; {choice.display_name} answers instead"
        self._last = {**fields, "fallback_model": choice.display_name, "scope": self._scope}
        conversation.send(
            ModelRefusalFallback(
                **self._last,
                trigger=REFUSAL,
                direction="retry",
                retracted_message_uuids=self.retracted,
                content=text,
            )
        )
        return True

    def report_return(self, substitute: ModelRef | None) -> None:
        """The turn has ended. The next one starts with the session's own model again."""
        last, self._last = self._last, None
        if last is None or substitute is None:
            return
        from parley.protocol.messages.occasional import ModelRefusalFallback

        text = f"The next turn starts with {self._conversation.model.display_name} again"
        self._conversation.send(ModelRefusalFallback(**last, trigger=REFUSAL, direction="revert", content=text))

    @property
    def _scope(self) -> str:
        return "session" if self._conversation.parent_tool_use_id is None else "local"

    def _describe(self, accumulator: MessageAccumulator, model: ModelRef) -> Json:
        details = accumulator.stop_details
        typed = [prompt.uuid for prompt in self._prompts if not prompt.is_notification]
        is_own = self._conversation.parent_tool_use_id is None
        return {
            "original_model": model.display_name,
            "request_id": accumulator.request_id,
            "api_refusal_category": text_or_none(details.get("category")),
            "api_refusal_explanation": text_or_none(details.get("explanation")),
            "refused_user_message_uuid": typed[-1] if typed and is_own else None,
        }


def retract(conversation: Conversation, answer: str) -> list[str]:
    """Remove an answer from the end of the conversation. Returns its messages. Raises SessionError."""
    entries = conversation.journal.history.list_entries()
    first = len(entries)
    while first and entries[first - 1].role == "assistant" and entries[first - 1].id == answer:
        first -= 1
    uuids = [entry.uuid for entry in entries[first:]]
    if uuids and first:
        conversation.journal.append_event("cut", {"after": entries[first - 1].uuid})
    return uuids


def because(accumulator: MessageAccumulator) -> str:
    category = text_or_none(accumulator.stop_details.get("category"))
    return "" if category is None else f" ({category})"


def text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
