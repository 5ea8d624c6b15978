"""Connect to a cluster. The first host decides how many shards it has and how long leases last; all others follow.

The row `config.cluster` of the registry keeps both, because a host that counts shards in another way would look for a
session where it is not.
"""

from __future__ import annotations

import msgspec

from parley.cluster.base import Cluster, ClusterError
from parley.cluster.cluster_secret import NO_SECRET, ClusterSecret
from parley.cluster.nats import NatsAddress, NatsClusterOptions, open_nats
from parley.cluster.nats.connection import NatsConnection, find_exposure
from parley.cluster.nats.jetstream import STREAM_NOT_FOUND, JetStream, JetStreamError
from parley.cluster.nats.registry import NatsRegistry
from parley.cluster.nats.streams import StreamNames
from parley.gateway.server_log import ServerLog
from parley.protocol.base import Struct

CONFIG_KEY = "config.cluster"
SHARDS = 64
LEASE_SECONDS = 10.0
REQUEST_SECONDS = 5.0


class NoCluster(ClusterError):
    """No host has joined the cluster yet."""


class ClusterConfig(Struct, frozen=True):
    shards: int = SHARDS
    lease_seconds: float = LEASE_SECONDS


class Wanted(Struct, frozen=True):
    """What the command line asks for; None to follow the cluster."""

    shards: int | None = None
    lease_seconds: float | None = None


async def join_cluster(
    address: NatsAddress,
    options: NatsClusterOptions,
    wanted: Wanted,
    secret: ClusterSecret = NO_SECRET,
    *,
    is_host: bool = False,
) -> Cluster:
    """Connect as the cluster is configured. `is_host`: configure it if no host has. Raises ClusterError."""
    found = await find_config(address, options.prefix)
    if found is None and not is_host:
        raise NoCluster(f"there is no cluster {options.prefix!r} on NATS at {address.describe()}; start a host first")
    first = ClusterConfig(wanted.shards or SHARDS, wanted.lease_seconds or LEASE_SECONDS)
    check_config(found or first, wanted)
    cluster = await open_nats(address, with_config(options, found or first))
    try:
        if found is None:
            await cluster.registry.update(CONFIG_KEY, msgspec.json.encode(first), 0)
            row = await cluster.registry.get(CONFIG_KEY)
            check_config(first if row is None else decode_config(row.value), Wanted(first.shards, first.lease_seconds))
        exposure = await find_exposure(address)
    except BaseException:
        await cluster.close()
        raise
    return msgspec.structs.replace(cluster, secret=secret, servers=address.hosts, exposure=exposure)


def warn_of_exposure(cluster: Cluster, log: ServerLog) -> None:
    """Say at the start what is open to others."""
    for problem in cluster.exposure:
        log.warn(f"warning: {problem}")
    if not cluster.secret:
        log.warn(
            "warning: there is no --cluster-secret: whoever can write to NATS can make a token, and send requests as "
            "the administrator"
        )


def with_config(options: NatsClusterOptions, config: ClusterConfig) -> NatsClusterOptions:
    return msgspec.structs.replace(options, shards=config.shards, ttl_seconds=config.lease_seconds)


async def find_config(address: NatsAddress, prefix: str) -> ClusterConfig | None:
    """What the first host has written; None if there was none yet. Raises ClusterError."""
    connection = NatsConnection(address, REQUEST_SECONDS)
    await connection.open()
    try:
        row = await NatsRegistry(JetStream(connection), StreamNames(prefix)).get(CONFIG_KEY)
        return None if row is None else decode_config(row.value)
    except JetStreamError as exc:
        if exc.number != STREAM_NOT_FOUND:
            raise
        return None
    finally:
        await connection.close()


def decode_config(data: bytes) -> ClusterConfig:
    """Raises ClusterError."""
    try:
        return msgspec.json.decode(data, type=ClusterConfig)
    except msgspec.MsgspecError as exc:
        raise ClusterError(f"the row {CONFIG_KEY} of the registry cannot be read: {exc}") from None


def check_config(found: ClusterConfig, wanted: Wanted) -> None:
    """Raises ClusterError."""
    if wanted.shards not in (None, found.shards):
        raise ClusterError(f"the cluster has {found.shards} shards, not {wanted.shards}; the number cannot change")
    if wanted.lease_seconds not in (None, found.lease_seconds):
        raise ClusterError(
            f"leases of the cluster last {found.lease_seconds:g} seconds, not {wanted.lease_seconds:g}; leave --ttl out"
        )
