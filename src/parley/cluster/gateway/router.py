"""Find the owner of a session and pass requests on to it.

There is no routing table: a request goes to the subject of the session, where only the owner of its shard listens. If
no one does, or the owner dies, the request is sent again with the same command id until another host has the shard.
"""

from __future__ import annotations

import asyncio
import logging
import time
from uuid import uuid4

from parley.cluster.base import Cluster, ClusterError, LogKey, NoResponders
from parley.cluster.bridge.gateway import Dialer, GatewayStream, NotServed, StreamLost
from parley.cluster.bridge.messages import BodyPart, Headers, OpenStream, ReplyHead, WholeReply
from parley.cluster.subjects import command_subject, encode_token, host_subject, parse_session_tokens
from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Scope

GRACE_SECONDS = 5.0
"""How long after a lease has expired another host may take to acquire it and load the session."""
FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.2
SETTLED_SECONDS = 1.0
"""A stream that was open for so long was not refused: what ends it is another problem than the one before."""
MOST_ATTEMPTS = 5
"""How often a session may move while it is asked."""
MOST_FAILED_HOSTS = 2
"""How many hosts may die while they handle the same thing."""
MOST_TENANTS = 10_000
logger = logging.getLogger(__name__)
FORWARDED = frozenset({b"host", b"last-event-id", b"content-type", b"x-forwarded-prefix"})
"""The headers that the routes of a host read."""


class Router:
    def __init__(self, cluster: Cluster, prefix: str, dialer: Dialer) -> None:
        self.cluster = cluster
        self.dialer = dialer
        self._prefix = prefix
        self._tenants: dict[str, str] = {}
        """The tenants of sessions that administrators use."""

    @property
    def shards(self) -> int:
        return self.cluster.ownership.shards

    @property
    def wait_seconds(self) -> float:
        """How long a session may be without an owner."""
        return self.cluster.ownership.ttl_seconds + GRACE_SECONDS

    def new_session(self, principal: Principal, beside: str = "") -> LogKey:
        """The key of a session that is to be created. `beside`: a session whose shard it gets."""
        while True:
            key = LogKey(principal.tenant, str(uuid4()))
            if not beside or key.shard(self.shards) == LogKey("", beside).shard(self.shards):
                return key

    async def find_key(self, principal: Principal, session: str) -> LogKey:
        """The key of a session. An administrator may use those of other tenants. Raises Refusal."""
        if Scope.ADMIN not in principal.scopes:
            return LogKey(principal.tenant, session)
        tenant = self._tenants.get(session)
        if tenant is None:
            shard = LogKey("", session).shard(self.shards)
            try:
                rows = await self.cluster.registry.rows(f"sessions.{shard}.*.{encode_token(session)}")
            except ClusterError as exc:
                raise unreachable(exc) from None
            if not rows:
                return LogKey(principal.tenant, session)
            tenant = parse_session_tokens(rows[0].key).tenant
            if len(self._tenants) >= MOST_TENANTS:
                self._tenants.clear()
            self._tenants[session] = tenant
        return LogKey(tenant, session)

    async def dial_owner(self, opened: OpenStream) -> GatewayStream:
        """Open a stream to the owner of a session. Raises Refusal if there is none for too long."""
        assert opened.key is not None
        subject = command_subject(self._prefix, opened.key, self.shards)
        missing = f"no host runs shard {opened.key.shard(self.shards)} at the moment"
        pauses, problem = Pauses(self.wait_seconds), Refusal("no_owner", missing)
        is_repeated = False
        while True:
            try:
                stream = await self.dialer.dial(subject, opened)
                stream.is_repeated = is_repeated
                return stream
            except (NoResponders, NotServed) as exc:
                is_repeated = is_repeated or isinstance(exc, NotServed)
                why = f" ({exc})" if isinstance(exc, NotServed) else ""
                problem = Refusal("no_owner", f"{missing}{why}; try again later")
            except ClusterError as exc:
                is_repeated = True
                problem = unreachable(exc)
            if not await pauses.wait():
                logger.warning("%s %s is refused: %s", opened.method, opened.path, problem)
                raise problem

    async def dial_host(self, host: str, opened: OpenStream) -> GatewayStream:
        """Open a stream to a host. Raises ClusterError."""
        return await self.dialer.dial(host_subject(self._prefix, host), opened)

    async def call(self, opened: OpenStream) -> WholeReply:
        """The reply of the owner of a session to a request. Raises Refusal."""
        pauses, attempts, lost, failed = Pauses(self.wait_seconds), 0, "", FailedHosts()
        while True:
            stream = await self.dial_owner(opened)
            started = time.monotonic()
            try:
                reply = await collect_reply(self.dialer, stream)
            except StreamLost as exc:
                lost = str(exc)
                failed.add(stream, opened)
            else:
                if (lost or stream.is_repeated) and opened.method == "DELETE" and reply.status == 404:
                    return WholeReply(204, [])  # the attempt whose reply was lost has deleted it
                return reply
            attempts += time.monotonic() - started > SETTLED_SECONDS
            if attempts > MOST_ATTEMPTS or not await pauses.wait(worked=True):
                raise Refusal("no_owner", f"the session has moved too often while it was asked, the last time: {lost}")


