"""Whether a failed model call is retried, after how long, and what the client is sent. Pure: time is an argument."""

from __future__ import annotations

from parley.engine.turn import outcome
from parley.errors import ModelError
from parley.protocol.base import UNSET, Json, UnsetType
from parley.protocol.messages.system import ApiRetry

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
