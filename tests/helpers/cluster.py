"""A cluster in this process: hosts and gateways on one bus, with real HTTP on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from parley.cluster.base import Cluster
from parley.cluster.bridge.host import add_bridge
from parley.cluster.cluster_tokens import ClusterTokens
from parley.cluster.gateway.server import ClusterGateway
from parley.cluster.host import Host, HostSettings
from parley.cluster.local import open_local
from parley.gateway.hub import HubSettings
from parley.gateway.server import Address, ServerSettings, listen
from parley.gateway.server_log import ServerLog
from tests.helpers.gateway import Server

PREFIX = "parley"
TOKEN = "a token for the administrator"
TTL_SECONDS = 1.0
SHARDS = 8


class LocalHost:
    """A host that can be killed."""

    def __init__(self, cluster: Cluster, name: str, folder: Path, root: Path, *options: str) -> None:
        self.name = name
        environment = {"HOME": str(folder), "CLAUDE_CONFIG_DIR": str(folder / "config"), "PATH": "/usr/bin:/bin"}
        hub = HubSettings(
            state=folder / name, root=str(root), argv=options or ("--model", "offline"), environment=environment
        )
        settings = HostSettings(name=name, hub=hub, drain_seconds=5)
        self.log: list[str] = []
        self.host = Host(cluster, settings, ServerLog(self.log.append))
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._tokens: ClusterTokens | None = None

    async def start(self) -> None:
        self._tokens = await add_bridge(self.host, PREFIX)
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
        if self._tokens is not None:
            await self._tokens.close()


class ClusterServer(Server):
    """A gateway of a cluster, with the methods of a `parley serve` (`tests/helpers/gateway.py`)."""

    def __init__(self, cluster: Cluster, folder: Path, root: Path) -> None:
        self.root = root
        self.folder = folder
        address = Address.parse("127.0.0.1:0")
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
    def __init__(self, folder: Path, *options: str) -> None:
        """`options`: of new sessions."""
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        self.cluster = open_local(folder / "cluster.db", shards=SHARDS, ttl_seconds=TTL_SECONDS)
        self.hosts: dict[str, LocalHost] = {}
        self._options = options
        self._gateways: list[ClusterServer] = []

    async def add_host(self, name: str) -> LocalHost:
        host = self.hosts[name] = LocalHost(self.cluster, name, self.folder, self.root, *self._options)
        await host.start()
        return host

    async def add_gateway(self) -> ClusterServer:
        gateway = ClusterServer(self.cluster, self.folder, self.root)
        self._gateways.append(gateway)
        await gateway.start()
        return gateway

    async def find_owner(self, session: str) -> LocalHost:
        from parley.cluster.base import SessionKey

        lease = (await self.cluster.ownership.leases())[SessionKey("", session).shard(SHARDS)]
        return self.hosts[lease.host]

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
    folder: Path, *options: str, hosts: int = 2
) -> AsyncIterator[tuple[LocalCluster, ClusterServer]]:
    """A cluster with a gateway."""
    cluster = LocalCluster(folder, *options)
    try:
        for number in range(1, hosts + 1):
            await cluster.add_host(f"h{number}")
        yield cluster, await cluster.add_gateway()
    finally:
        await cluster.close()
