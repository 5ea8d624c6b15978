"""When a failed model call is tried again, and after how long. Pure: the dice and the time come in as arguments."""

from __future__ import annotations

from parley.errors import ModelError

DEFAULT_RETRIES = 8
KEY_RETRIES = 2
FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
MOST_DOUBLINGS = 10
"""More than the longest delay needs; after a thousand the number would not fit."""
LONGEST_TROUBLE_SECONDS = 300.0
"""A backend that fails for so long is given up, however few the tries."""
LONGEST_WISH_SECONDS = 60.0
"""A backend may ask for this much patience with `retry-after`, not for more."""


class Trouble:
    """Failures in a row. An answer that comes to its end is the end of the row: whoever fails next is in another."""

    def __init__(self) -> None:
        self.failures = 0
        self._since: float | None = None
        self.has_squeezed = False
        """Whether the conversation was compacted because a request was too long."""
        self.repairs = 0
        """How often it was mended because of what a backend had against it."""

    def note(self, now: float, *, gets_on: bool) -> float:
        """One more failure; the seconds for which it has gone on without getting on."""
        if self._since is None or gets_on:
            self._since = now
        self.failures += 1
        return now - self._since

    def begin_anew(self) -> None:
        """The next try is not the same again."""
        self.failures, self._since = 0, None


def most_retries(flaw: ModelError, max_retries: int) -> int:
    """How often this failure is worth another try. A refused key seldom becomes a good one."""
    return min(max_retries, KEY_RETRIES) if flaw.status == 401 else max_retries


def delay_seconds(
    flaw: ModelError, attempt: int, max_retries: int, dice: float, trouble_seconds: float = 0
) -> float | None:
    """How long to wait before the next try, or None to give up.

    `attempt` counts from 1, `dice` is in [0, 1), `trouble_seconds` is how long it has failed already.
    """
    if not flaw.retryable or attempt > most_retries(flaw, max_retries):
        return None
    delay = patient_seconds(flaw, attempt, dice)
    return None if trouble_seconds + delay > LONGEST_TROUBLE_SECONDS else delay


def patient_seconds(flaw: ModelError, attempt: int, dice: float) -> float:
    if flaw.retry_after_seconds is not None:
        return min(flaw.retry_after_seconds, LONGEST_WISH_SECONDS)
    doubled = FIRST_DELAY_SECONDS * 2 ** min(attempt - 1, MOST_DOUBLINGS)
    return float(min(doubled, LONGEST_DELAY_SECONDS)) * (1 + 0.25 * dice)
