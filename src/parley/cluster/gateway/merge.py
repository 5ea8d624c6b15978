"""Which host serves each route of the gateway, and how the replies of all hosts become one.

    OWNER       the owner of the session in the path
    CREATE      the owner of the shard of a new session
    LOCAL       the gateway itself
    EVENTS      all hosts; their event streams are joined
    a Merge     all hosts; the function makes one reply of theirs

Together the hosts own every shard. One that does not answer is not waited for long (`merge`).
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import QueryParams

from parley.cluster.base import ClusterError, ShardLease
from parley.cluster.bridge.host import PATH
from parley.cluster.bridge.messages import OpenStream, WholeReply
from parley.cluster.gateway.router import Pauses, Router, collect_reply, unreachable
from parley.cluster.session_summaries import ClusterSession, list_summaries
from parley.gateway.http.app import read_query
from parley.gateway.http.replies import LARGEST, read_number
from parley.gateway.http.routes import Endpoint
from parley.gateway.index.session_list import SessionInfo, SessionQuery
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Scope
from parley.protocol.base import Json, Struct

FIGURES = ("input_tokens", "output_tokens", "cache_read_tokens", "turns")
LARGEST_GAUGES = frozenset({"parley_loop_lag_p99_seconds"})
"""Gauges of which the largest counts; the others are added."""

OWNER, CREATE, FORK, LOCAL, EVENTS = "owner", "create", "fork", "local", "events"
OK = 200
REPLY_SECONDS = 2.0
"""How long a list waits for the reply of a host."""
MOVE_SECONDS = 1.0
"""How long it waits for shards that move, if it has enough without them."""
INCOMPLETE = b"parley-incomplete"
LOADING = "sessions are being loaded"


class Merge(Struct, frozen=True):
    """Asks all hosts."""

    join: Callable[[Sequence[bytes], QueryParams, Sequence[ClusterSession]], bytes]
    """One body of all bodies. The registry knows the sessions that no host has loaded."""
    path: str = ""
    """What hosts are asked for, if it is not the route itself."""
    query: Callable[[QueryParams], dict[str, str]] = dict
    """The query for the hosts."""
    is_complete: Callable[[Sequence[bytes], Sequence[ClusterSession]], bool] = lambda bodies, known: True
    """Whether the hosts have loaded all that the reply needs."""


def ask_for_page(query: QueryParams) -> dict[str, str]:
    """A page of a list needs all rows before its end, because each host has only some of them."""
    end = min(LARGEST, read_number(query, "offset", 0) + read_number(query, "limit", LARGEST))
    return {**query, "offset": "0", "limit": str(end)}


def join_sessions(bodies: Sequence[bytes], query: QueryParams, known: Sequence[ClusterSession]) -> bytes:
    """The list of sessions, the last used first."""
    rows, total, loaded = list[Json](), 0, set[str]()
    for body in bodies:
        found = msgspec.json.decode(body)
        rows += found["sessions"]
        total += found["total"]
        loaded.update(found["loaded"])
    stored = [session.info for session in known if session.info is not None and session.info.id not in loaded]
    asked = read_query(query)
    more = [msgspec.to_builtins(info) for info in map(at_rest, stored) if is_listed(info, asked)]
    rows, total = rows + more, total + len(more)
    rows.sort(key=lambda row: -row["used_at"])
    start = read_number(query, "offset", 0)
    page = rows[start : start + read_number(query, "limit", LARGEST)]
    return msgspec.json.encode({"sessions": page, "total": total})


def at_rest(info: SessionInfo) -> SessionInfo:
    """A session that no host has loaded."""
    state = info.state
    if state == "running" or (state == "requires_action" and not info.open_questions):
        state = "idle"
    return msgspec.structs.replace(info, state=state, is_loaded=False, clients=0, last_line=None)


def is_listed(info: SessionInfo, query: SessionQuery) -> bool:
    text = query.search.casefold()
    is_found = not text or text in info.title.casefold() or text in info.cwd.casefold()
    return is_found and (not query.states or info.state in query.states)


def has_all_questions(bodies: Sequence[bytes], known: Sequence[ClusterSession]) -> bool:
    """Whether the hosts have loaded all sessions that wait for an answer: a new owner does so one by one."""
    loaded = {session for body in bodies for session in msgspec.json.decode(body)["loaded"]}
    return all(
        session.info.id in loaded for session in known if session.info is not None and session.info.open_questions
    )


def join_questions(bodies: Sequence[bytes], query: QueryParams, known: Sequence[ClusterSession]) -> bytes:
    """The open questions, oldest first."""
    pages = [msgspec.json.decode(body) for body in bodies]
    rows = sorted((row for page in pages for row in page["questions"]), key=lambda row: row["asked_at"])
    has_more = {"has_more": True} if any(page["has_more"] for page in pages) else {}
    return msgspec.json.encode({"questions": rows, **has_more})


def join_costs(bodies: Sequence[bytes], query: QueryParams, known: Sequence[ClusterSession]) -> bytes:
    """What all sessions cost. A model and a day are on several hosts, and so may a session be that has moved."""
    replies = [msgspec.json.decode(body) for body in bodies]
    budget = {
        "usd": next((reply["budget"]["usd"] for reply in replies), None),
        "used": max(reply["budget"]["used"] for reply in replies),  # each host knows that of all
    }
    by_day = add_rows((row for reply in replies for row in reply["by_day"]), "day")
    return msgspec.json.encode(
        {
            "by_session": most_expensive(add_rows((row for reply in replies for row in reply["by_session"]), "id")),
            "by_model": most_expensive(add_rows((row for reply in replies for row in reply["by_model"]), "model")),
            "by_day": sorted(by_day, key=lambda row: row["day"]),
            "budget": budget,
        }
    )


def add_rows(rows: Iterable[Json], key: str) -> list[Json]:
    """Rows with the same key become one, with the sums of their figures. A price that no host knows stays unknown."""
    found: dict[str, Json] = {}
    for row in rows:
        before = found.get(row[key])
        if before is None:
            found[row[key]] = dict(row)
            continue
        before.update({name: before[name] + row[name] for name in FIGURES})
        known = [usd for usd in (before["usd"], row["usd"]) if usd is not None]
        before["usd"] = sum(known) if known else None
    return list(found.values())


def most_expensive(rows: list[Json]) -> list[Json]:
    return sorted(rows, key=lambda row: -(row["usd"] or 0))


def join_metrics(bodies: Sequence[bytes], query: QueryParams, known: Sequence[ClusterSession]) -> bytes:
    """One page of Prometheus figures: counters and gauges are added."""
    heads: dict[str, list[str]] = {}
    values: dict[str, dict[str, float]] = {}
    for body in bodies:
        for line in body.decode().splitlines():
            words = line.split(" ")
            if line.startswith("#"):
                head = heads.setdefault(words[2], [])
                if line not in head:
                    head.append(line)
                continue
            series, _, value = line.rpartition(" ")
            added = values.setdefault(series.partition("{")[0], {})
            join = max if series in LARGEST_GAUGES else operator.add
            added[series] = join(added.get(series, 0.0), float(value))
    lines: list[str] = []
    for name, head in heads.items():
        lines += head
        found = values.get(name, {})
        if len(found) > 1:
            found.pop(name, None)  # a host without any writes 0 without labels
        lines += [
            f"{series} {value:.0f}" if value.is_integer() else f"{series} {value!r}" for series, value in found.items()
        ]
    return "".join(f"{line}\n" for line in lines).encode()


LIST_SESSIONS = Merge(join_sessions, f"{PATH}sessions", ask_for_page)
LIST_QUESTIONS = Merge(join_questions, f"{PATH}questions", is_complete=has_all_questions)
RULES: Mapping[str, Any] = {
    "list_sessions": LIST_SESSIONS,
    "list_questions": LIST_QUESTIONS,
    "show_costs": Merge(join_costs),
    "show_metrics": Merge(join_metrics),
    "watch_sessions": EVENTS,
    "watch_questions": EVENTS,
    "create_session": CREATE,
    "fork_session": FORK,
}
"""By the name of the handler. Of the other routes, those of a session are served by its owner."""


def find_rule(row: Endpoint) -> Any:
    """Who serves a route."""
    return RULES.get(row.name, OWNER if "{session_id}" in row.path else LOCAL)


async def read_leases(router: Router) -> dict[int, ShardLease]:
    """Raises Refusal."""
    try:
        return await router.cluster.ownership.leases()
    except ClusterError as exc:
        raise unreachable(exc) from None


def count_epochs(leases: dict[int, ShardLease]) -> dict[str, int]:
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


async def ask_all(router: Router, opened: OpenStream) -> tuple[list[WholeReply], str]:
    """Ask the hosts that own a shard now. One that does not answer is left out. Raises Refusal.

    Returns the replies, and what is not in them; empty if they are complete.
    """
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
    return came, missing


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
        replies, missing = await ask_all(router, asked)
        refused = next((reply for reply in replies if reply.status != OK), None)
        if refused is not None:
            return refused
        known = await list_known(router, opened.principal) if rule.path else []
        bodies = [reply.body for reply in replies]
        is_enough = bool(bodies) and rule.is_complete(bodies, known)
        if missing or not is_enough:
            pauses = impatient if is_enough and not must_be_complete else patient
            if await pauses.wait():
                continue
            if must_be_complete or not bodies:
                raise Refusal("no_owner", f"{missing or LOADING}; try again later")
        headers = [(b"content-type", dict(replies[0].headers)[b"content-type"])]
        if missing or not is_enough:
            headers.append((INCOMPLETE, (missing or LOADING).encode()))
        return WholeReply(OK, headers, rule.join(bodies, query, known))


async def list_known(router: Router, principal: Principal) -> list[ClusterSession]:
    """What the registry says of the sessions that a principal may see. Raises Refusal."""
    try:
        return await list_summaries(
            router.cluster.registry, None if Scope.ADMIN in principal.scopes else principal.tenant
        )
    except ClusterError as exc:
        raise unreachable(exc) from None


async def ask_host(router: Router, host: str, opened: OpenStream) -> WholeReply:
    """Raises ClusterError."""
    return await collect_reply(router.dialer, await router.dial_host(host, opened))
