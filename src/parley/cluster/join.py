"""Connect to a cluster. The first host decides how many shards it has and how long leases last; all others follow.

The row `config.cluster` of the registry keeps both, because a host that counts shards in another way would look for a
session where it is not. It also keeps a check value of the secret of the cluster: a host with another one would take
shards that no gateway could reach.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from parley.cluster.base import Cluster, ClusterError
from parley.cluster.cluster_secret import NO_SECRET, ClusterSecret
from parley.cluster.nats import NatsAddress, NatsClusterOptions, open_nats
from parley.cluster.nats.connection import NatsConnection, find_exposure
from parley.cluster.nats.jetstream import STREAM_NOT_FOUND, JetStream, JetStreamError, StreamNames, StreamsDiffer
from parley.cluster.nats.key_value import NatsRegistry
from parley.gateway.reporting import ServerLog
from parley.protocol.base import Struct

CONFIG_KEY = "config.cluster"
SHARDS = 64
LEASE_SECONDS = 10.0
REQUEST_SECONDS = 5.0
FIRST_HOST_SECONDS = 5.0
"""How long the first host of a cluster may take between its streams and the row."""
RETRY_SECONDS = 0.1


class NoCluster(ClusterError):
    """No host has joined the cluster yet."""


class ClusterConfig(Struct, frozen=True):
    shards: int = SHARDS
    lease_seconds: float = LEASE_SECONDS
    secret_check: str = ""
    """`ClusterSecret.check_value`; empty if the cluster has no secret."""


class Wanted(Struct, frozen=True):
    """What the command line asks for; None to follow the cluster."""

    shards: int | None = None
    lease_seconds: float | None = None
    is_operator: bool = False
    """Whether it only reads and writes rows that are not signed, so that it may be without the secret."""
    is_new_secret: bool = False
    """Whether the cluster gets the given secret instead of the one that it has."""


async def join_cluster(
    address: NatsAddress,
    options: NatsClusterOptions,
    wanted: Wanted,
    secret: ClusterSecret = NO_SECRET,
    *,
    is_host: bool = False,
) -> Cluster:
    """Connect as the cluster is configured. `is_host`: configure it if no host has. Raises ClusterError."""
    secret = secret.for_cluster(options.prefix) if secret else secret
    first = ClusterConfig(wanted.shards or SHARDS, wanted.lease_seconds or LEASE_SECONDS, secret.check_value)
    deadline = time.monotonic() + FIRST_HOST_SECONDS
    while True:
        found = await find_config(address, options.prefix)
        if found is None and not is_host:
            where = address.describe()
            raise NoCluster(f"there is no cluster {options.prefix!r} on NATS at {where}; start a host first")
        used = found or first
        check_config(used, wanted)
        check_secret(used, secret, wanted)
        try:
            cluster = await open_nats(
                address, msgspec.structs.replace(options, shards=used.shards, ttl_seconds=used.lease_seconds)
            )
            break
        except StreamsDiffer:
            if found is not None or time.monotonic() > deadline:
                raise
        await asyncio.sleep(RETRY_SECONDS)  # another first host, with other settings, is about to write the row
    try:
        if found is None:
            await cluster.registry.update(CONFIG_KEY, msgspec.json.encode(first), 0)
        row = await cluster.registry.get(CONFIG_KEY)
        current = first if row is None else decode_config(row.value)
        check_config(current, Wanted(used.shards, used.lease_seconds))
        check_secret(current, secret, wanted)
        sets_secret = bool(secret) and (is_host or wanted.is_new_secret)
        if row is not None and sets_secret and current.secret_check != secret.check_value:
            changed = msgspec.structs.replace(current, secret_check=secret.check_value)
            if await cluster.registry.update(CONFIG_KEY, msgspec.json.encode(changed), row.revision) is None:
                raise ClusterError("another process has just given the cluster a secret; try again")
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
            "warning: there is no --cluster-secret: anyone who can write to NATS can make a token, and send "
            "requests as the administrator"
        )


def check_secret(found: ClusterConfig, secret: ClusterSecret, wanted: Wanted) -> None:
    """A cluster without a secret gets that of the first host that has one. Raises ClusterError."""
    if not found.secret_check or secret.check_value == found.secret_check:
        return
    if not secret and not wanted.is_operator:
        raise ClusterError("the cluster has a secret; give the same with --cluster-secret or PARLEY_CLUSTER_SECRET")
    if secret and not wanted.is_new_secret:
        raise ClusterError(
            "the given secret is not that of the cluster. To give the cluster a new one, stop its hosts and gateways "
            "and run: parley cluster sign-tokens --new-secret"
        )


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
