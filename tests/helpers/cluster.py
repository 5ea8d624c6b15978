"""A cluster in this process: hosts and gateways on one bus, with real HTTP on loopback."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from parley.cluster.base import Cluster
from parley.cluster.gateway.app import ClusterGateway
from parley.cluster.host import ClusterHost, HostSettings
from parley.cluster.takeovers import read_work
from parley.gateway.hub import HubSettings
from parley.gateway.reporting import ServerLog
from parley.gateway.server import ListenAddress, ServerSettings, listen
from tests.helpers.cluster_places import find_owner
from tests.helpers.gateway import Server
from tests.helpers.local_cluster import open_local
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.ports import free_port

PREFIX = "parley"
TOKEN = "a token for the administrator"
TTL_SECONDS = 1.0
PATIENT_TTL_SECONDS = 10.0
"""For tests in which no host dies alone, and one process does all the work."""
SHARDS = 8
KILL_SECONDS = 2.5
"""How long all hosts live before the next one is killed."""
POLL_SECONDS = 0.05


class LocalHost:
    """A host that can be killed."""

    def __init__(self, cluster: Cluster, name: str, hub: HubSettings, **settings: Any) -> None:
        self.name = name
        all_settings = HostSettings(name=name, hub=hub, drain_seconds=5, **settings)
        self.log: list[str] = []
        self.host = ClusterHost(cluster, PREFIX, all_settings, ServerLog(self.log.append))
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.host.start()
        self._running = asyncio.create_task(self.host.run(self._stop))

    async def stop(self) -> None:
        """Drain and end."""
        self._stop.set()
        await self._end()

    async def kill(self) -> None:
        """End without a word to anybody: its leases stay until they expire."""
        assert self._running is not None
        self._running.cancel()
        await self._end()

    async def _end(self) -> None:
        assert self._running is not None
        await asyncio.gather(self._running, return_exceptions=True)


class ClusterServer(Server):
    """A gateway of a cluster, with the methods of a `parley serve` (`tests/helpers/gateway.py`)."""

    def __init__(self, cluster: Cluster, folder: Path, root: Path, port: int = 0) -> None:
        self.root = root
        self.folder = folder
        address = ListenAddress.parse(f"127.0.0.1:{port}")
        hub = HubSettings(state=folder, root=str(root))
        settings = ServerSettings(hub=hub, address=address, token=TOKEN)
        self.stderr = []
        self._gateway = ClusterGateway(cluster, PREFIX, settings, TOKEN, ServerLog(self.stderr.append))
        self._listener = listen(address)
        self.port = self._listener.getsockname()[1]

    @property
    def token(self) -> str:
        return TOKEN

    async def start(self) -> None:
        await self._gateway.start(self._listener)

    async def stop(self) -> None:
        await self._gateway.stop()
        self._listener.close()


class LocalCluster:
    def __init__(
        self,
        folder: Path,
        *options: str,
        root: Path | None = None,
        environment: Mapping[str, str] | None = None,
        ttl_seconds: float = TTL_SECONDS,
        idle_seconds: float = 300,
    ) -> None:
        """`options`: of new sessions."""
        self._idle_seconds = idle_seconds
        self.folder = folder
        self.root = root or folder / "root"
        self.root.mkdir(exist_ok=True)
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
            **(environment or {}),
        }
        self.cluster = open_local(folder / "cluster.db", shards=SHARDS, ttl_seconds=ttl_seconds)
        self.hosts: dict[str, LocalHost] = {}
        self._options = options
        self._gateways: list[ClusterServer] = []

    async def add_host(self, name: str, **settings: Any) -> LocalHost:
        """`settings`: further ones of a host."""
        hub = HubSettings(
            state=self.folder / name,
            root=str(self.root),
            argv=self._options or ("--model", "offline"),
            environment=self._environment,
            idle_seconds=self._idle_seconds,
        )
        host = self.hosts[name] = LocalHost(self.cluster, name, hub, **settings)
        await host.start()
        return host

    async def add_gateway(self, port: int = 0) -> ClusterServer:
        gateway = ClusterServer(self.cluster, self.folder, self.root, port)
        self._gateways.append(gateway)
        await gateway.start()
        return gateway

    async def find_owner(self, session: str) -> LocalHost:
        return self.hosts[await find_owner(self.cluster, session)]

    async def wait_balanced(self) -> None:
        """Wait until all hosts have the same number of shards."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                owners = Counter(lease.host for lease in (await self.cluster.ownership.leases()).values())
                if set(owners) == set(self.hosts) and len(set(owners.values())) == 1 and owners.total() == SHARDS:
                    return
                await asyncio.sleep(0.02)

    async def kill_owner(self, session: str) -> None:
        owner = await self.find_owner(session)
        del self.hosts[owner.name]
        await owner.kill()

    async def close(self) -> None:
        for gateway in self._gateways:
            await gateway.stop()
        for host in self.hosts.values():
            await host.kill()
        await self.cluster.close()


