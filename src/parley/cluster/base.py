"""What a cluster is built on: four narrow interfaces.

`Log` keeps what happened in each session, `Ownership` says which host runs a shard of them, `Bus` carries commands to
the owner and live frames to viewers, and `Registry` is a small table of facts that everybody may read. At the end is
what every implementation of `Log` checks, and the words in which it refuses.

See also: `local.py` for one process, `nats/` for many machines, `postgres_log.py` for a log in SQL. The tests in
`tests/session/cluster/` describe what every implementation does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol
from zlib import crc32

from parley.cluster.cluster_secret import NO_SECRET, ClusterSecret
from parley.errors import SessionError
from parley.protocol.base import Struct


class ClusterError(SessionError):
    """A part of the cluster does not answer, or refuses. The message names the part.

    It is not known whether a write was stored, and it is safe to write again. `error_code` is `ENOSPC` if the part is
    full.
    """


class Fenced(ClusterError):
    """Another owner has written to the session. The writer must stop: it is not the owner any more."""


class LogDamaged(ClusterError):
    """Stored messages are missing: the store was restored from an older copy, or lost them."""


class LeaseLost(ClusterError):
    """Another host has the shard, or the lease has expired."""


class NoResponders(ClusterError):
    """No one listens to a subject at the moment. The caller may try again with the same command id."""


class SessionKey(Struct, frozen=True, order=True):
    """What a session is found by. The tenant is part of it, so that tenants can be separated by subjects."""

    tenant: str
    session: str

    def shard(self, shards: int) -> int:
        return crc32(self.session.encode()) % shards


class Snapshot(Struct, frozen=True):
    """The state of a session, as its owner wrote it down."""

    sequence: int
    """The last message that it contains."""
    data: bytes


class Log(Protocol):
    """One log per session. Sequences rise, with gaps."""

    @property
    def max_message_bytes(self) -> int:
        """The longest message that `append` takes."""

    async def append(self, key: SessionKey, data: bytes, *, expected: int, message_id: str) -> int:
        """Store a message; returns its sequence when it is durable. `expected`: the sequence of the last one, or 0.

        A repeated call with the same arguments stores it once and returns the same sequence, also if others were stored
        after it. Raises Fenced if the last one is another, LogDamaged if the log ends before `expected`, ClusterError
        if it is not known whether it was stored.
        """

    def read(self, key: SessionKey, after: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the messages after a sequence, up to the last one at the time of the call.

        `after` is 0 or the sequence of a message, of a snapshot for example. Raises LogDamaged if messages are missing
        between it and the last one, ClusterError.
        """

    async def head(self, key: SessionKey) -> int:
        """The sequence of the last message, also if a snapshot has replaced it; 0 if there is none."""

    async def save_snapshot(self, key: SessionKey, snapshot: Snapshot) -> None:
        """Replace the snapshot; messages up to its sequence may be removed, but never the last one.

        An older snapshot than the stored one is ignored. Raises LogDamaged if the log ends before the snapshot, for
        example because the session was deleted, ClusterError.
        """

    async def load_snapshot(self, key: SessionKey) -> Snapshot | None:
        """The snapshot, from which `read` continues. If it finds a gap, load again: a newer one may have been saved."""

    async def delete(self, key: SessionKey) -> None:
        """Remove the messages and the snapshot of a session. Then its head is 0."""

    async def keys(self, shard: int) -> list[SessionKey]:
        """The sessions of a shard that have messages."""


class Lease(Struct, frozen=True, kw_only=True):
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

    async def acquire(self, shard: int, host: str, *, ended: int = 0) -> Lease | None:
        """Take a shard without an owner; None if another host has it. Raises ClusterError.

        A host that has it gets a new lease and loses the old one, so that it can take its shards back after a restart.
        `ended`: the revision of a lease that the caller has not seen renewed for `ttl_seconds`. It is taken as well,
        unless it has been renewed.
        """

    async def renew(self, lease: Lease) -> Lease:
        """Raises LeaseLost, or ClusterError if it is not known whether the lease was renewed."""

    async def release(self, lease: Lease) -> None:
        """Give it back at once. Does nothing if the lease is lost."""

    async def leases(self) -> dict[int, Lease]:
        """The leases that are held, by shard. May be a moment old."""


Handler = Callable[["Request"], Awaitable[None]]


class Request(Struct, frozen=True):
    """A message on the bus."""

    subject: str
    data: bytes
    respond: Callable[[bytes], Awaitable[None]]
    """Sends a reply; the sender of a mere notice ignores it."""


class Subscription(Protocol):
    async def unsubscribe(self) -> None:
        """No further message is handled. Those that arrived before are. Its own handler must not call this."""


