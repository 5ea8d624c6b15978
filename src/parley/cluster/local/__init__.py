"""A cluster in one process: for tests, and for a single machine.

`open_local` returns the four interfaces. The log and the registry are in an SQLite file and survive the process; leases
and messages on the bus do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from parley.cluster.base import Cluster
from parley.cluster.local.bus import LocalBus
from parley.cluster.local.database import LocalDatabase
from parley.cluster.local.log import LocalLog
from parley.cluster.local.ownership import LocalOwnership
from parley.cluster.local.registry import LocalRegistry

__all__ = ["LocalBus", "LocalDatabase", "LocalLog", "LocalOwnership", "LocalRegistry", "open_local"]


def open_local(
    path: Path, *, shards: int = 64, ttl_seconds: float = 10, clock: Callable[[], float] = time.monotonic
) -> Cluster:
    """Open the file, or create it. Raises ClusterError."""
    database = LocalDatabase(path)
    bus = LocalBus()
    registry = LocalRegistry(database, clock)

    async def close() -> None:
        await bus.close()
        registry.close()
        database.close()

    return Cluster(
        log=LocalLog(database, shards),
        ownership=LocalOwnership(database, shards, ttl_seconds, clock),
        bus=bus,
        registry=registry,
        close=close,
    )