@asynccontextmanager
async def local_cluster(
    folder: Path, *options: str, hosts: int = 2, **settings: Any
) -> AsyncIterator[tuple[LocalCluster, ClusterServer]]:
    """A cluster with a gateway. `settings`: further ones of its hosts."""
    cluster = LocalCluster(folder, *options)
    try:
        for number in range(1, hosts + 1):
            await cluster.add_host(f"h{number}", **settings)
        yield cluster, await cluster.add_gateway()
    finally:
        await cluster.close()


class ClusterAsServer(ClusterServer):
    """A whole cluster in this process that tests of `parley serve` can use in its place."""

    ttl_seconds = PATIENT_TTL_SECONDS

    def __init__(
        self, folder: Path, *options: str, root: Path | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.root = root or folder / "root"
        self.root.mkdir(exist_ok=True)
        self.port = free_port()
        self.stderr = []
        self._session_options = options
        self._environment = environment or {}
        self._cluster: LocalCluster | None = None
        self._starts = 0

    async def start(self) -> None:
        self._starts += 1
        self._cluster = LocalCluster(
            self.folder,
            *self._session_options,
            root=self.root,
            environment=self._environment,
            ttl_seconds=self.ttl_seconds,
        )
        for number in (1, 2):
            await self._cluster.add_host(f"h{self._starts}-{number}")
        gateway = await self._cluster.add_gateway(self.port)
        self.stderr = gateway.stderr

    async def kill(self, number: int = 0) -> int:
        if self._cluster is not None:
            await self._cluster.close()
        self._cluster = None
        return 0


class DyingLocalCluster(ClusterAsServer):
    """The same, and its hosts are killed again and again."""

    ttl_seconds = TTL_SECONDS

    def __init__(
        self, folder: Path, *options: str, root: Path | None = None, environment: dict[str, str] | None = None
    ) -> None:
        super().__init__(folder, *options, root=root, environment=environment)
        self.kills = 0
        self._killer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        self._killer = asyncio.create_task(self._kill_hosts())

    async def _kill_hosts(self) -> None:
        while True:
            await asyncio.sleep(KILL_SECONDS)
            assert self._cluster is not None
            # A prompt of which two hosts died in a row would be stopped, so one that was taken over is let finish.
            registry = self._cluster.cluster.registry
            while any(read_work(row.value).left for row in await registry.rows("work.>")):  # noqa: ASYNC110  # polled
                await asyncio.sleep(POLL_SECONDS)
            name = next(iter(self._cluster.hosts))
            await self._cluster.hosts.pop(name).kill()
            self.kills += 1
            await self._cluster.add_host(f"after-{self.kills}")

    async def kill(self, number: int = 0) -> int:
        assert self._killer is not None
        self._killer.cancel()
        await asyncio.gather(self._killer, return_exceptions=True)
        return await super().kill(number)
