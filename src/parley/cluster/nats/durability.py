"""Whether the settings of NATS keep what it has acknowledged.

A server acknowledges a message before it is on the disk, unless it was started with `sync_interval: always`. Then the
message survives a power failure only on other servers. A client cannot ask a server for this setting: only its
monitoring port and its system account show it. So the operator gives the address of the monitoring port, or states the
setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from parley._threads import run_in_thread
from parley.cluster.base import ClusterError
from parley.protocol.base import Struct

SAFE_REPLICAS = 3
MONITOR_SECONDS = 5


class DurabilityOptions(Struct, frozen=True, kw_only=True):
    """What the operator says about the servers."""

    accept_loss: bool = False
    states_sync_always: bool = False
    """`--sync-always`: every server has `sync_interval: always`."""
    monitors: Sequence[str] = ()
    """Addresses of monitoring ports, `http://HOST:8222`, one for each server. They are asked for the setting."""


async def check_durability(config: dict[str, Any], options: DurabilityOptions) -> str | None:
    """Why acknowledged messages could be lost; None if they are kept. `config`: the settings of the log's stream.

    Raises ClusterError if a monitoring port does not answer or contradicts `--sync-always`.
    """
    name = config["name"]
    if config.get("storage") != "file":
        return f"the stream {name} is kept in {config.get('storage')} instead of files: a restart loses it"
    if config.get("persist_mode", "default") not in ("", "default"):
        return f"the stream {name} has persist_mode {config['persist_mode']}: messages are acknowledged early"
    lazy = [monitor for monitor in options.monitors if not await read_sync_always(monitor)]
    if lazy and options.states_sync_always:
        raise ClusterError(
            f"`--sync-always` was given, but NATS at {lazy[0]} does not have `sync_interval: always`. "
            "Correct the configuration of the server or the option"
        )
    replicas = config.get("num_replicas", 1)
    if replicas >= SAFE_REPLICAS:
        return None
    if lazy:
        return f"NATS at {lazy[0]} does not have `sync_interval: always`, and {describe_replicas(name, replicas)}"
    if options.states_sync_always or options.monitors:
        return None
    return (
        f"{describe_replicas(name, replicas)}, and it is not known whether its server has `sync_interval: always`. "
        "Give --nats-monitor or --sync-always"
    )


def describe_replicas(name: str, replicas: int) -> str:
    return f"the stream {name} has {replicas} replica{'' if replicas == 1 else 's'} instead of {SAFE_REPLICAS}"


async def read_sync_always(monitor: str) -> bool:
    """Whether a server syncs every message to the disk, from its monitoring port. Raises ClusterError."""
    from urllib.request import urlopen

    def fetch() -> bytes:
        with urlopen(f"{monitor.rstrip('/')}/varz", timeout=MONITOR_SECONDS) as reply:
            return bytes(reply.read())

    if not monitor.startswith(("http://", "https://")):
        raise ClusterError(f"the address of a monitoring port begins with http:// or https://, not {monitor!r}")
    try:
        settings = msgspec.json.decode(await run_in_thread(fetch), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as exc:
        raise ClusterError(f"the monitoring port of NATS at {monitor} does not answer: {exc}") from None
    return bool(settings.get("jetstream", {}).get("config", {}).get("sync_always"))
