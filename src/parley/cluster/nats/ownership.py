"""The leases of shards in a bucket whose messages the server removes after the TTL.

The epoch of a lease is the sequence of the message that took the shard, so it rises also if nothing is left of the
leases before. The server removes a lease when its time is over by the server's clock, sometimes a second late, and a
host takes one that it has not seen renewed for that time by its own. The time of day plays no part.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

import msgspec

from parley.cluster.base import ClusterError, Lease, LeaseLost
from parley.cluster.nats.jetstream import EXPECTED, WRONG_LAST_SEQUENCE, JetStream, JetStreamError, Stored
from parley.cluster.nats.streams import StreamNames
from parley.protocol.base import Struct


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

    async def acquire(self, shard: int, host: str, *, ended: int = 0) -> Lease | None:
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

    async def renew(self, lease: Lease) -> Lease:
        async with self._turn(lease.shard):
            return await self._renew(lease)

    async def _renew(self, lease: Lease) -> Lease:
        value = LeaseValue(lease.host, lease.epoch)
        try:
            return await self._write(lease.shard, value, lease.revision)
        except LeaseLost:
            held = await self._get(lease.shard)
            if held is None or (held.host, held.epoch) != (lease.host, lease.epoch):
                raise
        # An earlier renewal was stored although its reply was lost.
        return await self._write(lease.shard, value, held.revision)

    async def release(self, lease: Lease) -> None:
        async with self._turn(lease.shard):
            await self._release(lease)

    async def _release(self, lease: Lease) -> None:
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

    async def leases(self) -> dict[int, Lease]:
        found = [self._read(message) async for message in self._stream.scan(self._name, f"{self._subject}.>")]
        return {lease.shard: lease for lease in sorted(found, key=lambda lease: (lease.shard, lease.revision))}

    async def _get(self, shard: int) -> Lease | None:
        message = await self._stream.get_last(self._name, f"{self._subject}.{shard}")
        return self._read(message) if message else None

    def _read(self, message: Stored) -> Lease:
        try:
            value = msgspec.json.decode(message.data, type=LeaseValue)
        except msgspec.DecodeError as exc:
            raise ClusterError(f"{self._stream.where}: {message.subject} is not a lease: {exc}") from None
        shard = int(message.subject.rpartition(".")[2])
        epoch = value.epoch or message.sequence
        return Lease(shard=shard, host=value.host, epoch=epoch, revision=message.sequence)

    async def _write(self, shard: int, value: LeaseValue, revision: int) -> Lease:
        """Raises LeaseLost if the shard has another revision."""
        try:
            ack = await self._stream.store(
                f"{self._subject}.{shard}", msgspec.json.encode(value), {EXPECTED: str(revision)}
            )
        except JetStreamError as exc:
            if exc.number not in WRONG_LAST_SEQUENCE:
                raise
            raise LeaseLost(f"{self._stream.where}: shard {shard} is not held by {value.host} any more") from None
        return Lease(shard=shard, host=value.host, epoch=value.epoch or ack.seq, revision=ack.seq)
