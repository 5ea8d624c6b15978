"""What a session may spend, and when it has spent it. Pure.

A budget is looked at before every model call of every agent. What a call costs is known
only behind it, so a budget is overshot by one call at most.
"""

from __future__ import annotations

from collections.abc import Iterator

from parley.errors import BudgetSpent
from parley.protocol.base import Struct

WARN_AT = (0.8, 0.95)
UNKNOWN_PRICE = "The budget cannot be kept: the price of a model in use is not known (see PARLEY_PRICES)"

# How each kind of budget is written.
WORDS = {"usd": "${:g}", "tokens": "{} tokens", "calls": "{} model calls", "seconds": "{:g} seconds"}


class Budget(Struct, frozen=True, kw_only=True):
    """None: as much as it takes."""

    usd: float | None = None
    tokens: int | None = None
    """Of every kind, cached ones included."""
    calls: int | None = None
    seconds: float | None = None
    """Of the running turn."""

    @property
    def is_priced(self) -> bool:
        """Whether what is left is known only when a call is over."""
        return self.usd is not None or self.tokens is not None


class Spent(Struct, frozen=True, kw_only=True):
    usd: float | None = 0.0
    """None once a price was not known."""
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0


def check(budget: Budget, spent: Spent) -> None:
    """Raises BudgetSpent if there shall be no more model calls."""
    if budget.usd is not None and spent.usd is None:
        raise BudgetSpent("usd", UNKNOWN_PRICE)
    for kind, most, used in shares(budget, spent):
        if used >= most:
            raise BudgetSpent(kind, f"Reached maximum budget ({WORDS[kind].format(most)})")


def warnings(budget: Budget, spent: Spent, told: set[tuple[str, float]]) -> list[str]:
    """What is nearly spent, in words; what was said already is in `told`, and is not said again."""
    found = []
    for kind, most, used in shares(budget, spent):
        passed = [share for share in WARN_AT if most * share <= used < most and (kind, share) not in told]
        if passed:
            told.update((kind, share) for share in passed)
            found.append(f"{passed[-1]:.0%} of the budget ({WORDS[kind].format(most)}) is spent")
    return found


def shares(budget: Budget, spent: Spent) -> Iterator[tuple[str, float, float]]:
    """Each kind that has a limit: the limit, and what is spent of it."""
    for kind in WORDS:
        most, used = getattr(budget, kind), getattr(spent, kind)
        if most is not None and used is not None:
            yield kind, most, used
