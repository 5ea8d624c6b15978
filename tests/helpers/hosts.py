"""Hosts of a cluster in this process, and what a gateway does with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from parley.cluster.base import Cluster, ClusterError, LeaseLost, LogKey, Ownership, ShardLease
from parley.cluster.host import ClusterHost, HostSettings
from parley.cluster.host_sessions import NEW_SESSION_ID, HostedSession, NotOwner
from parley.cluster.session_log import read_log
from parley.cluster.shards import now
from parley.cluster.subjects import DEFAULT_PREFIX
from parley.gateway.hub import SERVER, HubSettings
from parley.gateway.reporting import ServerLog
from parley.gateway.session_options import SessionOptions, SessionRequest
from tests.helpers.patience import PATIENCE_SECONDS

T = TypeVar("T")


class CutOwnership:
    """Leases that a host cannot reach any more, once it is cut off."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self.ttl_seconds, self.shards = ownership.ttl_seconds, ownership.shards
        self.is_cut = False

    def _check(self) -> None:
        if self.is_cut:
            raise ClusterError("the leases do not answer")

    async def acquire(self, shard: int, host: str, *, ended: int = 0) -> ShardLease | None:
        self._check()
        return await self._ownership.acquire(shard, host, ended=ended)

    async def renew(self, lease: ShardLease) -> ShardLease:
        self._check()
        return await self._ownership.renew(lease)

    async def release(self, lease: ShardLease) -> None:
        self._check()
        await self._ownership.release(lease)

    async def leases(self) -> dict[int, ShardLease]:
        self._check()
        return await self._ownership.leases()


class RunningHost:
    """A host in a task of this process."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        name: str,
        *,
        argv: tuple[str, ...] = ("--model", "offline"),
        idle_seconds: float = 300,
        clock: Callable[[], float] = now,
    ) -> None:
        self.lines: list[str] = []
        root = folder / "root"
        root.mkdir(exist_ok=True)
        hub = HubSettings(
            state=folder / name,
            root=str(root),
            argv=argv,
            environment={"HOME": str(folder), "PATH": "/usr/bin:/bin", "IS_SANDBOX": "1"},
            idle_seconds=idle_seconds,
        )
        settings = HostSettings(name=name, hub=hub, drain_seconds=5)
        self.host = ClusterHost(cluster, DEFAULT_PREFIX, settings, ServerLog(self.lines.append), clock)
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self.host.run(self._stop))

    async def crash(self) -> None:
        """End without handing anything over; leases stay until they expire."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def drain(self) -> None:
        self._stop.set()
        await self._task

    async def wait_shards(self, count: int) -> None:
        """Wait until it owns so many shards."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.host.shards.owned()) != count:  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(0.01)

    # What a gateway asks.

    async def _retry(self, act: Callable[[], Awaitable[T]]) -> T:
        """Ask again if the host has lost the session, as a gateway does: a busy machine takes leases away."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    return await act()
                except (NotOwner, LeaseLost):
                    if self._task.done():
                        raise
                    await asyncio.sleep(0.05)

    async def create(self, session_id: str = "", tenant: str = SERVER.tenant, **options: Any) -> LogKey:
        key = LogKey(tenant, session_id or str(uuid4()))

        async def act() -> LogKey:
            async with self.host.sessions.use(key) as hosted:
                token = NEW_SESSION_ID.set(key.session)
                try:
                    if not hosted.exists:
                        self.host.hub.create(SERVER, SessionRequest(options=SessionOptions(**options)))
                finally:
                    NEW_SESSION_ID.reset(token)
                await hosted.wait_committed()
            return key

        return await self._retry(act)

    async def prompt(self, key: LogKey, text: str, uuid: str = "") -> str:
        """The id of an accepted prompt."""
        uuid = uuid or str(uuid4())
        line = msgspec.json.encode({"type": "user", "uuid": uuid, "message": {"role": "user", "content": text}})

        async def act() -> str:
            async with self.host.sessions.use(key) as hosted:
                assert hosted.live is not None
                hosted.live.prompt(SERVER, line)
                await hosted.wait_committed()
            return uuid

        return await self._retry(act)

    async def wait_for(self, key: LogKey, matches: Callable[[dict[str, Any]], bool], after: int = 0) -> dict[str, Any]:
        """The first line that matches, which is in the log."""

        async def act() -> dict[str, Any]:
            async with self.host.sessions.use(key) as hosted:
                async for line in read_lines(hosted, after):
                    if matches(line):
                        return line
            raise LeaseLost("the session has moved")

        return await self._retry(act)

    async def wait_result(self, key: LogKey, uuid: str) -> dict[str, Any]:
        """The result of the turn of a prompt."""
        return await self.wait_for(
            key, lambda line: line["type"] == "result" and uuid in line.get("user_message_uuids", ())
        )


async def read_lines(hosted: HostedSession, after: int = 0) -> AsyncIterator[dict[str, Any]]:
    """The lines of a session, each when it is committed."""
    live = hosted.live
    assert live is not None
    client = live.attach(SERVER, after, lambda line: True)
    try:
        while lines := await client.subscriber.take():
            await hosted.wait_committed()
            for _, line in lines:
                yield msgspec.json.decode(line)
    finally:
        live.detach(client)


async def find_host(hosts: list[RunningHost], key: LogKey) -> RunningHost:
    """The host that owns the session, as soon as one does."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            for running in hosts:
                shard = key.shard(running.host.shards.count)
                if running.host.shards.epoch(shard) is not None:
                    return running
            await asyncio.sleep(0.01)


async def stored_lines(cluster: Cluster, key: LogKey) -> list[dict[str, Any]]:
    """The lines of a session as its log has them."""
    loaded = await read_log(cluster.log, key)
    return [msgspec.json.decode(line.data) for line in loaded.lines]


async def stored_kinds(cluster: Cluster, key: LogKey) -> list[str]:
    """The entries of the session's own transcript."""
    loaded = await read_log(cluster.log, key)
    return [entry.kind for found in loaded.state.transcripts.values() for entry in found.entries]


@asynccontextmanager
async def started(*hosts: RunningHost) -> AsyncIterator[None]:
    """End the hosts afterwards."""
    try:
        yield
    finally:
        for running in hosts:
            with suppress(ClusterError):
                await running.crash()
