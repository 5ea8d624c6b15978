"""A cluster on this machine: a NATS server, hosts and a gateway as processes on loopback, with the offline model.

    with Demo(folder, hosts=2) as demo:
        demo.start()
        demo.watch(report)      until Ctrl-C

A host that is killed is started again after a while. All processes end with the demo.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Self

from parley.errors import UsageError
from parley.protocol.base import Json
from parley.workspace.process.tree import SET_PDEATHSIG, prctl

START_SECONDS = 30.0
STOP_SECONDS = 5.0
RESTART_SECONDS = 10.0
POLL_SECONDS = 0.2
LEASE_SECONDS = 3
CONFIG = """\
server_name: demo
listen: 127.0.0.1:{port}
jetstream {{ store_dir: {folder}, sync_interval: always }}
"""
STORY = (
    ("A turn that takes a minute", "say I begin.\nwait 20\nsay Still here.\nwait 40\nsay Done, wherever I run."),
    ("A question that waits for you", 'call Bash {"command": "mkdir release"}\nshow'),
    ("A short turn", "say Send me another prompt: I answer from any host."),
)
"""The sessions that the demo begins with: their titles and prompts."""


def end_with_parent() -> None:
    """Let the kernel end this process if the demo is killed (Linux)."""
    prctl(SET_PDEATHSIG, signal.SIGTERM)


class DemoProcess:
    """A process of the demo. What it writes to stderr goes to a file."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self._environment = {**os.environ, "TMPDIR": str(folder), "CLAUDE_CONFIG_DIR": str(folder / "config")}
        self.log = folder / f"{name}.log"
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self.ended_at = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        with self.log.open("ab") as output:
            # A session of its own: Ctrl-C is for the demo, which then ends the others in order.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509  # the demo has one thread
            )
        self.ended_at = 0.0

    def check(self) -> int | None:
        """How it has ended; None if it runs."""
        return self._process.poll() if self._process is not None else 0

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """End it, by force if it takes too long."""
        self.signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Demo:
    def __init__(self, folder: Path, server: str, hosts: int = 2, address: str = "127.0.0.1:0") -> None:
        """`server`: the executable of NATS. `address`: where the gateway listens."""
        self.folder = folder
        self._token_file = folder / "token"
        name, _, port = address.rpartition(":")
        self.url = f"http://{name}:{port if port != '0' else free_port()}"
        nats_port = free_port()
        self.nats_url = f"nats://127.0.0.1:{nats_port}"
        config = folder / "nats.conf"
        config.write_text(CONFIG.format(port=nats_port, folder=folder / "nats"))
        root = folder / "work"
        root.mkdir()
        parley = [sys.executable, "-P", "-m", "parley"]
        self.nats = DemoProcess("nats", [server, "--config", str(config)], folder)
        shared = ["--nats", self.nats_url, "--sync-always", "--ttl", str(LEASE_SECONDS)]
        self.hosts = [
            DemoProcess(
                name,
                [
                    *parley,
                    "host",
                    *shared,
                    "--drain-seconds",
                    "1",
                    "--name",
                    name,
                    "--root",
                    str(root),
                    "--model",
                    "offline",
                ],
                folder,
            )
            for name in (f"host-{number}" for number in range(1, hosts + 1))
        ]
        listen = self.url.removeprefix("http://")
        serve = [*parley, "serve", "--nats", self.nats_url, "--listen", listen, "--token-file", str(self._token_file)]
        self.gateway = DemoProcess("gateway", serve, folder)

    @property
    def console(self) -> str:
        return f"{self.url}/console/#token={self._token_file.read_text().strip()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.gateway, *self.hosts):
            process.signal(signal.SIGTERM)
        for process in (self.gateway, *self.hosts, self.nats):
            process.stop()

    def start(self) -> None:
        """Start all of it, and the sessions that it shows. Raises UsageError."""
        self._token_file.write_text(secrets.token_urlsafe(32))
        self._token_file.chmod(0o600)
        self.nats.start()
        self._wait_until(lambda: is_open(self.nats_url), self.nats)
        for process in (*self.hosts, self.gateway):
            process.start()
        self._wait_until(lambda: self._request("GET", "/readyz") is not None, self.gateway)
        for title, content in STORY:
            self._begin_session(title, content)

    def watch(self, report: Callable[[str], None]) -> None:
        """Report hosts that end, and start them again, until KeyboardInterrupt."""
        while True:
            time.sleep(POLL_SECONDS)
            for process in (self.nats, *self.hosts, self.gateway):
                code = process.check()
                if code is None:
                    continue
                if not process.ended_at:
                    process.ended_at = time.monotonic()
                    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                    report(f"{process.name} {how}; it starts again in {RESTART_SECONDS:.0f} seconds")
                elif time.monotonic() - process.ended_at > RESTART_SECONDS:
                    process.start()
                    report(f"{process.name} runs again: process {process.pid}")

    def _begin_session(self, title: str, content: str) -> None:
        """A session with a prompt. The first one waits until the hosts have their shards."""
        made: Json = {}

        def create() -> bool:
            made.update(self._request("POST", "/sessions", {"title": title}) or {})
            return bool(made)

        self._wait_until(create, self.gateway)
        path = f"/sessions/{made['session_id']}/prompts"
        self._wait_until(lambda: self._request("POST", path, {"content": content}) is not None, self.gateway)

    def _request(self, method: str, path: str, body: Json | None = None) -> Json | None:
        """The reply of the gateway; None if it has none now."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self._token_file.read_text().strip()}"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=START_SECONDS) as reply:
                found: Json = json.loads(reply.read())
                return found
        except (urllib.error.URLError, OSError):
            return None

    def _wait_until(self, condition: Callable[[], bool], process: DemoProcess) -> None:
        """Raises UsageError."""
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            for one in (self.nats, *self.hosts, self.gateway):
                if one.pid and one.check() is not None:
                    last = one.log.read_text(errors="replace").strip().splitlines()[-1:]
                    raise UsageError(f"the demo cannot start: {one.name} ended: {' '.join(last) or 'without a word'}")
            if time.monotonic() > deadline:
                raise UsageError(
                    f"the demo cannot start: {process.name} is not ready after {START_SECONDS:.0f} seconds"
                )
            time.sleep(POLL_SECONDS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_open(url: str) -> bool:
    host, _, port = url.rpartition("/")[2].rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
