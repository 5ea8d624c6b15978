"""The leases of shards, and the registry: buckets of small values.

The server removes a lease after the TTL. The epoch of a lease is the sequence of the message that took the shard, so it
rises also if nothing is left of the leases before. The server removes a lease when it has expired by the server's
clock, sometimes a second late, and a host takes one that it has not seen renewed for that time by its own. The time of
day plays no part.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import suppress
from weakref import WeakValueDictionary

import msgspec

from parley.cluster.base import BusRequest, ClusterError, LeaseLost, RegistryRow, ShardLease
from parley.cluster.nats.jetstream import (
    EXPECTED,
    MARKER_SECONDS,
    WRONG_LAST_SEQUENCE,
    JetStream,
    JetStreamError,
    Stored,
    StreamNames,
)
from parley.protocol.base import Struct

TTL = "Nats-TTL"
DELETED = {"KV-Operation": "DEL", TTL: f"{MARKER_SECONDS}s"}
WATCH_SECONDS = 1.0
"""How often a watcher looks without being told that something has changed."""
STORE_SECONDS = (0.1, 0.02, 0.005)
"""A watcher hears of a change when it is sent, which may be before it is stored: it looks again, last one first."""


class LeaseValue(Struct, frozen=True):
    """What the bucket has for a shard."""

    host: str
    epoch: int = 0
    """0 in the message that takes the shard: its own sequence."""


class NatsOwnership:
    def __init__(self, stream: JetStream, names: StreamNames, shards: int, ttl_seconds: float) -> None:
        self.shards = shards
        self.ttl_seconds = ttl_seconds
        self._stream = stream
        self._name = names.leases
        self._subject = names.leases_subject
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        """A lease is not renewed while it is released: of several servers, one may store the renewal afterwards."""

    async def acquire(self, shard: int, host: str, *, ended: int = 0) -> ShardLease | None:
        try:
            return await self._write(shard, LeaseValue(host), ended)
        except LeaseLost:
            held = await self._get(shard)
        if held is None and ended:  # the server has removed it since
            return await self.acquire(shard, host)
        # An earlier attempt may have been stored although its reply was lost.
        if held is None or held.host != host:
            return None
        try:
            return await self._write(shard, LeaseValue(host), held.revision)
        except LeaseLost:
            return None

    def _turn(self, shard: int) -> asyncio.Lock:
        turn = self._turns.get(shard) or asyncio.Lock()
        self._turns[shard] = turn
        return turn

    async def renew(self, lease: ShardLease) -> ShardLease:
        value = LeaseValue(lease.host, lease.epoch)
        async with self._turn(lease.shard):
            try:
                return await self._write(lease.shard, value, lease.revision)
            except LeaseLost:
                held = await self._get(lease.shard)
                if held is None or (held.host, held.epoch) != (lease.host, lease.epoch):
                    raise
            # An earlier renewal was stored although its reply was lost.
            return await self._write(lease.shard, value, held.revision)

    async def release(self, lease: ShardLease) -> None:
        async with self._turn(lease.shard):
            held = await self._get(lease.shard)
            while held is not None and held.epoch == lease.epoch:
                try:
                    # Removes this revision and no other.
                    await self._stream.call(f"STREAM.MSG.DELETE.{self._name}", {"seq": held.revision, "no_erase": True})
                except JetStreamError:
                    before, held = held, await self._get(lease.shard)
                    if held == before:
                        raise
                else:
                    # A renewal that was under way may have been stored first.
                    held = await self._get(lease.shard)

    async def leases(self) -> dict[int, ShardLease]:
        found = [self._read(message) async for message in self._stream.scan(self._name, f"{self._subject}.>")]
        return {lease.shard: lease for lease in sorted(found, key=lambda lease: (lease.shard, lease.revision))}

    async def _get(self, shard: int) -> ShardLease | None:
        message = await self._stream.get_last(self._name, f"{self._subject}.{shard}")
        return self._read(message) if message else None

    def _read(self, message: Stored) -> ShardLease:
        try:
            value = msgspec.json.decode(message.data, type=LeaseValue)
        except msgspec.DecodeError as exc:
            raise ClusterError(f"{self._stream.where}: {message.subject} is not a lease: {exc}") from None
        shard = int(message.subject.rpartition(".")[2])
        epoch = value.epoch or message.sequence
        return ShardLease(shard=shard, host=value.host, epoch=epoch, revision=message.sequence)

    async def _write(self, shard: int, value: LeaseValue, revision: int) -> ShardLease:
        """Raises LeaseLost if the shard has another revision."""
        try:
            ack = await self._stream.store(
                f"{self._subject}.{shard}", msgspec.json.encode(value), {EXPECTED: str(revision)}
            )
        except JetStreamError as exc:
            if exc.number not in WRONG_LAST_SEQUENCE:
                raise
            raise LeaseLost(f"{self._stream.where}: shard {shard} is not held by {value.host} any more") from None
        return ShardLease(shard=shard, host=value.host, epoch=value.epoch or ack.seq, revision=ack.seq)


class NatsRegistry:
    def __init__(self, stream: JetStream, names: StreamNames) -> None:
        self._stream = stream
        self._name = names.registry
        self._subject = names.registry_subject

    async def get(self, key: str) -> RegistryRow | None:
        message = await self._stream.get_last(self._name, f"{self._subject}.{key}")
        return self._read(message) if message and not is_deleted(message) else None

    async def put(self, key: str, value: bytes, ttl_seconds: float | None = None) -> int:
        headers = {} if ttl_seconds is None else {TTL: f"{max(1, math.ceil(ttl_seconds))}s"}
        return (await self._stream.store(f"{self._subject}.{key}", value, headers)).seq

    async def update(self, key: str, value: bytes, revision: int) -> int | None:
        subject = f"{self._subject}.{key}"
        if (stored := await self._update(subject, value, revision)) or revision:
            return stored
        last = await self._stream.get_last(self._name, subject)
        return await self._update(subject, value, last.sequence) if last and is_deleted(last) else None

    async def _update(self, subject: str, value: bytes, revision: int) -> int | None:
        try:
            return (await self._stream.store(subject, value, {EXPECTED: str(revision)})).seq
        except JetStreamError as exc:
            if exc.number in WRONG_LAST_SEQUENCE:
                return None
            raise

    async def delete(self, key: str) -> None:
        if await self.get(key) is not None:
            await self._stream.store(f"{self._subject}.{key}", b"", DELETED)

    async def rows(self, pattern: str) -> list[RegistryRow]:
        messages = await self._stream.read_all(self._name, f"{self._subject}.{pattern}")
        found = {message.subject: message for message in messages}
        rows = [self._read(message) for message in found.values() if not is_deleted(message)]
        return sorted(rows, key=lambda row: row.key)

    async def watch(self, pattern: str) -> AsyncIterator[RegistryRow | str | None]:
        changed = asyncio.Event()

        async def wake(_request: BusRequest) -> None:
            changed.set()

        connection = self._stream.connection
        unsubscribe = await connection.subscribe(f"{self._subject}.{pattern}", wake)
        try:
            generation = connection.generation
            rows = await self.rows(pattern)
            known = {row.key for row in rows}
            after = max((row.revision for row in rows), default=0)
            for row in rows:
                yield row
            yield None
            pauses: list[float] = []
            while True:
                changed.clear()
                found: list[RegistryRow | str] = []
                # An error is not the end: when the connection is back, what has changed in between is found.
                with suppress(ClusterError):
                    if generation == connection.generation:
                        messages = [message async for message in self._scan(pattern, after)]
                        found = [row.key if is_deleted(one) else row for one in messages for row in [self._read(one)]]
                        after = messages[-1].sequence if messages else after
                    else:
                        # Perhaps with an older copy than the one before.
                        generation, rows = connection.generation, await self.rows(pattern)
                        found = [*(known - {row.key for row in rows}), *rows]
                        after = max((row.revision for row in rows), default=0)
                for change in found:
                    yield change
                    known.discard(change) if isinstance(change, str) else known.add(change.key)
                pauses = [] if found else pauses
                with suppress(TimeoutError):
                    async with asyncio.timeout(pauses.pop() if pauses else WATCH_SECONDS):
                        await changed.wait()
                    pauses = list(STORE_SECONDS)
        finally:
            with suppress(Exception):
                await unsubscribe()

    def _scan(self, pattern: str, after: int = 0) -> AsyncIterator[Stored]:
        return self._stream.scan(self._name, f"{self._subject}.{pattern}", after)

    def _read(self, message: Stored) -> RegistryRow:
        return RegistryRow(message.subject.removeprefix(f"{self._subject}."), message.data, message.sequence)


def is_deleted(message: Stored) -> bool:
    """Whether a message says that a key was deleted, by a caller or by the server at the end of its time."""
    return "KV-Operation" in message.headers or "Nats-Marker-Reason" in message.headers
