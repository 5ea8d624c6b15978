"""What a cluster is built on: four narrow interfaces.

`NumberedLog` (`stores/numbered_log.py`) keeps what happened in each session, `Ownership` says which host runs a shard
of them, `Bus` carries commands to the owner and live frames to viewers, and `ClusterRegistry` is a small table
of facts that everybody may read.

See also: `nats/`, and `sql_log.py` for a log in SQL. The tests in `tests/session/cluster/` describe what every
implementation does; `tests/helpers/local_cluster.py` has one in a single process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from parley.cluster.cluster_secret import NO_SECRET, ClusterSecret
from parley.errors import ClusterError, Fenced, LogDamaged
from parley.protocol.base import Struct
from parley.stores.numbered_log import LogKey, NumberedLog, Snapshot

__all__ = ["ClusterError", "Fenced", "LogDamaged", "LogKey", "Snapshot"]


class LeaseLost(ClusterError):
    """Another host has the shard, or the lease has expired."""


class NoResponders(ClusterError):
    """No one listens to a subject at the moment. The caller may try again with the same command id."""


class ShardLease(Struct, frozen=True, kw_only=True):
    """The right to run the sessions of a shard, for a limited time."""

    shard: int
    host: str
    epoch: int
    """Rises each time that a shard gets a new owner."""
    revision: int
    """For the next compare-and-set."""


class Ownership(Protocol):
    """Who runs which shard. A lease ends `ttl_seconds` after it was last renewed."""

    ttl_seconds: float
    shards: int

    async def acquire(self, shard: int, host: str, *, ended: int = 0) -> ShardLease | None:
        """Take a shard without an owner; None if another host has it. Raises ClusterError.

        A host that has it gets a new lease and loses the old one, so that it can take its shards back after a restart.
        `ended`: the revision of a lease that the caller has not seen renewed for `ttl_seconds`. It is taken as well,
        unless it has been renewed.
        """

    async def renew(self, lease: ShardLease) -> ShardLease:
        """Raises LeaseLost, or ClusterError if it is not known whether the lease was renewed."""

    async def release(self, lease: ShardLease) -> None:
        """Give it back at once. Does nothing if the lease is lost."""

    async def leases(self) -> dict[int, ShardLease]:
        """The leases that are held, by shard. May be a moment old."""


Handler = Callable[["BusRequest"], Awaitable[None]]


class BusRequest(Struct, frozen=True):
    """A message on the bus."""

    subject: str
    data: bytes
    respond: Callable[[bytes], Awaitable[None]]
    """Sends a reply; the sender of a mere notice ignores it."""


Unsubscribe = Callable[[], Coroutine[Any, Any, None]]
"""No further message is handled. Those that arrived before are. The handler itself must not call this."""


class Bus(Protocol):
    """Messages that are not stored. Subjects are words separated by dots; `*` is one word and `>` the rest."""

    async def request(self, subject: str, data: bytes, timeout_seconds: float) -> bytes:
        """The reply of the listener. Raises NoResponders at once if there is none, ClusterError at the timeout."""

    async def publish(self, subject: str, data: bytes) -> None:
        """Send to all who listen. A message is lost if a connection breaks or a listener is too slow."""

    async def subscribe(self, subject: str, handler: Handler) -> Unsubscribe:
        """Handle messages one after the other, in the order in which one sender sent them."""

    def new_inbox(self) -> str:
        """A subject that no one else uses."""

    @property
    def max_payload_bytes(self) -> int: ...


class RegistryRow(Struct, frozen=True):
    """A value in a registry."""

    key: str
    value: bytes
    revision: int


class ClusterRegistry(Protocol):
    """A table of small values: hosts, summaries of sessions, tokens, shards that are to move.

    A key is words separated by dots, of letters, digits, `-`, `_`, `=` and `/`.
    """

    async def get(self, key: str) -> RegistryRow | None: ...

    async def put(self, key: str, value: bytes, ttl_seconds: float | None = None) -> int:
        """Set a value; returns its revision. `ttl_seconds`: delete it after this time, which is at least a second."""

    async def update(self, key: str, value: bytes, revision: int) -> int | None:
        """Set a value if its revision is the given one, 0 if it must not exist; None if it is another."""

    async def delete(self, key: str) -> None: ...

    async def rows(self, pattern: str) -> list[RegistryRow]:
        """The rows whose keys match; `*` is one word and `>` the rest."""

    def watch(self, pattern: str) -> AsyncIterator[RegistryRow | str | None]:
        """First the rows that match, then None, then every change: a row, or the key of a deleted one."""


class Cluster(Struct, frozen=True):
    """A connection to a cluster: the four interfaces together, how to close them, and what is open to others."""

    log: NumberedLog
    ownership: Ownership
    bus: Bus
    registry: ClusterRegistry
    close: Callable[[], Awaitable[None]]
    secret: ClusterSecret = NO_SECRET
    servers: Sequence[str] = ()
    """The machines that the cluster is built on; sessions must not reach them."""
    exposure: Sequence[str] = ()
    """What others on the network can read or do; warnings for the operator who starts a part of the cluster."""
