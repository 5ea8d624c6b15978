"""A real cluster on loopback: NATS servers, hosts and gateways as processes that can be killed, frozen and cut off."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from parley.cluster.base import Cluster, ClusterError, Fenced, LogDamaged, LogKey, ShardLease
from parley.cluster.nats import DurabilityOptions, NatsAddress, NatsClusterOptions, open_nats
from parley.cluster.session_log import LoadedLog, read_log
from parley.gateway.session_log.records import NewerVersion
from tests.helpers.cluster_places import find_owner
from tests.helpers.forked import ForkedPipes, start_parley
from tests.helpers.gateway import Server
from tests.helpers.nats import NatsServer
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.tcp_proxy import TcpProxy

T = TypeVar("T")
POLL_SECONDS = 0.02
REQUESTS_AT_ONCE = 100
SHARDS = 16
TENANT = ""
"""That of the administrator."""
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
"""From the Debian package libfaketime: a clock that can be set for one process."""


class HostProcess:
    """`parley host` in a process of its own. It has another name each time that it starts."""

    def __init__(self, name: str, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self.base_name = name
        self.name = ""
        self.stderr: list[str] = []
        self._starts = 0
        self._arguments = arguments
        self._environment = environment
        self._process: ForkedPipes | Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self.is_frozen = False
        self.is_killed = False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it and wait until it takes shards."""
        self._starts += 1
        self.name = f"{self.base_name}-{self._starts}"
        self.is_killed = False
        self._process = await start_parley([*self._arguments, "--name", self.name], env=self._environment)
        assert self._process.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await self._process.stderr.readline()).decode():
                self.stderr.append(line)
                if "is ready" in line:
                    self._reader = asyncio.create_task(self._read(self._process.stderr))
                    return
            await self._process.wait()
        raise AssertionError(f"the host {self.name} did not start: {''.join(self.stderr)}")

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.stderr.append(line.decode(errors="replace"))

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_frozen = False

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended by itself, which `crashes` shows
            if self.is_running:
                os.kill(self.pid, number)

    async def kill(self, number: int = signal.SIGKILL) -> int:
        """End it with a signal; returns the exit code."""
        if self._process is None:
            return 0
        self.is_killed = True
        self._signal(number)
        self.thaw()
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self._process.wait()
            if self._reader is not None:
                await self._reader
        return code


class GatewayProcess(Server):
    """`parley serve --nats` in a process of its own."""

    def __init__(self, folder: Path, token_file: Path, options: Sequence[str]) -> None:
        folder.mkdir()
        super().__init__(folder, *options)
        self.token_file = token_file

    def _arguments(self) -> tuple[str, ...]:
        listen = f"127.0.0.1:{self.port}"
        return ("serve", "--listen", listen, "--token-file", str(self.token_file), *self._options)


