"""What the sessions of a token have used, and whether it may use more.

Use is counted for the token that created the session, not for the one that sends the prompts. A quota is checked before
a prompt is taken: a turn that has started is not stopped by it (`--max-budget-usd` stops one).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from parley.gateway.database import Database
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Quotas
from parley.protocol.base import Json, Struct

COUNTED = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
MINUTE_SECONDS = 60.0


class Use(Struct, frozen=True):
    tokens: int = 0
    usd: float = 0.0


class Spending:
    """How many tokens and dollars the sessions of each token have used."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.find_elsewhere: Callable[[str], Use] = lambda name: Use()
        """What the sessions of a token have used on other hosts of a cluster."""
        self.on_recorded: Callable[[str], None] = lambda session: None
        """Called with the session that has used something."""

    def record(self, session: str, result: Json) -> None:
        """Add what a result says. Its figures are totals of the session, so the growth counts."""
        total = read_use(result)
        row = self._database.row("SELECT creator, tokens_used, usd_used FROM sessions WHERE id=?", session)
        if row is None:
            return
        before = Use(row["tokens_used"], row["usd_used"])
        grown = Use(growth(before.tokens, total.tokens), growth(before.usd, total.usd))
        self.start_at(session, result)
        self._database.change(
            "INSERT INTO spending (name, tokens, usd) VALUES (?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE SET tokens=tokens+excluded.tokens, usd=usd+excluded.usd",
            *(row["creator"], grown.tokens, grown.usd),
        )
        self.on_recorded(session)

    def start_at(self, session: str, result: Json) -> None:
        """The totals of a new session continue from a result that was paid for elsewhere."""
        total = read_use(result)
        self._database.change(
            "UPDATE sessions SET tokens_used=?, usd_used=? WHERE id=?", total.tokens, total.usd, session
        )

    def of(self, name: str) -> Use:
        here, elsewhere = self.of_here(name), self.find_elsewhere(name)
        return Use(here.tokens + elsewhere.tokens, here.usd + elsewhere.usd)

    def of_here(self, name: str) -> Use:
        """Without what other hosts have counted."""
        row = self._database.row("SELECT tokens, usd FROM spending WHERE name=?", name)
        return Use() if row is None else Use(row["tokens"], row["usd"])

    def check(self, name: str, quotas: Quotas) -> None:
        """Raises Refusal."""
        check_use(f"the token {name!r}", self.of(name), tokens=quotas.tokens, usd=quotas.usd)


def check_use(user: str, used: Use, *, tokens: int | None, usd: float | None) -> None:
    """Raises Refusal if a quota is used up."""
    if usd is not None and used.usd >= usd:
        raise Refusal("quota_exceeded", f"{user} has used ${used.usd:.4f} of its quota of ${usd:.4f}")
    if tokens is not None and used.tokens >= tokens:
        raise Refusal("quota_exceeded", f"{user} has used {used.tokens} of its quota of {tokens} model tokens")


def growth(before: Any, after: Any) -> Any:
    """A total that is smaller than before began again."""
    return after - before if after >= before else after


def read_use(result: Json) -> Use:
    by_model = result.get("modelUsage")
    counts = by_model.values() if isinstance(by_model, dict) else ()
    tokens = sum(int(one.get(field) or 0) for one in counts if isinstance(one, dict) for field in COUNTED)
    cost = result.get("total_cost_usd")
    return Use(tokens, float(cost) if isinstance(cost, int | float) else 0.0)


class RateLimiter:
    """At most so many events a minute for each key, with bursts of a tenth of that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """How many events are left, and when that was true."""

    def allow(self, key: str, per_minute: int) -> bool:
        now, burst = self._clock(), max(1.0, per_minute / 10)
        left, at = self._buckets.get(key, (burst, now))
        left = min(burst, left + (now - at) * per_minute / MINUTE_SECONDS)
        if left < 1:
            self._buckets[key] = (left, now)
            return False
        self._buckets[key] = (left - 1, now)
        if len(self._buckets) > 10_000:  # forget those that are full again
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if now - bucket[1] < MINUTE_SECONDS}
        return True
