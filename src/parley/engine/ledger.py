"""Usage and cost, of the turn and of each model over the whole session, and the budget that limits them.

The budget is checked before every model call of every agent. The cost of a call is known only after it, so a budget is
exceeded by one call at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext

from parley.errors import BudgetSpent
from parley.models.catalog import ModelInfo, ModelRef, Prices, list_backends, model_info, resolve
from parley.protocol.base import UNSET, Json, Struct, UnsetType
from parley.protocol.messages.result import ModelUsage
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
    def is_limited(self) -> bool:
        return self.is_priced or self.calls is not None or self.seconds is not None

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


COUNTED_FIELDS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


class ModelTotals(Struct):
    """The totals of one model."""

    usage: Json
    cost_usd: float | None = 0.0
    basis: str | UnsetType = UNSET
    """How the last call was priced; UNSET before the first call of this process."""

    def add(self, usage: Json, cost_usd: float | None, basis: str) -> None:
        self.usage = add_usage(self.usage, usage)
        self.basis = basis
        # A call of unknown price makes the total unknown.
        self.cost_usd = None if self.cost_usd is None or cost_usd is None else self.cost_usd + cost_usd


class Ledger:
    """The usage of a session and all its agents, and their common budget."""

    def __init__(
        self,
        prices: Prices,
        budget: SpendingLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        get_info: Callable[[str], ModelInfo] = model_info,
    ) -> None:
        self._prices = prices
        self._get_info = get_info
        self._budget = budget or SpendingLimits()
        self.clock = clock
        self._turn_started_at = clock()
        self._calls = 0
        self._warned: set[tuple[str, float]] = set()
        self._lock = asyncio.Lock()
        self._total: dict[str, ModelTotals] = {}
        self._before = Spent(usd=0.0, tokens=0, calls=0, seconds=0.0)
        """Spent in conversations that were cleared: no longer reported, but still part of the budget."""
        self._turn: dict[str, ModelTotals] = {}
        self.turn_usage: Json = blank_usage()
        self.api_seconds = 0.0
        self.last_usage: Json | None = None
        """The usage of the last call of the conversation."""
        self.lines_added = self.lines_removed = 0
        """What file tools changed since the process started."""

    def count_lines(self, change: Json) -> None:
        """Count the lines of a change of a file, which a tool describes in its result."""
        if change.get("type") == "create" and isinstance(change.get("content"), str):
            self.lines_added += len(change["content"].splitlines())
        for hunk in change["structuredPatch"]:
            self.lines_added += sum(line.startswith("+") for line in hunk["lines"])
            self.lines_removed += sum(line.startswith("-") for line in hunk["lines"])

    def begin_turn(self) -> None:
        self._turn = {}
        self.turn_usage = blank_usage()
        self._turn_started_at = self.clock()

    @asynccontextmanager
    async def call(self, *, is_background: bool = False) -> AsyncIterator[None]:
        """The body makes one model call. Raises BudgetSpent if none is allowed.

        If a budget is known to be spent only after a call, agents call one after the other: calls at the same time
        would exceed it together. A background call waits for the others, and no call waits for it.
        """
        if is_background and self._budget.is_priced:
            async with self._lock:
                pass
        in_turn = self._budget.is_priced and not is_background
        async with self._lock if in_turn else nullcontext():
            self.check_budget()
            self._calls += 1
            yield

    def check_budget(self) -> None:
        """Raises BudgetSpent if no more calls are allowed."""
        if self._budget.is_limited:
            check_budget(self._budget, self.spent())

    def check_cost(self) -> None:
        """Raises BudgetSpent if the dollars of the budget are spent. The other budgets only limit further calls."""
        if self._budget.usd is not None and self.spent().usd is not None:
            check_budget(SpendingLimits(usd=self._budget.usd), self.spent())

    def spent(self) -> Spent:
        tokens = self._before.tokens + sum(total_tokens(tally.usage) for tally in self._total.values())
        usd = None if self.cost_usd is None or self._before.usd is None else self._before.usd + self.cost_usd
        return Spent(usd=usd, tokens=tokens, calls=self._calls, seconds=self.clock() - self._turn_started_at)

    def warnings(self) -> list[str]:
        """Warnings about budgets that are nearly spent, each once."""
        return find_warnings(self._budget, self.spent(), self._warned) if self._budget.is_limited else []

    def record_call(self, model: str, usage: Json, seconds: float, *, is_side_query: bool = False) -> None:
        """Add one model call. A side query does not count as usage of the turn."""
        cost = self._prices.cost_usd(model, usage)
        basis = self._prices.basis(model)
        for totals in (self._total, self._turn):
            totals.setdefault(model, ModelTotals(usage=blank_usage())).add(usage, cost, basis)
        if not is_side_query:
            self.last_usage = usage
            self.turn_usage = add_usage(self.turn_usage, usage)
        self.api_seconds += seconds

    def restart(self) -> None:
        """The conversation was cleared: reported totals start from zero, budgets do not."""
        self._before = self.spent()
        self._total, self.api_seconds, self.last_usage = {}, 0.0, None
        self.begin_turn()

    def resume(self, result: Json) -> None:
        """Continue from the totals of an earlier result of this session."""
        self.api_seconds = (result.get("duration_api_ms") or 0) / 1000
        for model, used in (result.get("modelUsage") or {}).items():
            usage = {**blank_usage(), **parse_model_usage(used)}
            cost = None if used.get("costBasis") == "unknown" else used.get("costUSD")
            # The price may have become known since.
            self._total[model] = ModelTotals(
                usage=usage, cost_usd=self._prices.cost_usd(model, usage) if cost is None else cost
            )

    @property
    def cost_usd(self) -> float | None:
        """The total cost; None after a call whose price is unknown."""
        costs = [tally.cost_usd for tally in self._total.values()]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def by_model(self) -> dict[str, ModelUsage]:
        return self._report(self._total)

    def by_model_this_turn(self) -> dict[str, ModelUsage]:
        return self._report(self._turn)

    def _report(self, totals: dict[str, ModelTotals]) -> dict[str, ModelUsage]:
        return {model: model_usage(model, tally, self._get_info(model)) for model, tally in totals.items()}


def blank_usage() -> Json:
    return {
        **dict.fromkeys(COUNTED_FIELDS, 0),
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": "standard",
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
    }


def total_tokens(usage: Json) -> int:
    """Input and output tokens of all kinds."""
    return sum(usage.get(key) or 0 for key in COUNTED_FIELDS)


def add_usage(one: Json, other: Json) -> Json:
    """The sum of two usages. Fields that are not counts come from the second."""
    total = {**one, **{key: value for key, value in other.items() if value is not None}}
    for key in COUNTED_FIELDS:
        total[key] = (one.get(key) or 0) + (other.get(key) or 0)
    for key in ("server_tool_use", "cache_creation", "output_tokens_details"):
        if key in one or key in other:
            more, before = other.get(key), one.get(key) or {}
            total[key] = _add_counts(before, more) if more else before
    if one.get("parley_estimated"):
        # A sum that contains an estimate is an estimate.
        total["parley_estimated"] = True
    return total


def _add_counts(one: Json, other: Json) -> Json:
    return {key: (one.get(key) or 0) + (other.get(key) or 0) for key in {**one, **other}}


def parse_model_usage(used: Json) -> Json:
    """An entry of `modelUsage` of a result, with the field names of the API."""
    return {
        "input_tokens": used.get("inputTokens", 0),
        "output_tokens": used.get("outputTokens", 0),
        "cache_read_input_tokens": used.get("cacheReadInputTokens", 0),
        "cache_creation_input_tokens": used.get("cacheCreationInputTokens", 0),
        "output_tokens_details": {"thinking_tokens": used.get("thinkingTokens", 0)},
        "server_tool_use": {"web_search_requests": used.get("webSearchRequests", 0), "web_fetch_requests": 0},
        "cache_creation": {
            "ephemeral_5m_input_tokens": used.get("cacheCreationEphemeral5mInputTokens", 0),
            "ephemeral_1h_input_tokens": used.get("cacheCreationEphemeral1hInputTokens", 0),
        },
    }


def model_usage(model: str, totals: ModelTotals, known: ModelInfo) -> ModelUsage:
    usage = totals.usage
    written = usage["cache_creation"]
    return ModelUsage(
        inputTokens=usage["input_tokens"],
        outputTokens=usage["output_tokens"],
        cacheReadInputTokens=usage["cache_read_input_tokens"],
        cacheCreationInputTokens=usage["cache_creation_input_tokens"],
        webSearchRequests=usage["server_tool_use"].get("web_search_requests", 0),
        costUSD=totals.cost_usd,
        contextWindow=known.context_window,
        maxOutputTokens=known.max_output_tokens,
        thinkingTokens=(usage.get("output_tokens_details") or {}).get("thinking_tokens", 0),
        cacheCreationEphemeral5mInputTokens=written.get("ephemeral_5m_input_tokens", 0),
        cacheCreationEphemeral1hInputTokens=written.get("ephemeral_1h_input_tokens", 0),
        canonicalModel=model,
        provider=find_provider(model),
        costBasis=totals.basis,
    )


def find_provider(model: str) -> str:
    """Who serves a model, in the words of clients where they have one."""
    adapter, colon, name = model.partition(":")
    choice = ModelRef(adapter, name) if colon and adapter in list_backends() else resolve(model)
    return "firstParty" if choice.is_messages_api else choice.backend.provider or choice.adapter


def format_usd(amount: float | None) -> str:
    return "unknown: the price of a model is not known (see PARLEY_PRICES)" if amount is None else f"${amount:.4f}"
