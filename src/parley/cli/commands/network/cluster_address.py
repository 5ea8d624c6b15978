"""The options that say which cluster is meant, for all commands that connect to one."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from parley.cli.commands.subcommand import GivenArgs
from parley.errors import InvalidArguments, UsageError

if TYPE_CHECKING:
    from parley.cluster.base import Cluster

NATS_VARIABLE = "PARLEY_NATS"
CREDENTIALS_VARIABLE = "PARLEY_NATS_CREDENTIALS"


def require_cluster(command: str) -> None:
    """Raises UsageError if the packages of a cluster are not installed."""
    try:
        import nats  # noqa: F401

        import parley.cluster.host_process  # noqa: F401
    except ModuleNotFoundError as exc:
        raise UsageError(
            f"`parley {command}` needs {exc.name}, which is not installed; run: pip install 'parley-agent[scale]'"
        ) from None


def read_cluster(
    given: GivenArgs, *, is_host: bool = False, is_operator: bool = False
) -> tuple[str, Callable[[], Awaitable[Cluster]]]:
    """The name of the cluster, and how to connect to it. Raises InvalidArguments."""
    from parley.cluster.cluster_secret import SECRET_VARIABLE, read_cluster_secret
    from parley.cluster.join import Wanted, join_cluster
    from parley.cluster.nats import DurabilityOptions, NatsAddress, NatsClusterOptions
    from parley.cluster.subjects import DEFAULT_PREFIX

    url = given.one("nats") or os.environ.get(NATS_VARIABLE, "")
    if not url:
        raise InvalidArguments(f"option '--nats' or the variable {NATS_VARIABLE} must name the NATS servers")
    address = NatsAddress(
        url=url,
        credentials_file=read_path(given, "nats-credentials"),
        credentials=os.environ.get(CREDENTIALS_VARIABLE, ""),
        ca_file=read_path(given, "nats-ca"),
    )
    options = NatsClusterOptions(
        prefix=given.one("prefix", DEFAULT_PREFIX),
        replicas=given.number("replicas", 1),
        durability=DurabilityOptions(
            # Only hosts write.
            accept_loss=given.has("accept-loss") or not is_host,
            states_sync_always=given.has("sync-always"),
            monitors=given.all("nats-monitor"),
        ),
        log_address=read_log_address(given.one("log")),
    )
    wanted = Wanted(
        shards=given.number("shards", 0) or None,
        lease_seconds=float(given.number("ttl", 0)) or None,
        is_operator=is_operator,
        is_new_secret=given.has("new-secret"),
    )
    secret = read_cluster_secret(given.one("cluster-secret"), os.environ.get(SECRET_VARIABLE, ""))
    return options.prefix, lambda: join_cluster(address, options, wanted, secret, is_host=is_host)


def read_path(given: GivenArgs, key: str) -> Path | None:
    return Path(given.one(key)) if given.one(key) else None


def read_log_address(given: str) -> str | None:
    """The address of a database; None for NATS. Raises InvalidArguments."""
    if given and not given.startswith(("postgres:", "postgresql://")):
        raise InvalidArguments(f"option '--log' needs postgres:DSN, not {given.partition(':')[0]!r}")
    is_url = given.startswith(("postgres://", "postgresql://"))
    return (given if is_url else given.removeprefix("postgres:")) or None