class FailedHosts:
    """The hosts that died, or hung until another took over, while they did the same thing: perhaps because of it."""

    def __init__(self) -> None:
        self._inboxes: set[str] = set()

    def add(self, stream: GatewayStream, opened: OpenStream) -> None:
        """Raises Refusal if no other host should try."""
        if stream.is_host_lost:
            self._inboxes.add(stream.peer)
        if len(self._inboxes) >= MOST_FAILED_HOSTS:
            what = f"{opened.method} {opened.path}" if opened.kind == "http" else "a message on the WebSocket"
            text = f"{len(self._inboxes)} hosts failed while they handled {what}; it is not sent to another one"
            logger.warning("%s (token %r, session %s)", text, opened.principal.name, opened.key and opened.key.session)
            raise Refusal("hosts_failed", text)

    def clear(self) -> None:
        self._inboxes.clear()


class Pauses:
    """Waits between attempts, longer each time, until a deadline. An attempt that has worked sets it anew."""

    def __init__(self, seconds: float) -> None:
        self._limit_seconds = seconds
        self._start()

    def _start(self) -> None:
        self._resumed_at = time.monotonic()
        self._deadline = self._resumed_at + self._limit_seconds
        self._seconds = FIRST_PAUSE_SECONDS

    async def wait(self, *, worked: bool = False) -> bool:
        """False if the deadline has come. `worked`: whether the last attempt had started to do what it was for."""
        if worked and time.monotonic() - self._resumed_at > SETTLED_SECONDS:
            self._start()
        if time.monotonic() + self._seconds > self._deadline:
            return False
        await asyncio.sleep(self._seconds)
        self._seconds = min(2 * self._seconds, LONGEST_PAUSE_SECONDS)
        self._resumed_at = time.monotonic()
        return True


async def collect_reply(dialer: Dialer, stream: GatewayStream) -> WholeReply:
    """The whole reply on a stream, which is then closed. Raises StreamLost."""
    head, parts = ReplyHead(500, []), list[bytes]()
    try:
        while True:
            match content := await stream.receive():
                case WholeReply():
                    return content
                case ReplyHead():
                    head = content
                case BodyPart():
                    parts.append(content.data)
                    if not content.has_more:
                        return WholeReply(head.status, head.headers, b"".join(parts))
                    await stream.credit(content)
    finally:
        await dialer.hang_up(stream)


def select_headers(headers: Headers) -> Headers:
    """Those that a host needs. Tokens stay in the gateway."""
    return [(name, value) for name, value in headers if name in FORWARDED]


def unreachable(exc: ClusterError) -> Refusal:
    """What a client is told if a part of the cluster does not answer."""
    return Refusal("cluster_unavailable", f"{exc}; try again later")