class RunningCluster:
    """All of it.

    `has_links`: a proxy for each host and gateway, on its way to NATS, by name in `links`. `has_clocks`: hosts have
    clocks that can be set, which is slow.
    """

    def __init__(
        self,
        folder: Path,
        *,
        hosts: int = 2,
        gateways: int = 1,
        nats_servers: int = 1,
        lease_seconds: float = 3,
        has_links: bool = False,
        has_clocks: bool = False,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.nats_servers = nats_servers
        self.lease_seconds = lease_seconds
        self.root = folder / "root"
        self.secret = folder / "secret"
        self.hosts: list[HostProcess] = []
        self.gateways: list[Server] = []
        self.links: dict[str, TcpProxy] = {}
        self.connection: Cluster
        self._counts = hosts, gateways
        self._has_links = has_links
        self._has_clocks = has_clocks
        self._environment = {**os.environ, "IS_SANDBOX": "1", **(environment or {})}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        # Each request of a test waits in a thread, some of them for a new owner.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(REQUESTS_AT_ONCE))
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        names = [f"n{number}" for number in range(1, self.nats_servers + 1)]
        self.nats = [NatsServer(self.folder / "nats", name=name, sync_always=True) for name in names]
        for server in self.nats:
            server.routes = [one.route_port for one in self.nats] if self.nats_servers > 1 else []
            self._stack.callback(server.stop)
            server.start()
        for server in self.nats:
            await asyncio.to_thread(server.wait)
        self.root.mkdir()
        token = self.folder / "token"
        token.touch(mode=0o600)
        token.write_text("a-token-for-the-tests-of-a-cluster")
        self.secret.touch(mode=0o600)
        self.secret.write_text("a-secret-for-the-tests-of-a-cluster")
        options = NatsClusterOptions(
            shards=SHARDS,
            ttl_seconds=self.lease_seconds,
            replicas=self.nats_servers,
            durability=DurabilityOptions(states_sync_always=True),
        )
        # New servers may need a moment until they know of each other.
        self.connection = await eventually(lambda: open_nats(NatsAddress(url=self.url), options))
        self._stack.push_async_callback(self.connection.close)
        hosts, gateways = self._counts
        for number in range(hosts):
            await self.add_host(f"host-{number}")
        for number in range(gateways):
            await self.add_gateway(f"gateway-{number}")
        if hosts:
            await self.wait_until_owned()

    @property
    def url(self) -> str:
        return ",".join(server.url for server in self.nats)

    async def add_host(self, name: str, *options: str, environment: dict[str, str] | None = None) -> HostProcess:
        """Start a further host."""
        folder = self.folder / name
        folder.mkdir()
        clock = folder / "clock"
        clock.write_text("+0\n")
        own = {
            **self._environment,
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
            **(fake_clock(clock) if self._has_clocks and FAKETIME.exists() else {}),
            **(environment or {}),
        }
        arguments = [
            *("host", *await self._cluster_flags(name), "--shards", str(SHARDS)),
            *("--ttl", f"{self.lease_seconds:g}", "--replicas", str(self.nats_servers), "--sync-always"),
            *("--root", str(self.root), "--model", "offline", *options),
        ]
        host = HostProcess(name, arguments, own)
        self.hosts.append(host)
        self._stack.push_async_callback(host.kill)
        await host.start()
        return host

    async def add_gateway(self, name: str) -> GatewayProcess:
        flags = await self._cluster_flags(name)
        gateway = GatewayProcess(self.folder / name, self.folder / "token", flags)
        await gateway.start()
        self._stack.push_async_callback(gateway.kill)
        self.gateways.append(gateway)
        return gateway

    async def _cluster_flags(self, name: str) -> list[str]:
        urls = [server.url for server in self.nats]
        if self._has_links:
            # One way to NATS, which can be cut.
            link = await self._stack.enter_async_context(TcpProxy(self.nats[0].port))
            self.links[name] = link
            urls = [link.url]
        return ["--nats", ",".join(urls), "--cluster-secret", str(self.secret)]

    # What is true now.

    def live_hosts(self) -> list[HostProcess]:
        return [host for host in self.hosts if host.is_running and not host.is_frozen]

    def key(self, session_id: str) -> LogKey:
        return LogKey(TENANT, session_id)

    def shard(self, session_id: str) -> int:
        return self.key(session_id).shard(SHARDS)

    async def head(self, session_id: str) -> int:
        return await eventually(lambda: self.connection.log.head(self.key(session_id)))

    async def leases(self) -> dict[int, ShardLease]:
        return await eventually(self.connection.ownership.leases)

    async def read_state(self, session_id: str) -> LoadedLog:
        return await eventually(lambda: read_log(self.connection.log, self.key(session_id)))

    async def shards_of(self, host: str) -> set[int]:
        return {shard for shard, lease in (await self.leases()).items() if lease.host == host}

    async def owner_of(self, session_id: str) -> HostProcess:
        name = await find_owner(self.connection, session_id, TENANT)
        return next(host for host in self.hosts if host.name == name)

    async def wait_until_owned(self) -> None:
        """Wait until every shard has an owner that lives."""
        await self._wait_for_leases(lambda owners: len(owners) == SHARDS)

    async def wait_until_balanced(self) -> None:
        """Wait until every shard has an owner that lives, and all of them have about the same number."""

        def is_balanced(owners: dict[int, str]) -> bool:
            counts = Counter(owners.values())
            names = {host.name for host in self.live_hosts()}
            return len(owners) == SHARDS and names == set(counts) and max(counts.values()) <= -(-SHARDS // len(names))

        await self._wait_for_leases(is_balanced)

    async def _wait_for_leases(self, condition: Any) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                names = {host.name for host in self.live_hosts()}
                owners = {shard: lease.host for shard, lease in (await self.leases()).items() if lease.host in names}
                if condition(owners):
                    return
                await asyncio.sleep(POLL_SECONDS)

    def crashes(self) -> list[str]:
        """The hosts that have ended although the test did not kill them."""
        ended = [host for host in self.hosts if not host.is_running and not host.is_killed]
        return [f"the host {host.name} has ended by itself: {''.join(host.stderr[-5:])}" for host in ended]

    # Faults.

    async def kill_nats(self, number: int) -> None:
        await asyncio.to_thread(self.nats[number].kill)

    async def start_nats(self, number: int) -> None:
        await asyncio.to_thread(self.nats[number].restart)

    def step_clock(self, host: str, seconds: int) -> None:
        """Set the wall clock of a host, if libfaketime is installed. The monotonic clock stays."""
        base = next(one.base_name for one in self.hosts if one.name == host)
        (self.folder / base / "clock").write_text(f"{seconds:+d}\n")

    async def heal(self) -> None:
        """Undo all faults."""
        for link in self.links.values():
            link.heal()
        for host in self.hosts:
            host.thaw()
            if not host.is_running:
                await host.start()
        await self.wait_until_owned()


async def eventually(act: Callable[[], Awaitable[T]]) -> T:
    """Repeat what fails because NATS does not answer now, for example while it elects a leader."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await act()
            except (LogDamaged, Fenced, NewerVersion):
                raise
            except ClusterError:
                await asyncio.sleep(POLL_SECONDS)


def fake_clock(file: Path) -> dict[str, str]:
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
