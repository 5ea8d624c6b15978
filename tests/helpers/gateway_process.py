"""Real `parley serve --nats` processes, in a cluster with real hosts on a real NATS server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from parley.cluster.base import Cluster, SessionKey
from tests.helpers.gateway import PARLEY, Server
from tests.helpers.host_process import TTL_SECONDS, HostProcess, Rig, cluster_rig

SHARDS = "8"


class GatewayProcess(Server):
    """A gateway of a cluster, with the methods of a `parley serve`."""

    def __init__(self, url: str, folder: Path, root: Path, *options: str) -> None:
        super().__init__(folder, root=root)
        self._options = options
        self._url = url

    def _command(self) -> tuple[str, ...]:
        return (
            *(PARLEY, "serve", "--nats", self._url, "--accept-loss", "--ttl", str(TTL_SECONDS), "--shards", SHARDS),
            *("--listen", f"127.0.0.1:{self.port}", "--token-file", str(self.token_file), *self._options),
        )


class ProcessCluster:
    """Two hosts and two gateways, each a process."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig = rig
        self.hosts: dict[str, HostProcess] = {}
        self.gateways: list[GatewayProcess] = []
        self._folder = folder
        self._count = 0
        self._stack = AsyncExitStack()

    @property
    def cluster(self) -> Cluster:
        return self.rig.cluster

    async def add_host(self, *options: str) -> HostProcess:
        self._count += 1
        host = self.rig.host(f"h{self._count}", *options)
        self.hosts[host.name] = await self._stack.enter_async_context(host)
        return host

    async def add_gateway(self, *options: str) -> GatewayProcess:
        gateway = GatewayProcess(self.rig.nats.url, self._folder, self.rig.root, *options)
        self.gateways.append(await self._stack.enter_async_context(gateway))
        return gateway

    async def find_owner(self, session: str) -> HostProcess:
        lease = (await self.cluster.ownership.leases())[SessionKey("", session).shard(int(SHARDS))]
        return self.hosts[lease.host]

    async def kill_owner(self, session: str) -> None:
        """Kill the owner of a session, and start another host."""
        owner = await self.find_owner(session)
        await owner.kill()
        await self.add_host()

    async def close(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def process_cluster(folder: Path, hosts: int = 2, gateways: int = 1) -> AsyncIterator[ProcessCluster]:
    async with cluster_rig(folder) as rig:
        cluster = ProcessCluster(rig, folder)
        try:
            await asyncio.gather(
                *(cluster.add_host() for _ in range(hosts)), *(cluster.add_gateway() for _ in range(gateways))
            )
            yield cluster
        finally:
            await cluster.close()


def freeze(process: asyncio.subprocess.Process | None) -> None:
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)


def thaw(process: asyncio.subprocess.Process | None) -> None:
    assert process is not None
    os.kill(process.pid, signal.SIGCONT)
