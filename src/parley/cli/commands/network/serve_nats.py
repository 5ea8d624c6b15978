"""`parley serve --nats`: a gateway of a cluster, without sessions and files of its own."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from parley.cli.commands.catalog import CLUSTER_FLAGS
from parley.cli.commands.network.cluster_address import read_cluster, require_cluster
from parley.cli.commands.subcommand import GivenArgs
from parley.cli.process_secrets import erase
from parley.errors import InvalidArguments

if TYPE_CHECKING:
    from parley.gateway.reporting import ServerLog
    from parley.gateway.server import ServerSettings

OF_HOSTS = (
    "root",
    "state",
    "isolation",
    "idle-seconds",
    "question-seconds",
    "drain-seconds",
    "no-wire-log",
    "notify-url",
    "notify-secret-file",
    "notify-command",
)
"""Options that concern sessions. In a cluster, hosts run them."""


def check_flags(given: GivenArgs) -> None:
    """Raises InvalidArguments if options are given that do not fit together."""
    if given.has("nats"):
        for name in OF_HOSTS:
            if given.has(name):
                raise InvalidArguments(f"option '--{name}' cannot be used with '--nats': give it to `parley host`")
        if given.option_words:
            raise InvalidArguments(
                f"{given.option_words[0]!r} cannot be used with '--nats': give session options to `parley host`"
            )
        return
    for flag in CLUSTER_FLAGS:
        if given.has(flag.key):
            raise InvalidArguments(f"option '--{flag.key}' needs '--nats'")


def serve_nats(given: GivenArgs, settings: ServerSettings, log: ServerLog) -> int:
    """Raises UsageError, ClusterError."""
    require_cluster("serve --nats")
    from parley.cluster.gateway.server import run_cluster_gateway

    gc.enable()  # main() disabled it, but a server runs for long
    prefix, connect = read_cluster(given)
    erase()
    return run_cluster_gateway(connect, prefix, settings, log)
