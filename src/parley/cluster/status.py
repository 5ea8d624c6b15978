"""The state of a cluster at a glance, from its registry and its leases; how to drain a host or move a shard.

    status = await read_status(cluster)

Nothing here asks a host: one that hangs is shown as missing, not waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

from parley.cluster.base import Cluster, ClusterError, LogKey, ShardLease
from parley.cluster.join import CONFIG_KEY, decode_config
from parley.cluster.session_summaries import ClusterSession, list_summaries
from parley.cluster.shards import HostInfo, drain_key, list_drained, list_hosts, list_moves, move_key
from parley.cluster.takeovers import list_stopped
from parley.errors import UsageError
from parley.protocol.base import Struct

LIVE, DRAINING, MISSING = "live", "draining", "missing"
POLL_SECONDS = 0.1


class HostStatus(Struct, frozen=True, kw_only=True):
    name: str
    state: str
    """`live`, `draining`, or `missing`: it holds leases that have not ended, but does not renew its row."""
    version: str = ""
    records: int = 0
    """The newest version of records that it can read."""
    shards: int
    sessions: int = 0
    """How many it has loaded."""
    turns: int = 0
    lag_seconds: float = 0.0
    waiting_writes: int = 0
    workspace: str = ""


class LeaseStatus(Struct, frozen=True, kw_only=True):
    shard: int
    host: str
    epoch: int
    moves_to: str = ""
    """The host that an operator wants it on."""


class ClusterStatus(Struct, frozen=True, kw_only=True):
    shards: int
    lease_seconds: float
    hosts: list[HostStatus]
    leases: list[LeaseStatus]
    unowned_shards: list[int]
    sessions: int
    sessions_with_work: int
    """Those that have unfinished prompts or open questions."""
    open_questions: int
    newer_sessions: dict[str, str]
    """Sessions that only a newer host can run, and why."""
    stopped_sessions: dict[str, str] = {}
    """Sessions that take no prompts because hosts died of them, and why."""
    has_secret: bool = False
    """Whether tokens and requests are signed."""
    problems: list[str]
    """What an operator should look at."""


async def read_status(cluster: Cluster) -> ClusterStatus:
    """Raises ClusterError."""
    ownership, registry = cluster.ownership, cluster.registry
    row = await registry.get(CONFIG_KEY)
    return summarize(
        await list_hosts(registry),
        await ownership.leases(),
        await list_summaries(registry),
        Settings(
            shards=ownership.shards,
            lease_seconds=ownership.ttl_seconds,
            moves=await list_moves(registry),
            drained=await list_drained(registry),
            stopped=await list_stopped(registry),
            secret_check="" if row is None else decode_config(row.value).secret_check,
        ),
    )


class Settings(Struct, frozen=True, kw_only=True):
    """What was set for the cluster, once or by an operator."""

    shards: int
    lease_seconds: float
    moves: Mapping[int, str] = {}
    drained: frozenset[str] = frozenset()
    stopped: Mapping[str, str] = {}
    secret_check: str = ""


def summarize(
    hosts: Mapping[str, HostInfo],
    leases: Mapping[int, ShardLease],
    sessions: Iterable[ClusterSession],
    settings: Settings,
) -> ClusterStatus:
    """Combine what the registry and the leases say."""
    owners = [lease.host for lease in leases.values()]
    found = [
        describe_host(name, hosts.get(name), owners.count(name), name in settings.drained)
        for name in sorted({*hosts, *owners})
    ]
    unowned = [shard for shard in range(settings.shards) if shard not in leases]
    newer = {session: why for info in hosts.values() for session, why in info.unreadable.items()}
    listed = list(sessions)
    return ClusterStatus(
        shards=settings.shards,
        lease_seconds=settings.lease_seconds,
        hosts=found,
        leases=[
            LeaseStatus(shard=shard, host=lease.host, epoch=lease.epoch, moves_to=settings.moves.get(shard, ""))
            for shard, lease in sorted(leases.items())
        ],
        unowned_shards=unowned,
        sessions=len(listed),
        sessions_with_work=sum(one.has_work for one in listed),
        open_questions=sum(one.info.open_questions for one in listed if one.info is not None),
        newer_sessions=newer,
        stopped_sessions=dict(settings.stopped),
        has_secret=bool(settings.secret_check),
        problems=[
            *find_problems(found, unowned, newer, settings),
            *(
                f"host {name} does not have the secret of the cluster, so that no gateway reaches its sessions"
                for name, info in sorted(hosts.items())
                if info.secret_check != settings.secret_check
            ),
        ],
    )


def describe_host(name: str, info: HostInfo | None, shards: int, is_drained: bool) -> HostStatus:
    if info is None:
        return HostStatus(name=name, state=MISSING, shards=shards)
    state = DRAINING if info.is_draining or is_drained else LIVE
    said = {field: getattr(info, field) for field in HostStatus.__struct_fields__ if field not in ("state", "shards")}
    return HostStatus(state=state, shards=shards, **said)


def find_problems(
    hosts: list[HostStatus], unowned: list[int], newer: Mapping[str, str], settings: Settings
) -> list[str]:
    found = [
        f"host {host.name} is missing: it does not renew {host.shards} leases, which end soon"
        for host in hosts
        if host.state == MISSING
    ]
    found += [
        f"{host.waiting_writes} sessions of host {host.name} wait for the log" for host in hosts if host.waiting_writes
    ]
    if not any(host.state == LIVE for host in hosts):
        found.append("no host is live; start one with `parley host`")
    if unowned:
        found.append(f"{len(unowned)} of {settings.shards} shards have no owner; hosts claim them within seconds")
    if newer:
        found.append(f"{len(newer)} sessions wait for a host of a newer version")
    found += settings.stopped.values()
    return found


async def drain_host(cluster: Cluster, host: str, wait_seconds: float) -> int:
    """Ask a host to finish its turns and give its shards up; returns how many. Raises UsageError, ClusterError."""
    await require_host(cluster, host)
    owned = [shard for shard, lease in (await cluster.ownership.leases()).items() if lease.host == host]
    await cluster.registry.put(drain_key(host), b"{}")
    await wait_for_owner(cluster, owned, lambda owner: owner != host, wait_seconds)
    return len(owned)


async def cancel_drain(cluster: Cluster, host: str) -> None:
    """Let a host that was drained take shards again. Raises UsageError, ClusterError."""
    await require_host(cluster, host)
    await cluster.registry.delete(drain_key(host))


async def move_shard(cluster: Cluster, shard: int, host: str, wait_seconds: float) -> None:
    """Pin a shard to a host, which gets it from its owner. Raises UsageError, ClusterError."""
    await require_host(cluster, host)
    await cluster.registry.put(move_key(shard), host.encode())
    await wait_for_owner(cluster, [shard], lambda owner: owner == host, wait_seconds)


async def cancel_move(cluster: Cluster, shard: int) -> None:
    """Let the hosts balance a shard again. Raises ClusterError."""
    await cluster.registry.delete(move_key(shard))


def find_shard(cluster: Cluster, word: str) -> int:
    """The shard that a word names: its number, or a session in it. Raises UsageError."""
    shards = cluster.ownership.shards
    if not word.isdigit():
        return LogKey("", word).shard(shards)
    if int(word) >= shards:
        raise UsageError(f"there is no shard {word}; the cluster has {shards}, from 0 to {shards - 1}")
    return int(word)


async def require_host(cluster: Cluster, host: str) -> None:
    """Raises UsageError if the cluster does not know a host."""
    known = await list_hosts(cluster.registry)
    if host not in known:
        raise UsageError(f"the cluster has no live host {host!r} (it has: {', '.join(sorted(known)) or 'none'})")


async def wait_for_owner(
    cluster: Cluster, shards: list[int], is_right: Callable[[str], bool], wait_seconds: float
) -> None:
    """Wait until all the shards have the owner that is wanted. Raises ClusterError."""
    deadline = time.monotonic() + wait_seconds
    while True:
        leases = await cluster.ownership.leases()
        owners = {shard: leases[shard].host if shard in leases else "" for shard in shards}
        wrong = [shard for shard, owner in owners.items() if not owner or not is_right(owner)]
        if not wrong:
            return
        if time.monotonic() > deadline:
            raise ClusterError(
                f"after {wait_seconds:g} seconds, {len(wrong)} of {len(shards)} shards have not moved; "
                "the hosts still try (see `parley cluster status`)"
            )
        await asyncio.sleep(POLL_SECONDS)
