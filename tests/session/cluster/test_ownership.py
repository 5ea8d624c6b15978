"""What every implementation of leases does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from parley.cluster.base import LeaseLost, Ownership, ShardLease
from tests.helpers.cluster_places import ClusterPlace, eventually
from tests.helpers.local_cluster import open_local


async def acquire(ownership: Ownership, shard: int, host: str) -> ShardLease:
    lease = await ownership.acquire(shard, host)
    assert lease is not None
    return lease


async def test_one_host_has_a_shard(place: ClusterPlace) -> None:
    async with place.open(shards=8, ttl_seconds=10) as cluster, place.open() as other:
        lease = await acquire(cluster.ownership, 3, "a")

        assert (lease.shard, lease.host) == (3, "a")
        assert await cluster.ownership.acquire(3, "b") is None
        if place.kind != "local":  # where leases end with the process
            assert await other.ownership.acquire(3, "b") is None
        assert await eventually(cluster.ownership.leases) == {3: lease}
        assert (cluster.ownership.shards, cluster.ownership.ttl_seconds) == (8, 10)


async def test_one_of_many_hosts_at_the_same_time_gets_a_shard(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        found = await asyncio.gather(*(cluster.ownership.acquire(1, f"host {number}") for number in range(8)))
        assert len([lease for lease in found if lease]) == 1


async def test_a_renewed_lease_keeps_its_epoch_and_a_new_owner_has_a_higher_one(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        ownership = cluster.ownership
        first = await acquire(ownership, 1, "a")
        renewed = await ownership.renew(await ownership.renew(first))
        assert (renewed.shard, renewed.host, renewed.epoch) == (1, "a", first.epoch)
        await ownership.release(renewed)
        second = await acquire(ownership, 1, "b")
        assert second.epoch > first.epoch
    async with place.open() as cluster:
        other = await acquire(cluster.ownership, 2, "a")
        assert other.epoch > second.epoch


async def test_a_lease_that_was_renewed_without_a_reply_can_be_renewed(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        lease = await acquire(cluster.ownership, 1, "a")
        await cluster.ownership.renew(lease)  # as if its reply was lost
        assert (await cluster.ownership.renew(lease)).epoch == lease.epoch


async def test_a_lease_that_is_not_renewed_ends(place: ClusterPlace) -> None:
    async with place.open(ttl_seconds=1) as cluster:
        ownership = cluster.ownership
        lost = await acquire(ownership, 1, "a")
        kept = await acquire(ownership, 2, "a")

        async def wait_for_end() -> ShardLease | None:
            nonlocal kept
            kept = await ownership.renew(kept)
            return await ownership.acquire(1, "b")

        taken = await eventually(wait_for_end)
        assert taken.epoch > lost.epoch
        with pytest.raises(LeaseLost, match="shard 1"):
            await ownership.renew(lost)
        assert (await ownership.renew(kept)).epoch == kept.epoch
        await ownership.release(lost)
        assert (await ownership.renew(taken)).host == "b"


async def test_a_released_shard_is_free_at_once(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        ownership = cluster.ownership
        lease = await acquire(ownership, 1, "a")
        await ownership.renew(lease)
        await ownership.release(lease)
        await ownership.release(lease)

        taken = await acquire(ownership, 1, "b")
        await ownership.release(lease)
        with pytest.raises(LeaseLost):
            await ownership.renew(lease)
        assert await ownership.acquire(1, "c") is None
        assert await eventually(ownership.leases) == {1: taken}


async def test_a_shard_is_released_also_while_it_is_renewed(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        for shard in range(8):
            lease = await acquire(cluster.ownership, shard, "a")
            renewals = [asyncio.create_task(cluster.ownership.renew(lease)) for _ in range(3)]
            await cluster.ownership.release(lease)
            results = await asyncio.gather(*renewals, return_exceptions=True)
            assert [one for one in results if not isinstance(one, ShardLease | LeaseLost)] == []
            await acquire(cluster.ownership, shard, "b")


async def test_a_host_takes_its_own_shard_again_with_a_new_lease(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        first = await acquire(cluster.ownership, 1, "a")
        second = await acquire(cluster.ownership, 1, "a")

        assert second.epoch > first.epoch
        with pytest.raises(LeaseLost):
            await cluster.ownership.renew(first)
        assert (await cluster.ownership.renew(second)).epoch == second.epoch


async def test_a_lease_that_a_host_saw_end_is_taken_unless_it_was_renewed(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        ownership = cluster.ownership
        seen = await acquire(ownership, 1, "a")
        renewed = await ownership.renew(seen)
        assert await ownership.acquire(1, "b", ended=seen.revision) is None

        taken = await ownership.acquire(1, "b", ended=renewed.revision)
        assert taken is not None
        assert taken.epoch > seen.epoch
        with pytest.raises(LeaseLost):
            await ownership.renew(renewed)
        await ownership.release(taken)
        again = await ownership.acquire(1, "c", ended=taken.revision)  # the server has removed it meanwhile
        assert again is not None
        assert again.host == "c"


async def test_a_local_lease_ends_by_the_given_clock(tmp_path: Path) -> None:
    now = 100.0
    cluster = open_local(tmp_path / "cluster.db", ttl_seconds=5, clock=lambda: now)
    lease = await acquire(cluster.ownership, 1, "a")
    now += 4.9
    lease = await cluster.ownership.renew(lease)
    now += 4.9
    assert await cluster.ownership.acquire(1, "b") is None
    now += 0.1
    with pytest.raises(LeaseLost):
        await cluster.ownership.renew(lease)
    assert await cluster.ownership.leases() == {}
    assert (await acquire(cluster.ownership, 1, "b")).epoch > lease.epoch
    await cluster.close()
