"""Which shards a host owns: claim, renew, give up before a lease can have expired, balance.

A lease counts from before its renewal was sent, and ends a margin before its time: then the sessions of the shard are
stopped at once, whatever the network does. Each host claims its share, ceil(shards / hosts), and gives up what it has
above that, shards without a running turn first. There is no coordinator: all read the same rows of the registry, in
which hosts describe themselves and operators say what they want.

See also: `host.py` says what happens to the sessions of a shard.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from zlib import crc32

import msgspec

from parley.cluster.base import ClusterError, ClusterRegistry, LeaseLost, Ownership, ShardLease
from parley.cluster.subjects import decode_token, encode_token
from parley.protocol.base import Struct


class HostInfo(Struct, frozen=True, kw_only=True):
    """A host that lives. Its row disappears when it has not renewed it for the TTL of a lease."""

    name: str
    life: str = ""
    """The id of its process. A host that is started again has another one."""
    version: str
    """The release of Parley."""
    records: int
    """The newest version of records that it can read."""
    shards: list[int]
    sessions: int
    """How many it has loaded."""
    turns: int
    """How many turns run."""
    lag_seconds: float = 0.0
    """Delay of its event loop, 99th percentile."""
    waiting_writes: int = 0
    """How many sessions wait for the log, which does not answer."""
    is_draining: bool = False
    workspace: str = ""
    """The address of its workspace service, if it has one."""
    unreadable: dict[str, str] = {}
    """Sessions that it cannot run, and why: their logs are damaged, or only a newer host can read them."""
    newer_shards: list[int] = []
    """The shards with sessions that only a newer host can read."""
    secret_check: str = ""
    """`ClusterSecret.check_value` of its secret."""
    at: float = 0.0
    """When it wrote this, by its own clock."""


def host_key(name: str) -> str:
    return f"hosts.{encode_token(name)}"


def drain_key(name: str) -> str:
    """A row that makes a host give up its shards, for as long as it exists."""
    return f"drain.{encode_token(name)}"


def move_key(shard: int) -> str:
    """A row with the name of the host that is to run a shard."""
    return f"moves.{shard}"


async def list_hosts(registry: ClusterRegistry) -> dict[str, HostInfo]:
    """The hosts that live, by name. Raises ClusterError."""
    found: dict[str, HostInfo] = {}
    for row in await registry.rows("hosts.*"):
        with suppress(msgspec.MsgspecError):
            info = msgspec.json.decode(row.value, type=HostInfo)
            found[info.name] = info
    return found


async def list_moves(registry: ClusterRegistry) -> dict[int, str]:
    """Which host is to run which shard. Raises ClusterError."""
    return {int(row.key.rpartition(".")[2]): row.value.decode() for row in await registry.rows("moves.*")}


async def list_drained(registry: ClusterRegistry) -> frozenset[str]:
    """The hosts that are to give up their shards. Raises ClusterError."""
    return frozenset(decode_token(row.key.rpartition(".")[2]) for row in await registry.rows("drain.*"))


MARGIN_SHARE = 0.2
"""The part of the TTL that is kept for stopping."""
CYCLES = 3
"""How often in a TTL leases are renewed."""
LOOKS = 10
"""How often in a TTL a host looks for shards without an owner."""
SILENT = 2 / 3
"""After which part of the TTL a lease that is not renewed will probably end: the host looks more often."""
FAST_LOOKS = 40
OVERDUE = 4
"""After which part of the TTL any host takes a shard without an owner, whatever its share."""
MOST_AT_ONCE = 8
"""How many shards are given up at the same time."""


def now() -> float:
    """A clock that also counts while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ShardEvents(Struct, frozen=True, kw_only=True):
    """What the host does when it gets or loses a shard."""

    acquired: Callable[[int], Awaitable[None]]
    lost: Callable[[int], None]
    """Stop its sessions at once: another host may have it any moment."""
    release: Callable[[int], Awaitable[None]]
    """Bring its sessions into the log and forget them; the lease is given back afterwards."""
    is_busy: Callable[[int], bool]
    """Whether a turn runs in the shard."""
    announce: Callable[[], Awaitable[None]]
    """Write the row of the host. Raises ClusterError."""
    warn: Callable[[str], None]


