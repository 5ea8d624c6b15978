"""Clusters to run the same tests on: in one process, on a NATS server, on three of them, and with PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from parley.cluster.base import Cluster, ClusterError, Fenced, LeaseLost, LogDamaged, LogKey
from parley.cluster.nats import DurabilityOptions, NatsAddress, NatsClusterOptions, open_nats
from tests.helpers.local_cluster import open_local
from tests.helpers.patience import PATIENCE_SECONDS

POLL_SECONDS = 0.02
T = TypeVar("T")
_numbers = itertools.count(1)


class ClusterPlace:
    """A cluster with nothing in it. What is stored stays when it is opened again."""

    def __init__(
        self, kind: str, folder: Path, *, url: str = "", replicas: int = 1, log_address: str | None = None
    ) -> None:
        self.kind = kind
        self.url = url
        self.prefix = f"c{next(_numbers)}"
        self.log_address = log_address
        self._folder = folder
        self._replicas = replicas

    @asynccontextmanager
    async def open(self, *, shards: int = 8, ttl_seconds: float = 10) -> AsyncIterator[Cluster]:
        if self.kind == "local":
            cluster = open_local(self._folder / f"{self.prefix}.db", shards=shards, ttl_seconds=ttl_seconds)
        else:
            cluster = await open_nats(NatsAddress(url=self.url), self._options(shards, ttl_seconds))
        try:
            yield cluster
        finally:
            await cluster.close()

    def _options(self, shards: int, ttl_seconds: float) -> NatsClusterOptions:
        return NatsClusterOptions(
            prefix=self.prefix,
            shards=shards,
            ttl_seconds=ttl_seconds,
            replicas=self._replicas,
            durability=DurabilityOptions(accept_loss=True),
            log_address=self.log_address,
        )


def may_repeat(error: object) -> bool:
    """Whether an error says that a part did not answer, and nothing worse."""
    return isinstance(error, ClusterError) and not isinstance(error, Fenced | LogDamaged | LeaseLost)


async def eventually(call: Callable[[], Awaitable[T | None]]) -> T:
    """Repeat a call until it returns something true. A part that does not answer may come back."""
    while True:
        try:
            if found := await call():
                return found
        except ClusterError as exc:
            if not may_repeat(exc):
                raise
        await asyncio.sleep(POLL_SECONDS)


async def find_owner(cluster: Cluster, session: str, tenant: str = "") -> str:
    """The name of the host that owns a session. On a busy machine a lease can end before its host renews it."""
    shard = LogKey(tenant, session).shard(cluster.ownership.shards)

    async def find() -> str | None:
        lease = (await cluster.ownership.leases()).get(shard)
        return lease.host if lease else None

    async with asyncio.timeout(PATIENCE_SECONDS):
        return await eventually(find)
