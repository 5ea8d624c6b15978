"""Whether a failed model call is retried, and after how long. Pure: randomness and time are arguments."""

from __future__ import annotations

from parley.errors import ModelError

KEY_RETRIES = 2
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
    return min(max_retries, KEY_RETRIES) if error.status == 401 else max_retries


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
