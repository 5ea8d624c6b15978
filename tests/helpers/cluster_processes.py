"""A real cluster on loopback: NATS servers, hosts and gateways as processes, which can be killed and frozen."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from parley.cluster.base import Cluster, SessionKey
from tests.helpers.gateway import PARLEY, PATIENCE_SECONDS, Server
from tests.helpers.nats import NatsServers
from tests.helpers.tcp_proxy import TcpProxy

POLL_SECONDS = 0.02
TENANT = "default"
NO_CLOCK = "+0"


class HostProcess:
    """`parley host` in a process of its own."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.stderr: list[str] = []
        self._command = command
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self.is_frozen = False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it and wait until it has joined the cluster."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stderr=asyncio.subprocess.PIPE, env=self._environment
        )
        assert self._process.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await self._process.stderr.readline()).decode():
                self.stderr.append(line)
                if "joined" in line:
                    self._reader = asyncio.create_task(self._read(self._process.stderr))
                    return
            await self._process.wait()
        raise AssertionError(f"the host {self.name} did not start: {''.join(self.stderr)}")

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.stderr.append(line.decode(errors="replace"))

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        if self.is_running:
            os.kill(self.pid, signal.SIGCONT)
        self.is_frozen = False

    async def kill(self, number: int = signal.SIGKILL) -> int:
        """End it with a signal; returns the exit code."""
        assert self._process is not None
        self.thaw()
        if self._process.returncode is None:
            os.kill(self._process.pid, number)
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self._process.wait()
            await self._reader
        return code


class GatewayProcess(Server):
    """`parley serve --nats` in a process of its own. It has no directory of sessions."""
