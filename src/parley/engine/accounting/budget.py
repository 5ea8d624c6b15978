"""The budget of a session, and when it is spent. Pure.

The budget is checked before every model call of every agent. The cost of a call is known only after it, so a budget is
exceeded by one call at most.
"""

from __future__ import annotations

from collections.abc import Iterator

from parley.errors import BudgetSpent
from parley.protocol.base import Struct
from parley.protocol.options import LimitOptions

WARN_AT = (0.8, 0.95)
UNKNOWN_PRICE = (
    "The dollar budget cannot be enforced: this session has used a model without a known price. Set its price "
    "(`models` in the settings, or a file in PARLEY_PRICES), or limit tokens with --max-budget-tokens"
)

# How each kind of budget is written.
FORMATS = {"usd": "${:g}", "tokens": "{} tokens", "calls": "{} model calls", "seconds": "{:g} seconds"}


class SpendingLimits(Struct, frozen=True, kw_only=True):
    """The limits of a session; None for no limit."""

    usd: float | None = None
    tokens: int | None = None
    """All kinds, cached tokens included."""
    calls: int | None = None
    seconds: float | None = None
    """Of the running turn."""

    @classmethod
    def from_options(cls, options: LimitOptions) -> SpendingLimits:
        return cls(
            usd=options.max_budget_usd,
            tokens=options.max_budget_tokens,
            calls=options.max_budget_calls,
            seconds=options.max_budget_seconds,
        )

    @property
    def is_priced(self) -> bool:
        """Whether the remaining budget is known only after a call."""
        return self.usd is not None or self.tokens is not None


class Spent(Struct, frozen=True, kw_only=True):
    usd: float | None = 0.0
    """None after a call whose price is unknown."""
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0


def check_budget(budget: SpendingLimits, spent: Spent) -> None:
    """Raises BudgetSpent if no more model calls are allowed."""
    if budget.usd is not None and spent.usd is None:
        raise BudgetSpent("usd", UNKNOWN_PRICE)
    for kind, most, used in shares(budget, spent):
        if used >= most:
            raise BudgetSpent(kind, f"Reached maximum budget ({FORMATS[kind].format(most)})")


def find_warnings(budget: SpendingLimits, spent: Spent, sent: set[tuple[str, float]]) -> list[str]:
    """Warnings about budgets that are nearly spent. Each is returned once; `sent` holds the earlier ones."""
    found = []
    for kind, most, used in shares(budget, spent):
        passed = [share for share in WARN_AT if most * share <= used < most and (kind, share) not in sent]
        if passed:
            sent.update((kind, share) for share in passed)
            found.append(f"{passed[-1]:.0%} of the budget ({FORMATS[kind].format(most)}) is spent")
    return found


def shares(budget: SpendingLimits, spent: Spent) -> Iterator[tuple[str, float, float]]:
    """The limit and the spent part of every kind that has a limit."""
    for kind in FORMATS:
        most, used = getattr(budget, kind), getattr(spent, kind)
        if most is not None and used is not None:
            yield kind, most, used