class Bus(Protocol):
    """Messages that are not stored. Subjects are words separated by dots; `*` is one word and `>` the rest."""

    async def request(self, subject: str, data: bytes, timeout_seconds: float) -> bytes:
        """The reply of the listener. Raises NoResponders at once if there is none, ClusterError at the timeout."""

    async def request_all(self, subject: str, data: bytes, timeout_seconds: float, most: int) -> list[bytes]:
        """The replies of all who listen: up to `most`, or those that came in time."""

    async def publish(self, subject: str, data: bytes) -> None:
        """Send to all who listen. A message is lost if a connection breaks or a listener is too slow."""

    async def subscribe(self, subject: str, handler: Handler) -> Subscription:
        """Handle messages one after the other, in the order in which one sender sent them."""

    def new_inbox(self) -> str:
        """A subject that no one else uses."""

    @property
    def max_payload_bytes(self) -> int: ...


class Row(Struct, frozen=True):
    """A value in a registry."""

    key: str
    value: bytes
    revision: int


class Registry(Protocol):
    """A table of small values: hosts, summaries of sessions, tokens, shards that are to move.

    A key is words separated by dots, of letters, digits, `-`, `_`, `=` and `/`.
    """

    async def get(self, key: str) -> Row | None: ...

    async def put(self, key: str, value: bytes, ttl_seconds: float | None = None) -> int:
        """Set a value; returns its revision. `ttl_seconds`: delete it after this time, which is at least a second."""

    async def update(self, key: str, value: bytes, revision: int) -> int | None:
        """Set a value if its revision is the given one, 0 if it must not exist; None if it is another."""

    async def delete(self, key: str) -> None: ...

    async def rows(self, pattern: str) -> list[Row]:
        """The rows whose keys match; `*` is one word and `>` the rest."""

    def watch(self, pattern: str) -> AsyncIterator[Row | str | None]:
        """First the rows that match, then None, then every change: a row, or the key of a deleted one."""


class Cluster(Struct, frozen=True):
    """A connection to a cluster: the four interfaces together, how to close them, and what is open to others."""

    log: Log
    ownership: Ownership
    bus: Bus
    registry: Registry
    close: Callable[[], Awaitable[None]]
    secret: ClusterSecret = NO_SECRET
    servers: Sequence[str] = ()
    """The machines that the cluster is built on; sessions must not reach them."""
    exposure: Sequence[str] = ()
    """What others on the network can read or do; warnings for the operator who starts a part of the cluster."""


class SequenceGuard:
    """Notices a store that was restored from an older copy: it gives out sequences that were seen before."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.highest = 0
        """The highest sequence that was seen."""
        self._damage: LogDamaged | None = None

    def check(self) -> None:
        """Raises LogDamaged again if it was once: what is missing is not known, so nothing may be added to it."""
        if self._damage is not None:
            raise self._damage

    def see(self, sequence: int) -> None:
        self.highest = max(self.highest, sequence)

    def require_newer(self, sequence: int, highest: int) -> None:
        """`highest`: what was seen before the request that returned `sequence`. Raises LogDamaged."""
        if sequence <= highest:
            self._damage = LogDamaged(
                f"{self._where} has lost messages: it is at {sequence}, but {highest} was stored before. "
                "Was it restored from an older copy? Stop all hosts, check what is missing, and start them again"
            )
            raise self._damage
        self.see(sequence)


def make_refusal(where: str, key: SessionKey, head: int, expected: int) -> ClusterError:
    """Why a message that should follow `expected` was not stored. `where` names the component."""
    if head < expected:
        return make_truncated(where, key, head, expected)
    return Fenced(f"{where}: the log of session {key.session} has another writer: it ends at {head}, not at {expected}")


def make_reused_id(where: str, key: SessionKey, message_id: str) -> Fenced:
    return Fenced(f"{where}: the log of session {key.session} has another message with the id {message_id}")


def make_truncated(where: str, key: SessionKey, head: int, known: int) -> LogDamaged:
    return LogDamaged(
        f"{where} has lost messages of session {key.session}: the log ends at {head}, but {known} was stored before. "
        "Was it restored from an older copy?"
    )


def make_gap(where: str, key: SessionKey, after: int, sequence: int) -> LogDamaged:
    return LogDamaged(
        f"{where} has lost messages of session {key.session}: some are missing between {after} and {sequence}. "
        "If there is a snapshot, read from it."
    )


def make_too_long(where: str, size_bytes: int, max_bytes: int) -> ClusterError:
    return ClusterError(f"{where} takes messages of up to {max_bytes} bytes; this one has {size_bytes}")
