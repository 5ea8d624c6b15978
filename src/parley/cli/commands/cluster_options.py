"""The flags of `parley host`, `parley serve` and `parley cluster` that say where the cluster is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from parley.cli.commands.subcommand import GivenArgs
from parley.errors import InvalidArguments, UsageError
from parley.version import how_to_install

if TYPE_CHECKING:
    from parley.cluster.base import Cluster
    from parley.cluster.join import Wanted
    from parley.cluster.nats import NatsAddress, NatsClusterOptions

NATS_VARIABLE = "PARLEY_NATS"


def names_cluster(given: GivenArgs) -> bool:
    """Whether the command line or the environment says where a cluster is."""
    return given.has("nats") or bool(os.environ.get(NATS_VARIABLE))


async def connect(given: GivenArgs, *, is_host: bool = False) -> Cluster:
    """Connect to the cluster that the flags name. Raises UsageError or ClusterError."""
    try:
        from parley.cluster.join import join_cluster
    except ModuleNotFoundError as exc:
        raise UsageError(f"a cluster needs {exc.name}, which is not installed: {how_to_install('scale')}") from None
    return await join_cluster(read_address(given), read_options(given, is_host), read_wanted(given), is_host=is_host)


def read_address(given: GivenArgs) -> NatsAddress:
    """Raises InvalidArguments."""
    from parley.cluster.nats import NatsAddress

    url = given.one("nats") or os.environ.get(NATS_VARIABLE, "")
    if not url:
        raise InvalidArguments(f"option '--nats' is required, or the variable {NATS_VARIABLE}: where NATS is")
    credentials, authority = given.one("nats-credentials"), given.one("nats-ca")
    return NatsAddress(
        url=url,
        credentials_file=Path(credentials) if credentials else None,
        ca_file=Path(authority) if authority else None,
    )


def read_options(given: GivenArgs, is_host: bool) -> NatsClusterOptions:
    """Raises InvalidArguments."""
    from parley.cluster.nats import DurabilityOptions, NatsClusterOptions
    from parley.cluster.subjects import DEFAULT_PREFIX

    return NatsClusterOptions(
        prefix=given.one("cluster", DEFAULT_PREFIX),
        replicas=given.number("replicas", 1),
        durability=DurabilityOptions(
            # Whoever only looks, or passes requests on, has nothing to lose.
            accept_loss=given.has("accept-loss") or not is_host,
            states_sync_always=given.one("sync") == "always",
            monitors=tuple(given.all("nats-monitor")),
        ),
        log_address=given.one("log-database") or None,
    )


def read_wanted(given: GivenArgs) -> Wanted:
    """Raises InvalidArguments."""
    from parley.cluster.join import Wanted

    return Wanted(given.number("shards", 0) or None, float(given.number("lease-seconds", 0)) or None)
