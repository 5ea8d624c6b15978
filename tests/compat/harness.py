"""An official client in its own process, our engine behind it, a scripted model behind that.

    stage.run("query", [ScriptedTurn(text="Hello.")], prompt="Hi").messages

The driver of that name (drivers/) gets its task as JSON and tells JSON lines; a `Report` holds them beside the
requests that reached the model. Everything a run writes is below the stage's folder.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from parley.models.script import Script, ScriptedError, ScriptedTurn
from parley.testing.model_server import Exchange, running
from tests.compat.install import PYTHON, TYPESCRIPT, Client, Unavailable, ensure, say
from tests.helpers.environment import base_environment

ENGINE = Path(sys.executable).with_name("parley")
DRIVERS = Path(__file__).with_name("drivers")
RUN_SECONDS = 180
ALREADY_REAPED = re.compile(r".*child process pid \d+.* will report returncode 255", re.IGNORECASE)
"""asyncio of CPython 3.11 logs this when a client ends an engine that has just exited: `terminate` polls first."""
PRICES = {"": {"input": 5, "output": 25}}
"""Dollars per million tokens of any model, so that costs can be foreseen."""


@dataclass(frozen=True)
class Report:
    """What came of a run."""

    stage: Stage
    told: list[tuple[str, Any]]
    stderr: str
    exchanges: list[Exchange]

    @property
    def messages(self) -> list[Any]:
        return self.of("message")

    @property
    def requests(self) -> list[Any]:
        """The bodies that the model got."""
        return [exchange.body for exchange in self.exchanges]

    def of(self, what: str) -> list[Any]:
        return [value for kind, value in self.told if kind == what]

    def warnings(self) -> list[Any]:
        """Whatever the client logged or raised and the engine wrote to stderr."""
        written = [line for line in self.stderr.splitlines() if not ALREADY_REAPED.fullmatch(line)]
        return [*written, *self.of("stderr"), *self.of("raised")]


@dataclass(frozen=True)
class Stage:
    """Where one test plays."""

    client: Client
    folder: Path
    partial: bool = False
    connection: str = "pipe"
    """How the client reaches the engine: `pipe`, or through a gateway with `websocket`, `sse` or `direct`."""
    server: Callable[..., Any] | None = None
    """What is started instead of a `parley serve`: a cluster, for example."""

    @property
    def directory(self) -> Path:
        return self.folder / "project"

    def run(
        self, driver: str, turns: Sequence[ScriptedTurn], *, env: dict[str, str] | None = None, **task: Any
    ) -> Report:
        """Let a driver do its task. The last turn of the model is repeated for as long as it is asked."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.folder / "prices.json").write_text(json.dumps(PRICES))
        with running(Script(turn=list(turns), at_end="repeat")) as server:
            environment = {**self._environment(server.url), **(env or {})}
            task = {"engine": str(ENGINE), "partial": self.partial, **task}
            if self.connection == "pipe":
                stdout, stderr = self._drive(driver, task, environment)
            else:
                stdout, stderr = asyncio.run(self._drive_network(driver, task, environment))
        told = [json.loads(line) for line in stdout.splitlines()]
        return Report(self, [(what, value) for what, value in told], stderr, server.exchanges)

    async def _drive_network(self, driver: str, task: dict[str, Any], environment: dict[str, str]) -> tuple[str, str]:
        """What the driver writes, with what the server writes to stderr after its start."""
        from tests.helpers.gateway import Server

        options = ["--include-partial-messages"] if self.partial else ["--permission-mode=default"]
        start = self.server or Server
        async with start(self.folder, *options, root=self.directory, environment=environment) as server:
            greeting = len(server.stderr)
            gateway = {"kind": self.connection, "url": server.url, "token": server.token}
            stdout, stderr = await asyncio.to_thread(self._drive, driver, {**task, "gateway": gateway}, environment)
        return stdout, stderr + "".join(server.stderr[greeting:])

    def _drive(self, driver: str, task: dict[str, Any], environment: dict[str, str]) -> tuple[str, str]:
        program = self.client.program()
        assert program is not None
        if self.client.runs_with == "node":
            flags = () if self.connection == "pipe" else ("--experimental-websocket", "--no-warnings")
            task["packages"] = str(self.client.place)
            if self.client.package == TYPESCRIPT.package:
                return node_server(program, flags, task["packages"]).run(driver, task, environment, self.directory)
            command = [program, *flags, str(DRIVERS / f"{driver}.mjs"), json.dumps(task)]
            return finish(command, environment, self.directory)
        command = [str(DRIVERS / f"{driver}.py"), json.dumps(task)]
        module = "claude_agent_sdk" if self.client.package == PYTHON else "acp"
        return fork_server(program, module).run(command, environment, self.directory)

    def _environment(self, url: str) -> dict[str, str]:
        """All that the client and the engine find: nothing of the machine's own settings, keys or proxies."""
        return {
            **base_environment(),
            "HOME": str(self.folder),
            "CLAUDE_CONFIG_DIR": str(self.folder / "config"),
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "a-key-for-tests",
            "PARLEY_PRICES": str(self.folder / "prices.json"),
        }