class Held(Struct):
    """A shard that this host has."""

    lease: ShardLease
    ends_at: float
    """When this host stops acting on it, unless it is renewed."""
    is_leaving: bool = False


class Situation(Struct, frozen=True, kw_only=True):
    """What the registry says, as one host sees it."""

    host: str
    hosts: Mapping[str, HostInfo]
    taken: Collection[int]
    """The shards with an owner."""
    moves: Mapping[int, str] = {}
    drained: Collection[str] = ()
    shards: int
    unreadable: Collection[int] = ()
    """The shards with sessions that this host cannot run, and a newer one can."""
    overdue: Collection[int] = ()
    """The shards without an owner for a while: a host that counts does not claim its share."""


class ShardPlan(Struct, frozen=True):
    """What a host does next."""

    claims: list[int]
    gives: list[int]
    """The shards that it must give up."""
    spare: list[int]
    """The shards that it can give up, because any other host can have them."""
    surplus: int
    """How many of these it should give up."""


def make_plan(seen: Situation, mine: Collection[int]) -> ShardPlan:
    """The shards to claim and to give up."""
    if seen.host not in seen.hosts:  # its own row is not visible yet, which says nothing
        return ShardPlan([], [], [], 0)
    active = {name for name, info in seen.hosts.items() if not info.is_draining} - set(seen.drained)
    if seen.host not in active:
        return ShardPlan([], sorted(mine), [], 0)
    share = -(-seen.shards // len(active))
    shunned = {name: find_shunned(seen, name, active) for name in active}
    moves = {shard: host for shard, host in seen.moves.items() if host in active and shard not in shunned[host]}
    away = {shard for shard, host in moves.items() if host != seen.host} | shunned[seen.host]
    free = [shard for shard in range(seen.shards) if shard not in seen.taken and shard not in away]
    # Each host prefers others, so that two of them rarely want the same one.
    free.sort(key=lambda shard: (moves.get(shard) != seen.host, crc32(f"{seen.host}/{shard}".encode())))
    gives = sorted(shard for shard in mine if shard in away)
    wanted = sum(moves.get(shard) == seen.host for shard in free)
    room = max(share - (len(mine) - len(gives)), wanted)
    spare = sorted(set(mine).difference(moves, *shunned.values()))
    surplus = min(len(spare), max(0, len(mine) - len(gives) - share))
    return ShardPlan([*free[:room], *(shard for shard in free[room:] if shard in seen.overdue)], gives, spare, surplus)


def find_shunned(seen: Situation, host: str, active: Collection[str]) -> frozenset[int]:
    """The shards that a host leaves to newer ones. What a host of its version or a newer one cannot run, it cannot."""
    records = seen.hosts[host].records
    if all(seen.hosts[name].records <= records for name in active):
        return frozenset()
    peers = (info.newer_shards for info in seen.hosts.values() if info.records >= records)
    return frozenset(seen.unreadable if seen.hosts[seen.host].records >= records else ()).union(*peers)


def find_living(hosts: Mapping[str, HostInfo], holders: Collection[str]) -> dict[str, HostInfo]:
    """The hosts that have a shard or are new. The row of a dead host stays for a while, with the shards that it had."""
    return {name: info for name, info in hosts.items() if name in holders or not info.shards}


class ShardKeeper:
    def __init__(
        self, ownership: Ownership, registry: ClusterRegistry, host: str, clock: Callable[[], float] = now
    ) -> None:
        self.count = ownership.shards
        self.is_draining = False
        self.unreadable: set[int] = set()
        """The shards with sessions that this host cannot run, and a newer one can."""
        self._ownership = ownership
        self._registry = registry
        self._host = host
        self._now = clock
        self._ttl = ownership.ttl_seconds
        self._held: dict[int, Held] = {}
        self._claimed: set[int] = set()
        """The shards that are being claimed."""
        self._free_since: dict[int, float] = {}
        """When this host first saw a shard without an owner."""
        self._holders: frozenset[str] = frozenset()
        """The hosts that have a shard."""
        self._renewed: dict[int, tuple[int, float]] = {}
        """The last revision of each lease, and when this host first saw it."""
        self._ended: dict[int, int] = {}
        """The revisions of leases that have expired, although they are still there."""
        self._events: ShardEvents
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # What the sessions ask.

    def epoch(self, shard: int) -> int | None:
        """The epoch of a shard that this host has and keeps; None if it does not."""
        held = self._held.get(shard)
        return None if held is None or held.is_leaving else held.lease.epoch

    def may_act(self, shard: int, epoch: int) -> bool:
        """Whether the lease with an epoch holds now."""
        held = self._held.get(shard)
        return held is not None and held.lease.epoch == epoch and self._now() < held.ends_at

    def owned(self) -> list[int]:
        return sorted(shard for shard, held in self._held.items() if not held.is_leaving)

    # Run.

    async def run(self, events: ShardEvents) -> None:
        """Until it is cancelled."""
        self._events = events
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._renew_all, lambda: self._ttl / CYCLES))
            group.create_task(self._repeat(self._balance, lambda: self._ttl / CYCLES))
            group.create_task(self._repeat(self._claim_free, self._time_of_look))

    async def _repeat(self, act: Callable[[], Awaitable[None]], find_interval: Callable[[], float]) -> None:
        while True:
            started = self._now()
            try:
                await act()
            except ClusterError as exc:
                self._events.warn(f"the cluster does not answer: {exc}")
            interval = find_interval()
            await asyncio.sleep(max(interval - (self._now() - started), interval / 10))

    def _time_of_look(self) -> float:
        """In how many seconds to look for shards without an owner."""
        silent_since = self._now() - self._ttl * SILENT
        is_silent = any(at < silent_since for shard, (_, at) in self._renewed.items() if shard not in self._held)
        return self._ttl / (FAST_LOOKS if is_silent else LOOKS)

    async def _renew_all(self) -> None:
        await asyncio.gather(*(self._renew(shard) for shard in list(self._held)))

    async def _renew(self, shard: int) -> None:
        held = self._held.get(shard)
        if held is None:  # given up since
            return
        started = self._now()
        try:
            async with asyncio.timeout(self._ttl / CYCLES):
                lease = await self._ownership.renew(held.lease)
        except LeaseLost:
            self._lose(shard, held)
        except (ClusterError, TimeoutError):
            pass  # it may still be ours: until its time is up
        else:
            held.lease = lease
            if self._now() < held.ends_at:  # once stopped, it stays so: its sessions are gone
                held.ends_at = self._end_of(started)
            self._watch()

    def _end_of(self, started: float) -> float:
        return started + self._ttl * (1 - MARGIN_SHARE)

    def _watch(self) -> None:
        """Stop in time what is not renewed."""
        if self._timer is not None:
            self._timer.cancel()
        ends = min((held.ends_at for held in self._held.values()), default=None)
        if ends is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, ends - self._now()), self._expire)

    def _expire(self) -> None:
        for shard, held in list(self._held.items()):
            if self._now() >= held.ends_at:
                self._lose(shard, held)
        self._watch()

    def _lose(self, shard: int, held: Held) -> None:
        if self._held.get(shard) is held:
            del self._held[shard]
            self._events.warn(f"lost shard {shard}")
            self._events.lost(shard)

    # Balance.

    async def _balance(self) -> None:
        await self._events.announce()
        plan = make_plan(await self._look(await self._find_free()), self.owned())
        await asyncio.gather(*(self._claim(shard) for shard in plan.claims))
        leaving = sum(held.is_leaving for held in self._held.values())
        idle = [shard for shard in plan.spare if plan.surplus and not self._events.is_busy(shard)]
        gives = [*plan.gives, *idle[: plan.surplus]]
        for shard in gives[: MOST_AT_ONCE - leaving] if not self.is_draining else ():
            self._begin(self.give_up(shard))

    async def _claim_free(self) -> None:
        """Take what a host has left behind soon after its leases have ended."""
        free = await self._find_free()
        if free and not self.is_draining:
            plan = make_plan(await self._look(free), self.owned())
            await asyncio.gather(*(self._claim(shard) for shard in plan.claims))

    async def _find_free(self) -> set[int]:
        """The shards without an owner."""
        leases = await self._ownership.leases()
        self._renewed = {
            shard: seen
            if (seen := self._renewed.get(shard)) and seen[0] == lease.revision
            else (lease.revision, self._now())
            for shard, lease in leases.items()
        }
        ended = self._now() - self._ttl
        self._ended = {shard: revision for shard, (revision, at) in self._renewed.items() if at <= ended}
        running = leases.keys() - self._ended.keys()
        self._holders = frozenset(leases[shard].host for shard in running)
        free = set(range(self.count)) - running - self._held.keys()
        self._free_since = {shard: self._free_since.get(shard, self._now()) for shard in free}
        return free

    async def _look(self, free: Collection[int]) -> Situation:
        since = self._now() - self._ttl / OVERDUE
        hosts = await list_hosts(self._registry)
        return Situation(
            host=self._host,
            hosts=find_living(hosts, {*self._holders, self._host}),
            taken=frozenset(range(self.count)) - frozenset(free),
            overdue=frozenset(shard for shard, at in self._free_since.items() if at < since),
            moves=await list_moves(self._registry),
            drained=await list_drained(self._registry),
            shards=self.count,
            unreadable=frozenset(self.unreadable),
        )

    async def _claim(self, shard: int) -> None:
        if shard in self._held or shard in self._claimed or self.is_draining:
            return
        started = self._now()
        self._claimed.add(shard)  # a second claim of the same host would replace the lease of the first
        try:
            lease = await self._ownership.acquire(shard, self._host, ended=self._ended.get(shard, 0))
        finally:
            self._claimed.discard(shard)
        if lease is None:
            return
        if self.is_draining:
            await self._ownership.release(lease)
            return
        self._held[shard] = Held(lease, self._end_of(started))
        self._watch()
        self._begin(self._serve(shard))

    async def _serve(self, shard: int) -> None:
        try:
            await self._events.acquired(shard)
        except ClusterError as exc:
            self._events.warn(f"cannot load the sessions of shard {shard}: {exc}")
            await self.give_up(shard)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def give_up(self, shard: int) -> None:
        """Hand a shard over."""
        held = self._held.get(shard)
        if held is None or held.is_leaving:
            return
        held.is_leaving = True
        await self._events.release(shard)
        if self._held.get(shard) is held:
            del self._held[shard]
            with suppress(ClusterError):
                await self._ownership.release(held.lease)

    async def drain(self, seconds: float) -> None:
        """Give up all shards: at once where no turn runs, at the latest after some time where one does."""
        self.is_draining = True
        with suppress(ClusterError):
            await self._events.announce()
        deadline = self._now() + seconds
        limit = asyncio.Semaphore(MOST_AT_ONCE)

        async def leave(shard: int) -> None:
            while self._events.is_busy(shard) and self._now() < deadline and shard in self._held:  # noqa: ASYNC110  # of many turns
                await asyncio.sleep(0.05)
            async with limit:
                await self.give_up(shard)

        await asyncio.gather(*(leave(shard) for shard in list(self._held)))
        if self._tasks:
            await asyncio.wait(self._tasks)
