"""Sessions that a resident engine runs: with a server, a folder and a home of their own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.environment import base_environment
from tests.helpers.patience import PATIENCE_SECONDS, wait_until

PARLEY = str(Path(sys.executable).with_name("parley"))
STREAM = ("--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json")
WITHOUT_DASH = f"""#!{sys.executable}
import parley.resident.launcher
parley.resident.launcher.SHELL = "/bin/another-shell"
from parley.cli.main import run
run()
"""

Json = dict[str, Any]


class LiveSession:
    """A session in stream-json whose input is still open."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._stdin, self._stdout = process, process.stdin, process.stdout

    def initialize(self) -> Json:
        request = {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize"}}
        self.send(request)
        answer: Json = self.receive("control_response")["response"]["response"]
        return answer

    def prompt(self, text: str) -> None:
        self.send({"type": "user", "message": {"role": "user", "content": text}})

    def send(self, message: Json) -> None:
        self._stdin.write(json.dumps(message).encode() + b"\n")
        self._stdin.flush()

    def receive(self, kind: str) -> Json:
        for line in self._stdout:
            message: Json = json.loads(line)
            if message["type"] == kind:
                return message
        raise AssertionError(f"the output ended without {kind}")

    def close(self) -> int:
        """End the input; returns the exit code."""
        self._stdin.close()
        return self.process.wait(PATIENCE_SECONDS)


class Resident:
    """Runs the executable in one folder. `servers()` are the resident servers that it has started there."""

    def __init__(self, folder: Path, parley: str) -> None:
        self.folder, self.parley = folder, parley
        self.runtime = folder / "run" / "parley-resident"
        self.environment = {"HOME": str(folder), **base_environment(), "XDG_RUNTIME_DIR": str(folder / "run")}
        self._started: list[subprocess.Popen[bytes]] = []

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [self.parley, "resident", *words], env=self.environment, capture_output=True, check=False, timeout=90
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def servers(self) -> list[Json]:
        servers: list[Json] = json.loads(self.command("status", "--json"))["servers"]
        return servers

    def start(self) -> int:
        """Returns the pid of the server."""
        self.command("start")
        pid: int = self.servers()[0]["pid"]
        return pid

    def run(
        self, *words: str, via: tuple[str, ...] = (), resident: str = "1", data: bytes = b"", **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        """`via`: a program that runs the executable, with its arguments."""
        environment = {**self.environment, "PARLEY_RESIDENT": resident, **variables}
        return subprocess.run(
            [*via, self.parley, *words],
            env=environment, cwd=self.folder, input=data, capture_output=True, check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip

    def open(self, *words: str, via: tuple[str, ...] = (), stderr: int | None = None, **variables: str) -> LiveSession:
        process = subprocess.Popen(
            [*via, self.parley, *STREAM, "--model", "offline", *words],
            env={**self.environment, "PARLEY_RESIDENT": "1", **variables},
            cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
        self._started.append(process)
        return LiveSession(process)

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
        if self.runtime.is_dir() and self.runtime.stat().st_mode & 0o077 == 0:
            for server in self.servers():
                os.kill(server["pid"], signal.SIGCONT)
                os.kill(server["pid"], signal.SIGTERM)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def session_of(server: int) -> int:
    """The pid of the only session of a server. Processes that a `status` caused may still be ending."""
    sessions = wait_until(lambda: children(server) if len(children(server)) == 1 else [], "one session")
    return int(sessions[0])


def wait_for_end(pid: int) -> None:
    """Wait until a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        assert poll.poll(PATIENCE_SECONDS * 1000), f"process {pid} does not end"
    finally:
        os.close(descriptor)


@pytest.fixture(params=["dash", "python"])
def resident(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Resident]:
    """With each of the two programs that wait for a session."""
    (tmp_path / "run").mkdir(mode=0o700)
    parley = PARLEY
    if request.param == "python":
        parley = str(tmp_path / "parley")
        Path(parley).write_text(WITHOUT_DASH)
        Path(parley).chmod(0o755)
    resident = Resident(tmp_path, parley)
    try:
        yield resident
    finally:
        resident.close()
