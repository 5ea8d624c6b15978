"""`--sdk-url`: the engine connects to a WebSocket server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from tests.helpers.forked import PARLEY
from tests.helpers.patience import PATIENCE_SECONDS

TOKEN = "a-token-for-tests"


class Host:
    """What the engine connects to."""

    def __init__(self) -> None:
        self.url = ""
        self.connections: asyncio.Queue[ServerConnection] = asyncio.Queue()

    async def handle(self, connection: ServerConnection) -> None:
        self.connections.put_nowait(connection)
        await connection.wait_closed()


@asynccontextmanager
async def hosting() -> AsyncIterator[Host]:
    host = Host()
    async with serve(host.handle, "127.0.0.1", 0, max_size=None) as server:
        host.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/engine?secret=1"
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield host


async def start(
    folder: Path, url: str, *options: str, program: tuple[str, ...] = (PARLEY,)
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(*program, "--model", "offline", "--sdk-url", url, *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "CLAUDE_CODE_SESSION_ACCESS_TOKEN": TOKEN},
    )


async def read_until(connection: ServerConnection, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while not found or found[-1]["type"] != kind:
        frame = await connection.recv()
        assert isinstance(frame, str)
        assert frame.endswith("\n")
        assert frame.count("\n") == 1
        found.append(json.loads(frame))
    return found


def user(text: str) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}})


async def test_the_engine_dials_out_and_ends_with_the_socket(tmp_path: Path) -> None:
    async with hosting() as host:
        engine = await start(tmp_path, host.url)
        connection = await host.connections.get()
        assert connection.request is not None
        assert connection.request.headers["Authorization"] == f"Bearer {TOKEN}"
        request = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}}
        await connection.send(json.dumps(request) + "\n")
        await connection.send(user("say Hello.") + "\n")
        lines = await read_until(connection, "result")
        assert [line["type"] for line in lines] == ["control_response", "system", "assistant", "result"]
        await connection.send(user('call Bash {"command": "env"}'))  # without a line end
        (asked,) = [line for line in await read_until(connection, "control_request") if "request_id" in line]
        response = {"subtype": "success", "request_id": asked["request_id"], "response": {"behavior": "allow"}}
        await connection.send(json.dumps({"type": "control_response", "response": response}) + "\n")
        assert TOKEN not in str(await read_until(connection, "result"))
        await connection.close()
        out, errors = await engine.communicate()
        assert (engine.returncode, out, errors) == (0, b"", b"")


async def test_a_signal_ends_the_turn_and_its_result_still_arrives(tmp_path: Path) -> None:
    async with hosting() as host:
        engine = await start(tmp_path, host.url)
        connection = await host.connections.get()
        await connection.send(user("wait 60"))
        await read_until(connection, "system")
        os.kill(engine.pid, signal.SIGTERM)
        assert (await read_until(connection, "result"))[-1]["is_error"] is True
        assert await engine.wait() == 143


async def test_an_error_of_the_start_reaches_the_host(tmp_path: Path) -> None:
    async with hosting() as host:
        engine = await start(tmp_path, host.url, "--resume", "99999999-9999-4999-8999-999999999999")
        connection = await host.connections.get()
        (line,) = await read_until(connection, "result")
        assert "No conversation found" in str(line)
        assert await engine.wait() == 1


async def test_a_server_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    engine = await start(tmp_path, f"ws://name:word@127.0.0.1:{port}/x?secret=1")
    out, errors = await engine.communicate()
    assert (engine.returncode, out) == (1, b"")
    assert errors.decode().startswith(f"Error: cannot connect to ws://127.0.0.1:{port}/x: ")
    assert b"word" not in errors


async def test_other_urls_are_refused(tmp_path: Path) -> None:
    engine = await start(tmp_path, "http://127.0.0.1/x")
    out, errors = await engine.communicate()
    assert (engine.returncode, out) == (1, b"")
    assert b"option '--sdk-url' needs the URL of a WebSocket (ws:// or wss://), not 'http://127.0.0.1/x'" in errors


async def test_a_prompt_on_the_command_line_is_ignored_with_a_warning(tmp_path: Path) -> None:
    async with hosting() as host:
        engine = await start(tmp_path, host.url, "-p", "placeholder")
        connection = await host.connections.get()
        await connection.send(user("say Hello."))
        lines = await read_until(connection, "result")
        ignored = "the prompt on the command line is ignored: with --sdk-url, the server sends the prompts"
        assert [line["content"] for line in lines if line.get("subtype") == "informational"] == [ignored]
        assert lines[-1]["result"] == "Hello."
        await connection.close()
        out, errors = await engine.communicate()
        assert (engine.returncode, out, errors.decode()) == (0, b"", f"{ignored}\n")


async def test_a_missing_package_is_named(tmp_path: Path) -> None:
    without = "import sys; sys.modules['websockets'] = None; from parley.cli.main import run; run()"
    engine = await start(tmp_path, "ws://127.0.0.1/x", program=(sys.executable, "-c", without))
    out, errors = await engine.communicate()
    assert (engine.returncode, out) == (1, b"")
    assert b"pip install 'parley-agent[remote]'" in errors
