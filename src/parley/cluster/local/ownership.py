"""The leases of shards, for hosts in one process."""

from __future__ import annotations

from collections.abc import Callable

from parley.cluster.base import Lease, LeaseLost
from parley.cluster.local.database import LocalDatabase


class LocalOwnership:
    """Leases end with the process. Epochs rise over all processes that use the file."""

    def __init__(self, database: LocalDatabase, shards: int, ttl_seconds: float, clock: Callable[[], float]) -> None:
        self.shards = shards
        self.ttl_seconds = ttl_seconds
        self._database = database
        self._clock = clock
        self._held: dict[int, tuple[Lease, float]] = {}
        """Each lease with the time at which it ends."""

    async def acquire(self, shard: int, host: str, *, ended: int = 0) -> Lease | None:
        held = self._get(shard)
        if held is not None and held.host != host and held.revision != ended:
            return None
        revision = self._database.next_revision()
        return self._put(Lease(shard=shard, host=host, epoch=revision, revision=revision))

    async def renew(self, lease: Lease) -> Lease:
        held = self._get(lease.shard)
        if held is None or held.epoch != lease.epoch:
            raise LeaseLost(f"shard {lease.shard} is held by {held.host if held else 'no host'}, not by {lease.host}")
        return self._put(
            Lease(shard=lease.shard, host=lease.host, epoch=lease.epoch, revision=self._database.next_revision())
        )

    async def release(self, lease: Lease) -> None:
        held = self._get(lease.shard)
        if held is not None and held.epoch == lease.epoch:
            del self._held[lease.shard]

    async def leases(self) -> dict[int, Lease]:
        return {shard: lease for shard in sorted(self._held) if (lease := self._get(shard))}

    def _get(self, shard: int) -> Lease | None:
        lease, end = self._held.get(shard, (None, 0.0))
        return lease if self._clock() < end else None

    def _put(self, lease: Lease) -> Lease:
        self._held[lease.shard] = lease, self._clock() + self.ttl_seconds
        return lease
