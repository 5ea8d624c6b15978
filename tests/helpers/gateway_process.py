"""Real `parley serve --nats` processes, in a cluster with real hosts on a real NATS server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from parley.cluster.base import Cluster
from tests.helpers.cluster_places import find_owner
from tests.helpers.forked import ForkedPipes
from tests.helpers.gateway import Server
from tests.helpers.host_process import TTL_SECONDS, HostProcess, Rig, cluster_rig
from tests.helpers.nats import nats_server

SHARDS = "8"
KILL_SECONDS = 1.0
"""How long all hosts live before the next one is killed."""


class GatewayProcess(Server):
    """A gateway of a cluster, with the methods of a `parley serve`."""

    def __init__(self, url: str, folder: Path, root: Path, *options: str) -> None:
        super().__init__(folder, root=root)
        self._options = options
        self._url = url

    def _arguments(self) -> tuple[str, ...]:
        return (
            *("serve", "--nats", self._url, "--accept-loss", "--ttl", str(TTL_SECONDS), "--shards", SHARDS),
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
        return self.hosts[await find_owner(self.cluster, session)]

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
        token = folder / "token"
        token.write_text("the-token-of-the-administrator")  # gateways that start at the same time have the same
        token.chmod(0o600)
        try:
            await asyncio.gather(
                *(cluster.add_host() for _ in range(hosts)), *(cluster.add_gateway() for _ in range(gateways))
            )
            yield cluster
        finally:
            await cluster.close()


class DyingCluster(GatewayProcess):
    """A cluster that tests of `parley serve` can use in its place. Its hosts are killed again and again."""

    def __init__(
        self, folder: Path, *options: str, root: Path | None = None, environment: dict[str, str] | None = None
    ) -> None:
        super().__init__("", folder, root or folder / "root")
        self._session_options = options
        self._host_environment = environment
        self.kills = 0
        self._stack = AsyncExitStack()
        self._hosts: list[HostProcess] = []
        self._killer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        nats = self._stack.enter_context(nats_server(self.folder / "nats"))
        self._url = nats.url
        await asyncio.gather(self._add_host(), self._add_host(), super().start())
        self._killer = asyncio.create_task(self._kill_hosts())

    async def _add_host(self) -> None:
        name = f"h{len(self._hosts)}"
        options = self._session_options or ("--model", "offline")
        host = HostProcess(self._url, name, self.root, *options, environment=self._host_environment)
        self._hosts.append(host)
        await self._stack.enter_async_context(host)

    async def _kill_hosts(self) -> None:
        """Kill the older of two hosts when the other one has started: sessions always have somewhere to go."""
        while True:
            await asyncio.sleep(KILL_SECONDS)
            oldest = next(host for host in self._hosts if host.is_running)
            await oldest.kill()
            self.kills += 1
            await self._add_host()

    async def kill(self, number: int = signal.SIGKILL) -> int:
        assert self._killer is not None
        self._killer.cancel()
        code = await super().kill(number)
        await self._stack.aclose()
        return code


def freeze(process: ForkedPipes | None) -> None:
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)


def thaw(process: ForkedPipes | None) -> None:
    assert process is not None
    os.kill(process.pid, signal.SIGCONT)
