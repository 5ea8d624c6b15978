"""What the sessions of a token have used, and whether it may use more.

Use is counted for the token that created the session, not for the one that sends the prompts. A quota is checked before
a prompt or another request to a model is taken: a turn that has started is not stopped by it (`--max-budget-usd` stops
one).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from parley.gateway.database import Database
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Quotas
from parley.gateway.session_log.records import UsedRecord
from parley.gateway.session_log.session_log import SessionLog
from parley.protocol.base import Json, Struct

COUNTED = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
MINUTE_SECONDS = 60.0
MOST_KEYS = 10_000
FREE_BYTES = 64 * 1024
"""How much may wait for a connection although its token has reached its limit."""
THREADS = 2
"""More would slow down the event loop, which needs the same interpreter."""
T = TypeVar("T")


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
        self._between: dict[str, Use] = {}
        """The totals of engines that are newer than their last result, at which a resumed engine starts."""

    def measure(self, log: SessionLog, result: Json) -> UsedRecord:
        """What a result adds. Its figures are totals of the session, so the growth counts."""
        total = read_use(result)
        record = self._measure_growth(log, total, total)
        self.forget(log.session_id)
        return record

    def measure_between(self, log: SessionLog, usage: Json) -> UsedRecord:
        """What a session has used since its last result: the `session` of a reply to `get_usage`."""
        total = read_use({"modelUsage": usage["model_usage"], "total_cost_usd": usage["total_cost_usd"]})
        record = self._measure_growth(log, total, Use(log.state.total_tokens, log.state.total_usd))
        self._between[log.session_id] = total
        return record

    def forget(self, session: str) -> None:
        """The engine of a session has ended, or its result says all."""
        self._between.pop(session, None)

    def _measure_growth(self, log: SessionLog, total: Use, at_result: Use) -> UsedRecord:
        before = self._between.get(log.session_id) or Use(log.state.total_tokens, log.state.total_usd)
        return UsedRecord(
            tokens=growth(before.tokens, total.tokens),
            usd=growth(before.usd, total.usd),
            total_tokens=at_result.tokens,
            total_usd=at_result.usd,
        )

    def of(self, name: str) -> Use:
        here, elsewhere = self.of_here(name), self.find_elsewhere(name)
        return Use(here.tokens + elsewhere.tokens, here.usd + elsewhere.usd)

    def of_here(self, name: str) -> Use:
        """Without what other hosts have counted."""
        row = self._database.row("SELECT sum(tokens) AS tokens, sum(usd) AS usd FROM spending WHERE name=?", name)
        return Use() if row is None or row["tokens"] is None else Use(row["tokens"], row["usd"])

    def check(self, name: str, quotas: Quotas) -> None:
        """Raises Refusal."""
        if quotas.tokens is not None or quotas.usd is not None:
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


class Peer(Protocol):
    """A connection of a client, as the server holds it."""

    def admit(self, line_bytes: int, release: Callable[[], None]) -> None:
        """The client has a token: it may send longer lines. `release` is called when the connection has ended."""

    def end(self, code: str, reason: str) -> None:
        """End it at once, even if the client does not read."""


class TokenUse:
    """What a token has open now. All its connections share one object."""

    def __init__(self) -> None:
        self.peers: dict[Peer, Callable[[], bool]] = {}
        """The connections, and whether the token of each still allows what it did when it was made."""
        self.bytes = 0
        """How much was received that is not complete."""
        self.most_unsent: int | None = None
        self._unsent = 0
        """How much waits for clients that have not read it."""
        self._room = asyncio.Event()
        self._turn = asyncio.Lock()

    def hold(self, principal: Principal, count: int) -> None:
        """Count bytes that were received. Raises Refusal."""
        self.bytes += count
        most = principal.quotas.bytes
        if most is not None and self.bytes > most:
            text = f"unfinished requests of the token {principal.name!r} hold more than its limit of {most} bytes"
            raise Refusal("quota_exceeded", text)

    def release(self, count: int) -> None:
        self.bytes -= count

    @property
    def has_room(self) -> bool:
        """Whether more may wait for the clients. What waits exceeds the limit by one line or reply at most."""
        return self.most_unsent is None or self._unsent < self.most_unsent

    def change_unsent(self, by: int) -> None:
        self._unsent += by
        if by < 0 and self.has_room:
            self._room.set()

    async def wait_room(self) -> None:
        while not self.has_room:
            self._room.clear()
            await self._room.wait()

    async def take_turn(self) -> None:
        """Wait for the others: in each round of the loop, one line or request of each token is handled."""
        async with self._turn:
            await asyncio.sleep(0)


class Unsent:
    """What one client has not read, as a part of what its token has."""

    def __init__(self, use: TokenUse, free_bytes: int = FREE_BYTES) -> None:
        """`free_bytes`: how much may wait although the token has reached its limit."""
        self.use = use
        self._free_bytes = free_bytes
        self._count = 0

    def set(self, count: int) -> None:
        self.use.change_unsent(count - self._count)
        self._count = count

    def is_refused(self, count: int) -> bool:
        """Whether so much must not wait."""
        return count > self._free_bytes and not self.use.has_room


class OpenConnections:
    """All connections that have sent a token, by its name. What ends a token ends them."""

    def __init__(self) -> None:
        self._by_name: WeakValueDictionary[str, TokenUse] = WeakValueDictionary()
        """An entry stays while a connection or a session refers to it."""
        self._spared: set[Peer] = set()

    def add(self, principal: Principal, peer: Peer, is_current: Callable[[], bool], line_bytes: int) -> TokenUse:
        """Raises Refusal."""
        name, most, use = principal.name, principal.quotas.connections, self.use_of(principal)
        if most is not None and len(use.peers) >= most:
            raise Refusal("quota_exceeded", f"the token {name!r} has reached its limit of {most} connections at a time")

        def release() -> None:
            use.peers.pop(peer, None)
            self._spared.discard(peer)

        use.peers[peer] = is_current
        peer.admit(line_bytes, release)
        return use

    def use_of(self, principal: Principal) -> TokenUse:
        """What the token of a principal has open."""
        use = self._by_name.get(principal.name) or TokenUse()
        use.most_unsent = principal.quotas.bytes
        self._by_name[principal.name] = use
        return use

    def spare(self, peer: Peer | None) -> None:
        """Do not end a connection before its request has a reply: the request itself makes its token invalid."""
        if peer is not None:
            self._spared.add(peer)

    def end_invalid(self) -> None:
        """End the connections whose tokens were revoked, have expired or allow something else now."""
        for use in list(self._by_name.values()):
            for peer, is_current in list(use.peers.items()):
                if peer not in self._spared and not is_current():
                    peer.end("unauthorized", "the token is not valid any more")


class TenantThreads:
    """Threads for work of the server that takes long, such as a page of a long recording.

    One piece of work of each tenant is done at a time, and the tenants take turns. The threads of the engines, which
    read files for all tenants, are others: they never wait for this work.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "tenant")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, tenant: str, work: Callable[[], T], is_gone: Callable[[], Awaitable[bool]] | None = None) -> T:
        """`is_gone`: whether its client has left when its turn has come. Raises Refusal then."""
        turn = self._turns.get(tenant) or asyncio.Lock()
        self._turns[tenant] = turn
        async with turn:
            if is_gone is not None and await is_gone():
                raise Refusal("timed_out", "the client has disconnected")
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class RateLimiter:
    """At most so many events a minute for each key, with bursts of a tenth of that.

    Of more than MOST_KEYS keys, those that were not used for the longest time are forgotten.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """How many events are left, and when that was true; the key that was used last is the last one."""

    def allow(self, key: str, per_minute: int) -> bool:
        now, burst = self._clock(), max(1.0, per_minute / 10) if per_minute else 0.0
        left, at = self._buckets.pop(key, (burst, now))
        left = min(burst, left + (now - at) * per_minute / MINUTE_SECONDS)
        is_allowed = left >= 1
        self._buckets[key] = (left - is_allowed, now)
        if len(self._buckets) > MOST_KEYS:
            del self._buckets[next(iter(self._buckets))]
        return is_allowed
