"""Ask all hosts. Together they own every shard; if one has no owner at the moment, wait for it."""

from __future__ import annotations

import asyncio

from parley.cluster.base import ClusterError
from parley.cluster.bridge.messages import OpenStream, WholeReply
from parley.cluster.gateway.router import Pauses, Router, collect_reply, unreachable
from parley.gateway.refusal import Refusal


async def find_hosts(router: Router) -> dict[str, int]:
    """The hosts that own the shards, with a number that changes when one of their shards moves. Raises Refusal."""
    pauses = Pauses(router.wait_seconds)
    while True:
        try:
            leases = await router.cluster.ownership.leases()
        except ClusterError as exc:
            problem = unreachable(exc)
        else:
            if len(leases) == router.shards:
                hosts: dict[str, int] = {}
                for lease in leases.values():
                    hosts[lease.host] = hosts.get(lease.host, 0) + lease.epoch
                return hosts
            missing = router.shards - len(leases)
            problem = Refusal("no_owner", f"no host runs {missing} of {router.shards} shards; try again later")
        if not await pauses.wait():
            raise problem


async def ask_all(router: Router, opened: OpenStream) -> list[WholeReply]:
    """The replies of all hosts to a request, at a moment at which no shard moved. Raises Refusal."""
    pauses = Pauses(router.wait_seconds)
    while True:
        hosts = await find_hosts(router)
        try:
            replies = await asyncio.gather(*(ask_host(router, host, opened) for host in hosts))
        except ClusterError as exc:
            problem = unreachable(exc)
        else:
            if await find_hosts(router) == hosts:
                return replies
            problem = Refusal("no_owner", "the shards move from host to host; try again later")
        if not await pauses.wait():
            raise problem


async def ask_host(router: Router, host: str, opened: OpenStream) -> WholeReply:
    """Raises ClusterError."""
    return await collect_reply(router.dialer, await router.dial_host(host, opened))