def finish(command: list[str], environment: dict[str, str], cwd: Path) -> tuple[str, str]:
    """Run a driver to its end; one that hangs is ended with its engine."""
    with subprocess.Popen(
        command,
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            pytest.fail(f"the driver did not end within {RUN_SECONDS} s\n{stdout}\n{stderr}")
    assert process.returncode == 0, stderr
    return stdout, stderr


class DriverServer:
    """A process that runs drivers one after the other, and replies with their exit codes on a socket."""

    def __init__(self, command: list[str], **streams: Any) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                env={**base_environment(), "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                **streams,
            )
        atexit.register(self.close)

    def _wait(self) -> str:
        """What came of a driver: "0" if it ended well. One that hangs is ended with its engine and the server."""
        if not select.select([self._line], [], [], RUN_SECONDS)[0]:
            os.killpg(self._process.pid, signal.SIGKILL)
            forget_servers()
            return f"the driver did not end within {RUN_SECONDS} s"
        with suppress(ConnectionResetError):
            if exit_code := self._line.recv(16).decode():
                return exit_code
        forget_servers()
        return f"the driver ended its server with {self._process.wait()}"

    def close(self) -> None:
        self._line.close()
        try:
            self._process.wait(RUN_SECONDS)
        finally:
            self._process.kill()


class ForkServer(DriverServer):
    """Runs drivers in forks of one process that has imported a module (drivers/fork_server.py)."""

    def __init__(self, program: str, module: str) -> None:
        super().__init__([program, str(DRIVERS / "fork_server.py"), module])

    def run(self, argv: list[str], environment: dict[str, str], cwd: Path) -> tuple[str, str]:
        with TemporaryFile("w+") as task, TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
            json.dump({"argv": argv, "environment": environment, "cwd": str(cwd)}, task)
            task.seek(0)
            socket.send_fds(self._line, [b"!"], [file.fileno() for file in (task, stdout, stderr)])
            ended = self._wait()
            stdout.seek(0)
            stderr.seek(0)
            written, warned = stdout.read(), stderr.read()
        assert ended == "0", f"{ended}\n{written}\n{warned}"
        return written, warned


class NodeServer(DriverServer):
    """Runs drivers in one process that has imported the SDK (drivers/server.mjs): node cannot fork."""

    def __init__(self, program: str, flags: tuple[str, ...], packages: str) -> None:
        self._outputs = (TemporaryFile(), TemporaryFile())  # noqa: SIM115  # open as long as the server runs
        stdout, stderr = self._outputs
        command = [program, *flags, str(DRIVERS / "server.mjs"), json.dumps({"packages": packages})]
        super().__init__(command, stdout=stdout, stderr=stderr)

    def run(self, driver: str, task: dict[str, Any], environment: dict[str, str], cwd: Path) -> tuple[str, str]:
        starts = [os.fstat(output.fileno()).st_size for output in self._outputs]
        request = {"driver": driver, "task": task, "environment": environment, "cwd": str(cwd)}
        self._line.sendall(json.dumps(request).encode() + b"\n")
        ended = self._wait()
        written, warned = (
            os.pread(output.fileno(), os.fstat(output.fileno()).st_size - start, start).decode()
            for output, start in zip(self._outputs, starts, strict=True)
        )
        assert ended == "0", f"{ended}\n{written}\n{warned}"
        return written, warned


@cache
def fork_server(program: str, module: str) -> ForkServer:
    return ForkServer(program, module)


@cache
def node_server(program: str, flags: tuple[str, ...], packages: str) -> NodeServer:
    return NodeServer(program, flags, packages)


def forget_servers() -> None:
    """Start new ones for the next drivers."""
    fork_server.cache_clear()
    node_server.cache_clear()


def installed(client: Client) -> Client:
    """The client, or a skipped test; where the clients are required (in CI), a failed one."""
    try:
        ensure(client, say)
    except Unavailable as exc:
        text = f"{client.package} {client.version} cannot be installed: {exc}"
        if os.environ.get("PARLEY_REQUIRE_COMPAT"):
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    return client


# What the tests of every client play.

HELLO = ScriptedTurn(text="Hello there.", usage={"input_tokens": 1000, "output_tokens": 100})
HELLO_COST_USD = 0.0075
FIRST, SECOND = ScriptedTurn(thinking="A first.", text="One."), ScriptedTurn(text="Two.")
FIRST_BLOCKS = [
    {"type": "thinking", "thinking": "A first.", "signature": "c2NyaXB0ZWQ="},
    {"type": "text", "text": "One."},
]
TALK = [["ask", "Hello"], ["ask", "Again"]]
THOUGHT = ScriptedTurn(
    blocks=[{"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}, {"type": "text", "text": "Yes."}]
)
LONG_TEXTS = ["The beginning. ", "and so on " * 400]
LONG = ScriptedTurn(blocks=[{"type": "text", "text": text} for text in LONG_TEXTS], chunk_chars=10, event_delay_ms=50)
"""Takes 20 s unless somebody interrupts it."""
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
QUESTION = {"type": "text", "text": "What is this?"}
NO_RETRIES = {"CLAUDE_CODE_MAX_RETRIES": "0"}
FAULTS = [
    ScriptedError(status=500, type="api_error", message="Internal server error"),
    ScriptedError(status=401, type="authentication_error", message="invalid x-api-key"),
]

PARTIAL_EVENTS = ["message_start", "content_block_start", "content_block_delta"]
CLOSING_EVENTS = ["content_block_stop", "message_delta", "message_stop"]


def order(assistant: str, result: str, *, partial: bool) -> list[str]:
    """How the lines of a turn with one text block follow each other."""
    if not partial:
        return ["init", assistant, result]
    return ["init", "status", *PARTIAL_EVENTS, assistant, *CLOSING_EVENTS, result]


def conversation(request: Any) -> list[tuple[str, list[Any]]]:
    """The messages of a request, without the marks that guide the prompt cache."""
    return [(message["role"], [bare(block) for block in blocks(message)]) for message in request["messages"]]


def blocks(message: Any) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def bare(block: Any) -> Any:
    return {name: value for name, value in block.items() if name != "cache_control"}


def said(text: str) -> Any:
    return {"type": "text", "text": text}
