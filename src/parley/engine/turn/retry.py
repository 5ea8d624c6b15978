"""After a model call that failed or was refused: the same request again, another model, or neither.

A failed call is retried after a delay. A model that does not exist, or fails several times in a row because its servers
are overloaded or unreachable, is replaced by the next fallback model (`--fallback-model`) for the rest of the turn. So
is a model that refuses to answer: the refused answer is retracted, and the client is told which messages to remove.
Without a fallback model the refusal is the answer, and a message says so. The next turn starts with the session's own
model again.

See also: `model_call.py` makes the calls, `side/retry.py` calls a model outside the conversation.
"""

from __future__ import annotations

from parley.engine.context.conversation import Conversation
from parley.engine.session.prompt_queue import Prompt
from parley.engine.turn import outcome
from parley.errors import ModelError, UsageError
from parley.models.accumulator import MessageAccumulator
from parley.models.catalog import ModelRef
from parley.protocol.base import UNSET, Json, UnsetType
from parley.protocol.messages.system import ApiRetry, Informational

KEY_RETRIES = 2
MAX_MESSAGE_CHARS = 500
"""Of a server's error in a retry line."""
FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 30.0
MAX_DOUBLINGS = 10
"""More than the longest delay needs; a larger power would overflow."""
MAX_FAILING_SECONDS = 300.0
"""After this time no more retries are made."""
MAX_RETRY_AFTER_SECONDS = 60.0
"""The longest `retry-after` that is respected."""
FAILURES_BEFORE = 3
"""Failures before the next model is used. Each is reported as a retry."""
UNREACHABLE = ("connection_failed", "timeout_error", "overloaded_error")
NOT_FOUND = 404
REFUSAL = "refusal"
"""The stop reason."""


class FailureStreak:
    """Failures in a row. A complete answer ends the streak."""

    def __init__(self) -> None:
        self.failures = 0
        self._since: float | None = None
        self.has_compacted = False
        """The conversation was compacted because a request was too long."""
        self.repairs = 0
        """How often the history was repaired because a backend refused it."""

    def record(self, now: float, *, made_progress: bool) -> float:
        """Count a failure; the seconds since the last progress."""
        if self._since is None or made_progress:
            self._since = now
        self.failures += 1
        return now - self._since

    def reset(self) -> None:
        """Start over: the next request differs from the failed one."""
        self.failures, self._since = 0, None


def max_retries_for(error: ModelError, max_retries: int) -> int:
    """The number of retries for this failure. A rejected key is retried less often."""
    useful = KEY_RETRIES if error.status == 401 else error.max_retries
    return max_retries if useful is None else min(max_retries, useful)


def delay_seconds(
    error: ModelError, attempt: int, max_retries: int, random: float, failing_seconds: float = 0
) -> float | None:
    """How long to wait before the next retry, or None to give up.

    `attempt` counts from 1, `random` is in [0, 1), `failing_seconds` is the time since the last progress.
    """
    if not error.retryable or attempt > max_retries_for(error, max_retries):
        return None
    delay = backoff_seconds(error, attempt, random)
    return None if failing_seconds + delay > MAX_FAILING_SECONDS else delay


def backoff_seconds(error: ModelError, attempt: int, random: float) -> float:
    if error.retry_after_seconds is not None:
        return min(error.retry_after_seconds, MAX_RETRY_AFTER_SECONDS)
    doubled = FIRST_DELAY_SECONDS * 2 ** min(attempt - 1, MAX_DOUBLINGS)
    return float(min(doubled, MAX_DELAY_SECONDS)) * (1 + 0.25 * random)


def retry_message(error: ModelError, attempt: int, max_retries: int, delay: float) -> ApiRetry:
    """What the client is sent before a retry."""
    return ApiRetry(
        attempt=attempt,
        max_retries=max_retries_for(error, max_retries),
        retry_delay_ms=round(delay * 1000),
        error_status=error.status,
        error=outcome.error_name(error),
        error_message=error.message[:MAX_MESSAGE_CHARS],
        no_response=describe_wait(error.waited_seconds),
    )


def describe_wait(seconds: float | None) -> Json | UnsetType:
    """How long a backend was waited for that sent nothing, and how long the retry waits."""
    return UNSET if seconds is None else dict.fromkeys(("waited_ms", "retry_wait_ms"), round(seconds * 1000))


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
