"""When a failed model call is retried, and calls outside the conversation that are retried like those of a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from parley.engine.context.models import call_model
from parley.engine.turn import outcome
from parley.errors import ModelError
from parley.models.accumulator import MessageAccumulator
from parley.models.base import ModelRequest
from parley.models.catalog import ModelRef
from parley.protocol.base import UNSET, Json, Message, UnsetType
from parley.protocol.blocks import Text, ToolUse
from parley.protocol.messages.system import ApiRetry

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation


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
CUT_OFF = ("connection_failed", "bad_stream", "timeout_error")
"""The kinds of errors that can end an answer in its middle."""
SAME_CUT = (
    "It was cut off at the same place before: the server, or a proxy in front of it, may limit the time or the length "
    "of an answer."
)
SAME_CUT_RETRIES = 2
REFUSAL = "refusal"
"""The stop reason."""
NO_WORDS = "no_summary"
"""The kind of a ModelError: the answer has no usable text."""
REFUSALS = (400, 413, 422)
"""HTTP statuses with which a backend rejects a request."""


class FailureStreak:
    """Failures in a row. A complete answer ends the streak."""

    def __init__(self) -> None:
        self.failures = 0
        self._since: float | None = None
        self.has_compacted = False
        """The conversation was compacted because a request was too long."""
        self.repairs = 0
        """How often the history was repaired because a backend refused it."""
        self._last_cut = ("", 0)
        """The last error within an answer, and the characters that had arrived."""

    def compare(self, error: ModelError, answer: MessageAccumulator) -> None:
        """Say so if an answer was cut off twice at the same place, and do not retry it as often."""
        if not answer.started or error.kind not in CUT_OFF:
            return
        cut = error.message, answer.content_bytes
        if cut == self._last_cut:
            error.advice = SAME_CUT
            error.max_retries = SAME_CUT_RETRIES
        self._last_cut = cut

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


async def call_with_retry(
    conversation: Conversation, request: ModelRequest, choice: ModelRef, send: Callable[[Message], None]
) -> str:
    """The text of the answer. Raises ModelError, BudgetSpent."""
    failures, since, now = 0, 0.0, conversation.clock.monotonic
    while True:
        try:
            return await call_once(conversation, request, choice)
        except ModelError as exc:
            failures += 1
            since = since if failures > 1 else now()
            most = conversation.options.max_retries
            delay = delay_seconds(exc, failures, most, conversation.config.random(), now() - since)
            if delay is None:
                raise
            send(retry_message(exc, failures, most, delay))
            await conversation.clock.sleep(delay)


async def call_once(conversation: Conversation, request: ModelRequest, choice: ModelRef) -> str:
    """One attempt. Raises ModelError, BudgetSpent."""
    accumulator = await call_model(conversation.models, conversation.ledger, choice, request)
    if not accumulator.is_complete:
        raise ModelError("the model's stream ended early", kind="connection_failed", retryable=True)
    text = "\n\n".join(block.text for block in accumulator.blocks if isinstance(block, Text)).strip()
    if not text:
        raise ModelError("the model's answer has no text", kind=NO_WORDS)
    if accumulator.stop_reason == REFUSAL or any(isinstance(block, ToolUse) for block in accumulator.blocks):
        # Text before a tool call or with a refusal is not a summary.
        raise ModelError("the model did not return what was requested", kind=NO_WORDS)
    return text


def is_about_length(error: ModelError) -> bool:
    """Whether a shorter or reworded request can succeed."""
    return outcome.is_too_large(error) or error.kind == NO_WORDS


def is_about_request(error: ModelError) -> bool:
    """Whether the backend rejected this request, so that a different one can succeed."""
    return is_about_length(error) or error.status in REFUSALS
