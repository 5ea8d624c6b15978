"""A cluster on NATS JetStream: `open_nats` connects and returns the four interfaces.

`connection.py` is the connection, `jetstream.py` reads and writes streams, `streams.py` has their settings, and
`durability.py` checks that they keep what was acknowledged.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from parley.cluster.base import Cluster, ClusterError
from parley.cluster.nats.connection import NatsAddress, NatsConnection
from parley.cluster.nats.jetstream import DurabilityOptions, JetStream, StreamNames, check_durability, create_streams
from parley.cluster.nats.key_value import NatsOwnership, NatsRegistry
from parley.cluster.nats.log import NatsLog
from parley.cluster.sql_log import PostgresConnections
from parley.cluster.subjects import DEFAULT_PREFIX
from parley.protocol.base import Struct
from parley.stores.numbered_log import NumberedLog

__all__ = ["DurabilityOptions", "NatsAddress", "NatsClusterOptions", "check_durability", "open_nats"]
MAX_REQUEST_SECONDS = 2.5
"""A reply may be lost when a leader dies. It is safe to ask again."""


class NatsClusterOptions(Struct, frozen=True, kw_only=True):
    """What all hosts and gateways of a cluster have in common."""

    prefix: str = DEFAULT_PREFIX
    """The name of the cluster: several can use the same servers."""
    shards: int = 64
    ttl_seconds: float = 10
    replicas: int = 1
    """Of streams that are created; existing ones are not changed."""
    durability: DurabilityOptions = DurabilityOptions()
    log_address: str | None = None
    """`postgres://…` to keep the logs of sessions there instead of on NATS."""


async def open_nats(address: NatsAddress, options: NatsClusterOptions) -> Cluster:
    """Connect, create the streams, and check their settings. Raises ClusterError."""
    # A renewal of a lease must fail in time to be repeated.
    timeout_seconds = min(MAX_REQUEST_SECONDS, options.ttl_seconds / 2)
    connection = NatsConnection(address, timeout_seconds)
    log: NumberedLog
    async with AsyncExitStack() as opened:
        opened.push_async_callback(connection.close)
        await connection.open()
        stream, names = JetStream(connection), StreamNames(options.prefix)
        config = await create_streams(stream, names, options.replicas, options.ttl_seconds)
        if options.log_address is None:
            log = NatsLog(stream, names, options.shards)
            reason = await check_durability(config, options.durability)
        else:
            connections = PostgresConnections(options.log_address, timeout_seconds)
            opened.push_async_callback(connections.close)
            reason = await connections.open()
            log = connections.open_log(options.shards)
        if reason is not None and not options.durability.accept_loss:
            raise ClusterError(
                f"acknowledged messages could be lost: {reason}. To start all the same, give --accept-loss"
            )
        return Cluster(
            log=log,
            ownership=NatsOwnership(stream, names, options.shards, options.ttl_seconds),
            bus=connection,
            registry=NatsRegistry(stream, names),
            close=opened.pop_all().aclose,
        )
