"""A hostile working tree, and the real executable started in it.

Everything that a repository might try leads to one of two canaries: a program that leaves a
file behind (`ran`), and a server that counts who connects (`foreign`). The honest model server
is the only one that may be spoken to.
"""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parley.models.script import Script, ScriptedTurn
from parley.testing.model_server import ModelServer, running
from tests.helpers.environment import base_environment
from tests.helpers.forked import run_parley
from tests.helpers.patience import PATIENCE_SECONDS

KEY = "sk-ant-api03-the-persons-own-key"
CUE = "open sesame"
"""What the person asks; a model hears it and wants to run the canary."""


class Foreign:
    """A server that no one should speak to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.visits: list[bytes] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(PATIENCE_SECONDS)
                try:
                    said = connection.recv(10_000)
                except TimeoutError:
                    said = b"(nothing)"
                if said == b"stop":
                    return
                self.visits.append(said)
                connection.sendall(b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n")

    def close(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as last:
            last.sendall(b"stop")
        self._thread.join(PATIENCE_SECONDS)
        self._listener.close()


@dataclass
class Machine:
    """A person's machine with a hostile folder on it."""

    folder: Path
    server: ModelServer
    foreign: Foreign
    key: str = KEY
    runs: list[subprocess.CompletedProcess[str]] = field(default_factory=list)

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def config(self) -> Path:
        return self.folder / "home" / ".claude"

    @property
    def canary(self) -> str:
        """A command that proves that it ran."""
        return f"/usr/bin/touch {self.folder}/ran"

    def plant(self, path: str, content: Any) -> None:
        """Put a file into the tree; what is no text goes in as JSON."""
        file = self.tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))

    def start(self, *argv: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "HOME": str(self.folder / "home"),
            **base_environment(),
            "ANTHROPIC_BASE_URL": self.server.url,
            "ANTHROPIC_API_KEY": self.key,
            "CLAUDE_CODE_MAX_RETRIES": "0",
            **more,
        }
        done = run_parley(argv, cwd=self.tree, env=environment, stdin=stdin)
        self.runs.append(done)
        return done

    @property
    def ran(self) -> bool:
        return (self.folder / "ran").exists()

    def requests(self) -> list[Any]:
        return [exchange.body for exchange in self.server.exchanges]


@contextmanager
def machine(folder: Path, *turns: ScriptedTurn) -> Iterator[Machine]:
    (folder / "home" / ".claude").mkdir(parents=True)
    (folder / "tree" / ".git").mkdir(parents=True)
    foreign = Foreign()
    try:
        with running(Script(turn=[*turns, ScriptedTurn(text="Done.")], at_end="repeat")) as server:
            yield Machine(folder, server, foreign)
    finally:
        foreign.close()


# The four ways to start.


def prompt(text: str) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}}) + "\n"


def as_text(machine: Machine, *argv: str) -> None:
    machine.start("--print", CUE, *argv)


def as_stream(machine: Machine, *argv: str) -> None:
    machine.start("--print", CUE, "--output-format", "stream-json", "--verbose", *argv)


def streaming(machine: Machine, *argv: str) -> None:
    flags = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
    initialize = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize", "hooks": None}}
    machine.start(*flags, *argv, stdin=json.dumps(initialize) + "\n" + prompt(CUE))


def resumed(machine: Machine, *argv: str) -> None:
    """A session that began elsewhere continues in the tree."""
    session = "11111111-1111-4111-8111-111111111111"
    flags = ("--print", "--output-format", "json", "--model", "offline", "--setting-sources", "")
    machine.start(*flags, "--session-id", session, "say begun")
    machine.start("--print", CUE, "--output-format", "stream-json", "--verbose", "--resume", session, *argv)


def in_every_way(machine: Machine) -> None:
    """All at once."""
    with ThreadPoolExecutor(len(STARTS)) as pool:
        for started in [pool.submit(start, machine) for start in STARTS.values()]:
            started.result()


STARTS: dict[str, Callable[..., None]] = {
    "one-shot text": as_text,
    "one-shot stream": as_stream,
    "streaming": streaming,
    "resumed": resumed,
}
