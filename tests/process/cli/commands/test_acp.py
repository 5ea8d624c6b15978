"""`parley acp` through the real executable: what comes before a session, bad input, and the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PARLEY = str(Path(sys.executable).with_name("parley"))
SECONDS = 90
UNWANTED = ("acp", "pydantic", "starlette", "uvicorn")


class Agent:
    """A `parley acp` that runs, and a client that reads its lines one by one."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = str(folder)
        self.updates: list[Any] = []

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        """The next response; updates before it are kept."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if message.get("method") != "session/update":
                return message
            self.updates.append(message["params"]["update"])
        return None

    def call(self, method: str, **params: Any) -> Any:
        self.send(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}).encode())
        return self.receive()

    def open_session(self) -> str:
        self.call("initialize", protocolVersion=1)
        made: str = self.call("session/new", cwd=self.folder, mcpServers=[])["result"]["sessionId"]
        return made

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(SECONDS)


@pytest.fixture
def agent(tmp_path: Path, environment: dict[str, str]) -> Iterator[Agent]:
    command = [PARLEY, "acp", "--model", "offline"]
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        yield Agent(process, tmp_path)
        process.kill()


def text_block(text: str) -> list[Any]:
    return [{"type": "text", "text": text}]


def test_bad_input_is_an_error_and_the_connection_continues(agent: Agent) -> None:
    agent.call("initialize", protocolVersion=1)
    codes = []
    for line in (b"{", b"[1]", b'{"id":1}{', b'{"jsonrpc":"2.0","id":1,"method":"no/such"}', b'{"jsonrpc":"2.0"}'):
        agent.send(line)
        codes.append(agent.receive()["error"]["code"])

    assert codes == [-32700, -32600, -32700, -32601, -32600]
    relative = agent.call("session/new", cwd="here", mcpServers=[])["error"]
    assert (relative["code"], relative["message"]) == (-32602, "'here' is not the absolute path of a directory")
    server = {"type": "acp", "name": "x", "serverId": "y"}
    refused = agent.call("session/new", cwd=agent.folder, mcpServers=[server])["error"]["message"]
    assert refused == "mcpServers: unknown type 'acp' (choose from stdio, http, sse)"
    assert "Object missing required field `prompt`" in agent.call("session/prompt", sessionId="x")["error"]["message"]
    assert agent.call("session/list", cursor="far")["error"]["message"] == "session/list: unknown cursor 'far'"
    assert agent.call("session/list")["result"] == {"sessions": []}
    assert agent.end() == 0


def test_the_end_of_stdin_ends_a_turn_and_its_commands(agent: Agent, tmp_path: Path) -> None:
    session = agent.open_session()
    os.mkfifo(tmp_path / "pid")
    prompt = text_block('call Bash {"command": "echo $$ > pid; sleep 600"}')
    request = {"id": 1, "method": "session/prompt", "params": {"sessionId": session, "prompt": prompt}}
    agent.send(json.dumps(request).encode())
    asked = agent.receive()
    allow = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
    agent.send(json.dumps({"id": asked["id"], "result": allow}).encode())
    shell = int((tmp_path / "pid").read_text())

    assert agent.end() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(shell, 0)


def test_a_signal_ends_the_agent(agent: Agent) -> None:
    agent.open_session()
    agent.process.send_signal(signal.SIGTERM)

    assert agent.process.wait(SECONDS) == 128 + signal.SIGTERM


def test_a_request_that_the_client_withdraws_ends_the_turn(agent: Agent) -> None:
    session = agent.open_session()
    prompt = text_block('call Bash {"command": "true > made"}')
    request = {"id": 7, "method": "session/prompt", "params": {"sessionId": session, "prompt": prompt}}
    agent.send(json.dumps(request).encode())
    assert agent.receive()["method"] == "session/request_permission"
    agent.send(b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}')

    error = {"code": -32800, "message": "the request was cancelled"}
    assert sorted([agent.receive(), agent.receive()], key=str) == [
        {"jsonrpc": "2.0", "id": 7, "error": error},
        {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}},
    ]
    answered = agent.call("session/prompt", sessionId=session, prompt=text_block("say Hello again"))
    assert answered["result"]["stopReason"] == "end_turn"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--resume", "x"],
            "option '--resume' cannot be used with `parley acp`, because the editor opens the sessions",
        ),
        (["hello"], "unexpected argument 'hello'"),
        (["--modle", "x"], "unknown option '--modle' (did you mean --model?)"),
    ],
)
def test_wrong_usage(tmp_path: Path, environment: dict[str, str], words: list[str], expected: str) -> None:
    done = subprocess.run(
        [PARLEY, "acp", *words], check=False, env=environment, cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stdout == ""


def test_nothing_heavy_is_imported(tmp_path: Path, environment: dict[str, str]) -> None:
    code = (
        "import sys, parley.cli.commands.server.acp; early = set(sys.modules)\n"
        "from parley.acp.agent import import_engine; import_engine()\n"
        f"print([name for name in {UNWANTED!r} if name in sys.modules], 'parley.sdk.client' in early)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path, capture_output=True, text=True
    )

    assert done.stdout == "[] False\n"
