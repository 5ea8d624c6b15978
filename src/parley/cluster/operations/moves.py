"""Drain a host, or move a shard to another one. The hosts do it; these functions ask for it and wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from parley.cluster.base import Cluster, ClusterError, SessionKey
from parley.cluster.host_info import drain_key, list_hosts, move_key
from parley.errors import UsageError

POLL_SECONDS = 0.1


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
        return SessionKey("", word).shard(shards)
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
