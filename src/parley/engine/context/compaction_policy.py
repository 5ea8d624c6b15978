"""When a conversation is compacted, and what is kept. Pure functions.

A conversation is compacted before a model call that would leave too little of the window for the answer and the
largest tool result. The messages become a summary; the last group stays. A group is a prompt, or an answer with
the results of its calls, so that a call and its result stay together.

See also: `compactor.py` gets the summary, `history.py` builds the history from the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from parley.engine.context.history import HistoryMessage, estimate_tokens
from parley.errors import UsageError
from parley.protocol.base import Json, Struct

MAX_ANSWER_TOKENS = 32_000
"""Reserved for the answer. Longer answers are rare."""
MAX_RESULT_TOKENS = 25_000
"""Reserved for the largest tool result before the next check."""
KEPT_SHARE = 0.2
"""A last group larger than this share of the threshold is summarized too."""
GROWTH_SHARE = 0.1
"""The growth since the last compaction that allows the next one. If the instructions alone fill the window,
repeated compaction does not help."""
MAX_FAILURES = 2
MIN_SHARE = 0.5
"""A backend's count below this share of the estimate is not trusted."""


class CompactionPolicy(Struct, frozen=True, kw_only=True):
    """The user's settings for compaction."""

    is_allowed: bool = True
    """False disables /compact too."""
    is_automatic: bool = True
    window: int | None = None
    """Tokens; replaces the window of the model."""
    percent: float | None = None
    """Of the window; can only lower the threshold."""
    max_tokens: int | None = None
    """What the model reads at most, if less than its window."""

    @property
    def has_limit(self) -> bool:
        """Whether the user sets a limit."""
        return self.window is not None or self.max_tokens is not None


def make_policy(
    *, disabled: bool, auto_disabled: bool, flag: str | None, window: int | None, percent: int | None
) -> CompactionPolicy:
    """Combine variables, settings and `--autocompact`. Raises UsageError."""
    words = {"on": True, "true": True, "": True, "off": False, "false": False}
    by_itself = not auto_disabled
    if flag is not None:
        if flag.isdecimal() and int(flag) > 0:
            by_itself, window = True, int(flag)
        elif flag.lower() in words:
            by_itself = words[flag.lower()]
        else:
            raise UsageError(f"--autocompact takes on, off or a number of tokens, not {flag!r}")
    if percent is not None and not 1 <= percent <= 100:
        raise UsageError(f"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE must be from 1 to 100, not {percent}")
    return CompactionPolicy(is_allowed=not disabled, is_automatic=by_itself, window=window or None, percent=percent)


class ContextGauge:
    """How full the window is: the backend's last count plus an estimate of what came after it.

    Some proxies report a constant. An implausible count is ignored, so that the conversation cannot grow without limit.
    """

    def __init__(self) -> None:
        self._measured: tuple[int, int] | None = None
        self._after_last = 0
        self.failures = 0
        """Consecutive failures."""

    def measure(self, counted: int, estimated: int, media: int = 0) -> None:
        """Record the backend's count of a call, beside our estimate of it.

        The `media` part of the estimate is a guess and does not disqualify a count.
        """
        self._measured = (counted, estimated) if counted >= (estimated - media) * MIN_SHARE else None

    def reset(self, history_tokens: int) -> None:
        """Start over after a compaction or reset."""
        self._measured, self._after_last, self.failures = None, history_tokens, 0

    def estimate(self, own: int) -> int:
        """The tokens of the next call, given our own estimate."""
        if self._measured is None:
            return own
        counted, then = self._measured
        return max(0, counted + own - then)

    def is_due(self, context_tokens: int, history_tokens: int, threshold: int) -> bool:
        """Whether the conversation must be compacted before the next call."""
        return context_tokens > threshold and self.has_grown(history_tokens, threshold)

    def has_grown(self, history_tokens: int, threshold: int) -> bool:
        return not self._after_last or history_tokens - self._after_last > threshold * GROWTH_SHARE


def threshold(policy: CompactionPolicy, window: int, answer_tokens: int) -> int:
    """The number of tokens that triggers compaction: at least half of a small window."""
    most = max(window // 2, window - min(answer_tokens, MAX_ANSWER_TOKENS) - MAX_RESULT_TOKENS)
    bounds = [most] if policy.percent is None else [most, int(window * policy.percent / 100)]
    return min(bounds if policy.max_tokens is None else [*bounds, policy.max_tokens])


def find_keep_start(messages: list[HistoryMessage], max_tokens: int) -> int | None:
    """The index of the first part that is kept; None if too little comes before it.

    An unanswered prompt is always kept, any other last group if it is not too large. Unanswered parts before that
    prompt are kept too, and the work that it interrupted.
    """
    begins = [at for at, part in enumerate(messages) if part.role == "assistant" or not find_results(part)]
    if len(begins) < 2:
        return None
    at = begins[-1]
    size = sum(map(message_tokens, messages[at:]))
    fits = messages[at].role == "user" or size <= max_tokens
    for earlier in reversed(begins[1:-1]):
        size += sum(map(message_tokens, messages[earlier:at]))
        is_answered = messages[at].role == "assistant" or messages[at - 1].role == "assistant"
        if is_answered or size > max_tokens or not is_paired(messages[earlier:]):
            break
        at = earlier
    return at if fits and is_paired(messages[at:]) else len(messages)


def message_tokens(part: HistoryMessage) -> int:
    return sum(map(estimate_tokens, part.content))


def is_paired(messages: Iterable[HistoryMessage]) -> bool:
    """Whether every call is followed by its result, and every result has a call before it."""
    open_calls: set[str] = set()
    for message in messages:
        for block in message.content:
            if block.get("type") == "tool_use":
                open_calls.add(str(block.get("id")))
            elif block.get("type") == "tool_result":
                if str(block.get("tool_use_id")) not in open_calls:
                    return False
                open_calls.remove(str(block.get("tool_use_id")))
    return not open_calls


def find_results(message: HistoryMessage) -> list[Json]:
    return [block for block in message.content if block.get("type") == "tool_result"]
