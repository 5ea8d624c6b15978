"""A budget that several clients share."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from parley.protocol import base
from parley.protocol.messages.result import ModelUsage, Result
from parley.sdk.errors import BudgetExceeded

if TYPE_CHECKING:
    from parley.sdk.options import Options
    from parley.sdk.types.generic import OutputT

N = TypeVar("N", int, float)


class Budget:
    """Dollars and tokens that the clients of a program share. Use one object in the `Options` of all of them.

        budget = Budget(usd=5.00)
        options = Options(model="sonnet", budget=budget)
        await run_many(prompts, options)
        print(budget.spent_usd)

    No turn starts once it is spent: BudgetExceeded is raised instead. Each engine is started with the amount
    that is left as its own limit, so a single turn ends when it reaches it. What a turn costs is known at its end;
    turns that run at the same time can exceed the budget by what they spend together.

    Tokens count with all cached ones. A limit in dollars needs a model with a known price. A client that resumes a
    session is limited more tightly: the engine counts what the session has spent before.

    It can be shared by tasks and threads.
    """

    def __init__(self, *, usd: float | None = None, tokens: int | None = None) -> None:
        if usd is None and tokens is None:
            raise ValueError("a Budget needs a limit: usd, tokens or both")
        for name, value in (("usd", usd), ("tokens", tokens)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise TypeError(f"{name} of a Budget must be a number, not {type(value).__name__}")
            if value is not None and not value >= 0:
                raise ValueError(f"{name} of a Budget must be 0 or more, not {value!r}")
        self.usd = usd
        """The limit in dollars; None for no limit."""
        self.tokens = tokens
        """The limit in tokens; None for no limit."""
        self._lock = threading.Lock()
        self._spent_usd = 0.0
        self._spent_tokens = 0
        self._is_unpriced = False

    def __repr__(self) -> str:
        return f"Budget(usd={self.usd}, tokens={self.tokens}, spent ${self.spent_usd:.4f}, {self.spent_tokens} tokens)"

    @property
    def spent_usd(self) -> float:
        """What was spent so far. Calls of models without a known price are not in it."""
        return self._spent_usd

    @property
    def spent_tokens(self) -> int:
        """How many tokens were used so far."""
        return self._spent_tokens

    @property
    def remaining_usd(self) -> float | None:
        """What is left; None for no limit in dollars."""
        return None if self.usd is None else max(0.0, self.usd - self._spent_usd)

    @property
    def remaining_tokens(self) -> int | None:
        """How many tokens are left; None for no limit in tokens."""
        return None if self.tokens is None else max(0, self.tokens - self._spent_tokens)

    def add(self, usd: float | None, tokens: int) -> None:
        """Count what was spent. The clients do this; call it to count what your program spends elsewhere.

        `usd` is None if the price is not known.
        """
        with self._lock:
            self._spent_usd += usd or 0.0
            self._spent_tokens += tokens
            self._is_unpriced |= usd is None

    def check(self) -> None:
        """Raises BudgetExceeded if no turn may start."""
        with self._lock:
            if self.usd is not None and self._is_unpriced:
                raise BudgetExceeded(
                    "the budget in dollars cannot be enforced: the price of a model is not known; set tokens instead"
                )
            if self.usd is not None and self._spent_usd >= self.usd:
                raise BudgetExceeded(f"the budget of ${self.usd:g} is spent (${self._spent_usd:.4f})")
            if self.tokens is not None and self._spent_tokens >= self.tokens:
                raise BudgetExceeded(f"the budget of {self.tokens} tokens is spent ({self._spent_tokens})")


def limit_options(options: Options[OutputT]) -> Options[OutputT]:
    """The options with what is left of the shared budget as the engine's own limits."""
    if options.budget is None:
        return options
    return replace(
        options,
        max_budget_usd=lower_of(options.max_budget_usd, options.budget.remaining_usd),
        max_budget_tokens=lower_of(options.max_budget_tokens, options.budget.remaining_tokens),
    )


def lower_of(own: N | None, shared: N | None) -> N | None:
    """The lower of two limits. A number may be given as text."""
    found = [each for each in (own, shared) if each is not None]
    return min(found, key=float, default=None)


class BudgetMeter:
    """Counts the results of one engine towards a budget.

    A result has the totals of the session, which include side calls; the turn's own usage is needed only for the
    first result of a resumed session, whose totals include earlier parts.
    """

    def __init__(self, budget: Budget, is_resumed: bool) -> None:
        self._budget = budget
        self._is_resumed = is_resumed
        self._usd = 0.0
        self._tokens = 0

    def __call__(self, message: base.Message) -> None:
        if not isinstance(message, Result):
            return
        total, tokens = message.total_cost_usd, count_tokens(message.modelUsage)
        if self._is_resumed:
            self._is_resumed = False
            turn = message.model_usage_since_last_result
            self._tokens = tokens - count_tokens(turn)
            if isinstance(total, int | float) and isinstance(turn, dict):
                self._usd = total - sum(usage.costUSD or 0 for usage in turn.values())
        usd = max(0.0, total - self._usd) if isinstance(total, int | float) else None
        used = max(0, tokens - self._tokens)
        self._budget.add(usd if used else usd or 0.0, used)
        self._usd, self._tokens = self._usd + (usd or 0.0), max(tokens, self._tokens)


def count_tokens(by_model: dict[str, ModelUsage] | base.UnsetType) -> int:
    if not isinstance(by_model, dict):
        return 0
    counts = (
        (one.inputTokens, one.outputTokens, one.cacheReadInputTokens, one.cacheCreationInputTokens)
        for one in by_model.values()
    )
    return sum(count for each in counts for count in each if isinstance(count, int))
