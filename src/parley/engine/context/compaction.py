"""When a conversation is compacted, and what of it is kept. Pure.

A conversation is compacted before a model call that would come too near to the end of the
model's window: the answer and the largest result of a tool must still fit behind it. What was
said becomes a summary; the last group of messages stays as it is. A group is a prompt, or an
answer with the results of its calls, so that no call is ever parted from its result.

Not here: how a summary is had, and what is told of it (compactor.py); how the history follows
from the log (history.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from parley.engine.context.history import Spoken, weight
from parley.errors import UsageError
from parley.protocol.base import Json, Struct

MOST_ANSWER_TOKENS = 32_000
"""What is held free for the answer. Models may say more, and seldom do."""
LARGEST_RESULT_TOKENS = 25_000
"""What is held free for the largest result of a tool that may come before anybody looks again."""
KEPT_SHARE = 0.2
"""A last group larger than this part of the threshold is not kept as it is."""
GROWTH_SHARE = 0.1
"""So much must have been said since the last compaction before the next: where the instructions alone fill the
window, compacting again and again would help nobody."""
MOST_FAILURES = 2
LEAST_SHARE = 0.5
"""A backend that counts less than this part of our own estimate does not count, or not all of it."""


class Policy(Struct, frozen=True, kw_only=True):
    """What the person wants of compaction."""

    is_allowed: bool = True
    """Whether there is any, also on request."""
    by_itself: bool = True
    window: int | None = None
    """Tokens, in place of what is known of the model."""
    percent: float | None = None
    """Of the window; it may make a compaction come earlier, never later."""
    most_tokens: int | None = None
    """What the model is to read at most, where that is less than its window bears."""

    @property
    def has_measure(self) -> bool:
        """Whether the person says how much is too much."""
        return self.window is not None or self.most_tokens is not None


def policy(*, disabled: bool, auto_disabled: bool, flag: str | None, window: int | None, percent: int | None) -> Policy:
    """What variables, settings and `--autocompact` come to. Raises UsageError."""
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
    return Policy(is_allowed=not disabled, by_itself=by_itself, window=window or None, percent=percent)


class Gauge:
    """How full a window is: what the backend counted last, and our own estimate of what came since.

    A backend knows best, but a server between may count anything, and some say 1 whatever they are sent. A count that
    cannot be is not believed: a conversation must not grow for ever on somebody's word.
    """

    def __init__(self) -> None:
        self._measured: tuple[int, int] | None = None
        self._after_last = 0
        self.failures = 0
        """In a row."""

    def measure(self, counted: int, estimated: int, media: int = 0) -> None:
        """The backend has counted a call and its answer, for which there is our own estimate.

        What of that is `media` is no more than a guess, and no reason to doubt a count.
        """
        self._measured = (counted, estimated) if counted >= (estimated - media) * LEAST_SHARE else None

    def reset(self, history_tokens: int) -> None:
        """The conversation has begun anew."""
        self._measured, self._after_last, self.failures = None, history_tokens, 0

    def estimate(self, own: int) -> int:
        """The tokens of the next call, given our own estimate of them."""
        if self._measured is None:
            return own
        counted, then = self._measured
        return max(0, counted + own - then)

    def has_grown(self, history_tokens: int, threshold: int) -> bool:
        return not self._after_last or history_tokens - self._after_last > threshold * GROWTH_SHARE


def threshold(policy: Policy, window: int, answer_tokens: int) -> int:
    """From how many tokens on a conversation is compacted by itself. A small window is used at least by half."""
    most = max(window // 2, window - min(answer_tokens, MOST_ANSWER_TOKENS) - LARGEST_RESULT_TOKENS)
    bounds = [most] if policy.percent is None else [most, int(window * policy.percent / 100)]
    return min(bounds if policy.most_tokens is None else [*bounds, policy.most_tokens])


def keep_from(spoken: list[Spoken], most_tokens: int) -> int | None:
    """Where the parts begin that are kept as they are; None if there is too little before them to be worth it.

    A prompt that nobody has answered is always kept, another last group if it is not too large. So are what stands
    before that prompt without an answer, and the work that it came into.
    """
    begins = [at for at, part in enumerate(spoken) if part.role == "assistant" or not results_in(part)]
    if len(begins) < 2:
        return None
    at = begins[-1]
    size = sum(map(spoken_weight, spoken[at:]))
    fits = spoken[at].role == "user" or size <= most_tokens
    for earlier in reversed(begins[1:-1]):
        size += sum(map(spoken_weight, spoken[earlier:at]))
        is_answered = spoken[at].role == "assistant" or spoken[at - 1].role == "assistant"
        if is_answered or size > most_tokens or not is_paired(spoken[earlier:]):
            break
        at = earlier
    return at if fits and is_paired(spoken[at:]) else len(spoken)


def spoken_weight(part: Spoken) -> int:
    return sum(map(weight, part.content))


def is_paired(messages: Iterable[Spoken]) -> bool:
    """Whether every call has its result behind it, and every result its call before it."""
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


def results_in(message: Spoken) -> list[Json]:
    return [block for block in message.content if block.get("type") == "tool_result"]
