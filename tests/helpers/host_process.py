"""A real `parley host`, which can be killed, frozen and thawed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from parley.cluster.base import Cluster, ClusterError, LogKey
from parley.cluster.nats import DurabilityOptions, NatsAddress, NatsClusterOptions, open_nats
from parley.cluster.session_log import read_log
from parley.cluster.takeovers import read_work
from parley.gateway.security.access import Principal
from tests.helpers.cluster import ClusterServer
from tests.helpers.forked import ForkedPipes
from tests.helpers.nats import NatsServer, nats_server
from tests.helpers.patience import PATIENCE_SECONDS

TTL_SECONDS = 2
LOCAL_TENANT = Principal.administrator("").tenant


class HostProcess:
    def __init__(
        self, url: str, name: str, folder: Path, *options: str, environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self._arguments = (
            *("host", "--nats", url, "--name", name, "--accept-loss", "--ttl", str(TTL_SECONDS), "--shards", "8"),
            *("--root", str(folder), *(options or ("--model", "offline"))),
        )
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
            "IS_SANDBOX": "1",
            **(environment or {}),
        }
        self.process: ForkedPipes | None = None
        self.stderr: list[str] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, _: object, exc: BaseException | None, __: object) -> None:
        self.signal(signal.SIGKILL)
        await self.wait()
        if exc is not None:
            exc.add_note(f"what the host {self.name} said:\n{''.join(self.stderr)}")

    async def start(self) -> None:
        """Start it and wait until it takes shards."""
        self.process = await ForkedPipes.start(self._arguments, env=self._environment)
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await self.process.stderr.readline()).decode():
                self.stderr.append(line)
                if "is ready" in line:
                    self._reader = asyncio.create_task(self._read_stderr(self.process.stderr))
                    return
            await self.process.wait()
        raise AssertionError(f"the host did not start: {''.join(self.stderr)}")

    async def _read_stderr(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.stderr.append(line.decode(errors="replace"))

    def signal(self, number: int) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            os.kill(self.process.pid, number)

    async def wait(self) -> int:
        """Wait until it has ended; returns the exit code."""
        assert self.process is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.process.wait()
            await self._reader
        return code

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def kill(self) -> None:
        """As a power failure of the machine."""
        self.signal(signal.SIGKILL)
        await self.wait()


class Rig:
    """A NATS server, a gateway in this process, and hosts in processes of their own."""

    def __init__(self, nats: NatsServer, cluster: Cluster, gateway: ClusterServer, root: Path) -> None:
        self.nats = nats
        self.cluster = cluster
        self.gateway = gateway
        self.root = root

    def host(self, name: str, *options: str) -> HostProcess:
        """Not started yet."""
        return HostProcess(self.nats.url, name, self.root, *options)

    async def lines(self, session: str) -> list[dict[str, Any]]:
        """What clients see of a session, as its log has it."""
        state = await read_log(self.cluster.log, LogKey(LOCAL_TENANT, session))
        return [json.loads(line.data) for line in state.lines]

    async def wait_line(self, session: str, matches: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """A line of the log, as soon as there is one."""
        seen: object = None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    try:
                        for line in (seen := await self.lines(session)):
                            if matches(line):
                                return line
                    except ClusterError as exc:  # NATS is being restarted
                        seen = exc
                    await asyncio.sleep(0.02)
        except TimeoutError as exc:
            exc.add_note(f"seen last: {seen!s:.5000}")
            raise

    async def prompt(self, session: str, text: str) -> str:
        """The id of an accepted prompt."""
        status, sent = await self.gateway.request("POST", f"/sessions/{session}/prompts", {"content": text})
        assert status == 202, sent
        return str(sent["uuid"])

    async def result(self, session: str, uuid: str) -> dict[str, Any]:
        return await self.wait_line(
            session, lambda line: line["type"] == "result" and uuid in line["user_message_uuids"]
        )

    async def wait_work(self, session: str, left: int) -> None:
        """Wait until the work of a session has been left by so many hosts, one after the other."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for row in await self.cluster.registry.rows("work.>"):
                    if row.key.endswith(session) and len(read_work(row.value).left) == left:
                        return
                await asyncio.sleep(0.02)

    async def owned(self) -> dict[str, int]:
        """How many shards each host has."""
        found: dict[str, int] = {}
        for lease in (await self.cluster.ownership.leases()).values():
            found[lease.host] = found.get(lease.host, 0) + 1
        return found

    async def wait_owned(self, **counts: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.owned() != counts:  # noqa: ASYNC110  # of other processes
                await asyncio.sleep(0.05)


@asynccontextmanager
async def cluster_rig(folder: Path, jetstream: str = "") -> AsyncIterator[Rig]:
    """`jetstream`: further settings of the NATS server."""
    with nats_server(folder, jetstream=jetstream) as nats:
        options = NatsClusterOptions(shards=8, ttl_seconds=TTL_SECONDS, durability=DurabilityOptions(accept_loss=True))
        cluster = await open_nats(NatsAddress(url=nats.url), options)
        root = folder / "root"
        root.mkdir()
        gateway = ClusterServer(cluster, folder, root)
        await gateway.start()
        try:
            yield Rig(nats, cluster, gateway, root)
        finally:
            await gateway.stop()
            await cluster.close()
