"""What a host says of itself in the registry, and what operators say to hosts."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from parley.cluster.base import Registry
from parley.cluster.subjects import decode_token, encode_token
from parley.protocol.base import Struct


class HostInfo(Struct, frozen=True, kw_only=True):
    """A host that lives. Its row disappears when it has not renewed it for the TTL of a lease."""

    name: str
    life: str = ""
    """The id of its process. A host that is started again has another one."""
    version: str
    """The release of Parley."""
    records: int
    """The newest version of records that it can read."""
    shards: list[int]
    sessions: int
    """How many it has loaded."""
    turns: int
    """How many turns run."""
    lag_seconds: float = 0.0
    """Delay of its event loop, 99th percentile."""
    waiting_writes: int = 0
    """How many sessions wait for the log, which does not answer."""
    is_draining: bool = False
    workspace: str = ""
    """The address of its workspace service, if it has one."""
    unreadable: dict[str, str] = {}
    """Sessions that it cannot run, and why: their logs are damaged, or only a newer host can read them."""
    newer_shards: list[int] = []
    """The shards with sessions that only a newer host can read."""
    secret_check: str = ""
    """`ClusterSecret.check_value` of its secret."""
    at: float = 0.0
    """When it wrote this, by its own clock."""


def host_key(name: str) -> str:
    return f"hosts.{encode_token(name)}"


def drain_key(name: str) -> str:
    """A row that makes a host give up its shards, for as long as it exists."""
    return f"drain.{encode_token(name)}"


def move_key(shard: int) -> str:
    """A row with the name of the host that is to run a shard."""
    return f"moves.{shard}"


async def list_hosts(registry: Registry) -> dict[str, HostInfo]:
    """The hosts that live, by name. Raises ClusterError."""
    found: dict[str, HostInfo] = {}
    for row in await registry.rows("hosts.*"):
        with suppress(msgspec.MsgspecError):
            info = msgspec.json.decode(row.value, type=HostInfo)
            found[info.name] = info
    return found


async def list_moves(registry: Registry) -> dict[int, str]:
    """Which host is to run which shard. Raises ClusterError."""
    return {int(row.key.rpartition(".")[2]): row.value.decode() for row in await registry.rows("moves.*")}


async def list_drained(registry: Registry) -> frozenset[str]:
    """The hosts that are to give up their shards. Raises ClusterError."""
    return frozenset(decode_token(row.key.rpartition(".")[2]) for row in await registry.rows("drain.*"))
