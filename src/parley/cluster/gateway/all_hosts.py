"""Ask all hosts. Together they own every shard. A host that does not answer is not waited for long."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import QueryParams

from parley.cluster.base import ClusterError, Lease
from parley.cluster.bridge.messages import OpenStream, WholeReply
from parley.cluster.gateway.merge import Merge
from parley.cluster.gateway.router import Pauses, Router, collect_reply, unreachable
from parley.cluster.session_summaries import ClusterSession
from parley.cluster.subjects import encode_token
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Scope
from parley.protocol.base import Struct

OK = 200
REPLY_SECONDS = 2.0
"""How long a list waits for the reply of a host."""
MOVE_SECONDS = 1.0
"""How long it waits for shards that move, if it has enough without them."""
INCOMPLETE = b"parley-incomplete"
LOADING = "sessions are being loaded"
_sessions = msgspec.json.Decoder(ClusterSession)


async def read_leases(router: Router) -> dict[int, Lease]:
    """Raises Refusal."""
    try:
        return await router.cluster.ownership.leases()
    except ClusterError as exc:
        raise unreachable(exc) from None


def count_epochs(leases: dict[int, Lease]) -> dict[str, int]:
    """The hosts that own shards, with a number that changes when one of their shards moves."""
    hosts: dict[str, int] = {}
    for lease in leases.values():
        hosts[lease.host] = hosts.get(lease.host, 0) + lease.epoch
    return hosts


async def find_hosts(router: Router) -> dict[str, int]:
    """The hosts that own the shards. Waits until each has one. Raises Refusal."""
    pauses = Pauses(router.wait_seconds)
    while True:
        try:
            leases = await read_leases(router)
        except Refusal as refusal:
            problem = refusal
        else:
            if len(leases) == router.shards:
                return count_epochs(leases)
            missing = router.shards - len(leases)
            problem = Refusal("no_owner", f"no host runs {missing} of {router.shards} shards; try again later")
        if not await pauses.wait():
            raise problem


class AllReplies(Struct, frozen=True):
    """What the hosts replied to a request."""

    replies: list[WholeReply]
    missing: str = ""
    """What is not in the replies; empty if they are complete."""


async def ask_all(router: Router, opened: OpenStream) -> AllReplies:
    """Ask the hosts that own a shard now. One that does not answer is left out. Raises Refusal."""
    leases = await read_leases(router)
    hosts = count_epochs(leases)
    asked = {host: asyncio.create_task(ask_host(router, host, opened)) for host in hosts}
    try:
        if asked:
            await asyncio.wait(asked.values(), timeout=REPLY_SECONDS)
    finally:
        for task in asked.values():
            task.cancel()
        replies = await asyncio.gather(*asked.values(), return_exceptions=True)
    came = [reply for reply in replies if isinstance(reply, WholeReply)]
    silent = [host for host, reply in zip(asked, replies, strict=True) if not isinstance(reply, WholeReply)]
    missing = ""
    if silent:
        missing = f"no reply from {', '.join(silent)}"
    elif len(leases) < router.shards:
        missing = f"no host runs {router.shards - len(leases)} of {router.shards} shards"
    elif count_epochs(await read_leases(router)) != hosts:
        missing = "the shards move from host to host"
    return AllReplies(came, missing)


async def merge(
    router: Router, rule: Merge, opened: OpenStream, query: QueryParams, *, must_be_complete: bool = False
) -> WholeReply:
    """One reply of the replies of all hosts. Raises Refusal.

    A host that does not answer is not waited for if the registry knows enough of its sessions, unless the reply must be
    complete. The header `parley-incomplete` says what is missing.
    """
    asked = msgspec.structs.replace(opened, path=rule.path or opened.path, query=urlencode(rule.query(query)).encode())
    patient, impatient = Pauses(router.wait_seconds), Pauses(MOVE_SECONDS)
    while True:
        found = await ask_all(router, asked)
        refused = next((reply for reply in found.replies if reply.status != OK), None)
        if refused is not None:
            return refused
        known = await list_known(router, opened.principal) if rule.path else []
        bodies = [reply.body for reply in found.replies]
        is_enough = bool(bodies) and rule.is_complete(bodies, known)
        if found.missing or not is_enough:
            pauses = impatient if is_enough and not must_be_complete else patient
            if await pauses.wait():
                continue
            if must_be_complete or not bodies:
                raise Refusal("no_owner", f"{found.missing or LOADING}; try again later")
        headers = [(b"content-type", dict(found.replies[0].headers)[b"content-type"])]
        if found.missing or not is_enough:
            headers.append((INCOMPLETE, (found.missing or LOADING).encode()))
        return WholeReply(OK, headers, rule.join(bodies, query, known))


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
