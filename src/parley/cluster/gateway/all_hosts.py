"""Ask all hosts. Together they own every shard; if one has no owner at the moment, wait for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import QueryParams

from parley.cluster.base import ClusterError
from parley.cluster.bridge.messages import OpenStream, WholeReply
from parley.cluster.gateway.merge import Merge
from parley.cluster.gateway.router import Pauses, Router, collect_reply, unreachable
from parley.cluster.session_summaries import ClusterSession
from parley.cluster.subjects import encode_token
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Scope

OK = 200
_sessions = msgspec.json.Decoder(ClusterSession)


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


async def merge(router: Router, rule: Merge, opened: OpenStream, query: QueryParams) -> WholeReply:
    """One reply of the replies of all hosts. Raises Refusal."""
    asked = msgspec.structs.replace(opened, path=rule.path or opened.path, query=urlencode(rule.query(query)).encode())
    pauses = Pauses(router.wait_seconds)
    while True:
        replies = await ask_all(router, asked)
        refused = next((reply for reply in replies if reply.status != OK), None)
        if refused is not None:
            return refused
        known = await list_known(router, opened.principal) if rule.path else []
        bodies = [reply.body for reply in replies]
        if rule.is_complete(bodies, known) or not await pauses.wait():
            media = dict(replies[0].headers)[b"content-type"]
            return WholeReply(OK, [(b"content-type", media)], rule.join(bodies, query, known))


async def list_known(router: Router, principal: Principal) -> list[ClusterSession]:
    """What the registry says of the sessions that a principal may see. Raises Refusal."""
    tenant = "*" if Scope.ADMIN in principal.scopes else encode_token(principal.tenant)
    found = []
    try:
        rows = await router.cluster.registry.rows(f"sessions.*.{tenant}.*")
    except ClusterError as exc:
        raise unreachable(exc) from None
    for row in rows:
        with suppress(msgspec.MsgspecError):  # a newer version wrote it
            found.append(_sessions.decode(row.value))
    return found


async def ask_host(router: Router, host: str, opened: OpenStream) -> WholeReply:
    """Raises ClusterError."""
    return await collect_reply(router.dialer, await router.dial_host(host, opened))
