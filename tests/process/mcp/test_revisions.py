"""Servers of every revision of MCP over every transport, through the executable: which is spoken, and what works."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from parley import Client, Options
from tests.helpers import paths
from tests.helpers.environment import base_environment
from tests.helpers.mcp_servers.revisions import Server
from tests.helpers.patience import PATIENCE_SECONDS

PROGRAM = str(paths.MCP_SERVERS / "revisions.py")
WORKSHOP = str(paths.MCP_SERVERS / "workshop.py")
OLDER, OLD, NEW = "2025-06-18", "2025-11-25", "2026-07-28"
DUAL = f"{OLD},{NEW}"
CELLS = [
    # transport, revisions, what an old server does with an unknown request, the revision that is spoken
    *(("stdio", OLDER, manner, OLDER) for manner in ("error", "silence", "exit")),
    *(("stdio", OLD, manner, OLD) for manner in ("error", "silence", "exit")),
    ("stdio", NEW, "error", NEW),
    ("stdio", DUAL, "error", NEW),
    *(("http", OLDER, manner, OLDER) for manner in ("error", "silence", "exit", "400", "404", "405", "406", "500")),
    *(("http", OLD, manner, OLD) for manner in ("error", "silence", "exit", "400", "404", "405", "406", "500")),
    ("http", NEW, "error", NEW),
    ("http", DUAL, "error", NEW),
    ("sdk", OLDER, "error", OLDER),
    ("sdk", OLD, "error", OLD),
    ("sdk", NEW, "error", NEW),
    ("sdk", DUAL, "error", OLD),
]


@contextmanager
def listening(*words: str) -> Iterator[int]:
    command = [sys.executable, PROGRAM, "http", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()


@contextmanager
def configured(transport: str, revisions: str, manner: str = "error") -> Iterator[Any]:
    """The configuration of a server."""
    match transport:
        case "stdio":
            yield {"command": sys.executable, "args": [PROGRAM, "stdio", revisions, manner]}
        case "http":
            with listening(revisions, manner) as port:
                yield {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        case "sdk":
            yield {"type": "sdk", "name": "far", "instance": Server(tuple(revisions.split(",")), manner)}


@asynccontextmanager
async def session(folder: Path, config: Any) -> AsyncIterator[Client]:
    options = Options(
        mcp_servers={"far": config},
        cli_path=str(Path(sys.executable).with_name("parley")),
        cwd=str(folder),
        model="offline",
        env={**base_environment(), "HOME": str(folder), "MCP_TIMEOUT": "60000"},
        on_elicitation=lambda question: {"action": "accept", "content": {"name": "Ada"}},
    )
    async with asyncio.timeout(PATIENCE_SECONDS), Client(options) as client:
        yield client


@asynccontextmanager
async def connected(folder: Path, config: Any) -> AsyncIterator[Client]:
    """A session whose server is connected."""
    async with session(folder, config) as client:
        status = await wait_for(client, lambda server: server["status"] != "pending")
        assert status["status"] == "connected", status
        yield client


async def wait_for(client: Client, is_reached: Callable[[Any], bool]) -> Any:
    """The state of the server as soon as it is the expected one."""
    while True:
        [server] = (await client.get_mcp_status())["mcpServers"]
        if is_reached(server):
            return server
        await asyncio.sleep(0.02)


async def call(client: Client, tool: str, **arguments: Any) -> str:
    answer = await client.mcp_call(f"mcp__far__{tool}", arguments)
    return str(answer)


@pytest.mark.parametrize(("transport", "revisions", "manner", "spoken"), CELLS)
async def test_a_server_is_spoken_to_in_a_revision_that_it_knows(
    tmp_path: Path, transport: str, revisions: str, manner: str, spoken: str
) -> None:
    with configured(transport, revisions, manner) as config:
        async with connected(tmp_path, config) as client:
            assert spoken in await call(client, "revision")


@pytest.mark.parametrize("transport", ["stdio", "http", "sdk"])
async def test_a_result_that_needs_input_is_asked_for_and_the_request_repeated(tmp_path: Path, transport: str) -> None:
    with configured(transport, NEW) as config:
        async with connected(tmp_path, config) as client:
            assert "Ada, where we were" in await call(client, "ask")


@pytest.mark.parametrize("transport", ["stdio", "http", "sdk"])
async def test_a_task_is_polled_to_its_end_and_its_question_is_answered(tmp_path: Path, transport: str) -> None:
    with configured(transport, NEW) as config:
        async with connected(tmp_path, config) as client:
            assert "done by Ada" in await call(client, "job")


async def test_a_task_outlives_its_connection(tmp_path: Path) -> None:
    with configured("http", NEW) as config:
        async with connected(tmp_path, config) as client:
            assert "done by Ada" in await call(client, "dropped_job")


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_change_is_noticed_by_listening(tmp_path: Path, transport: str) -> None:
    with configured(transport, NEW) as config:
        async with connected(tmp_path, config) as client:
            await call(client, "grow")
            await wait_for(client, lambda server: "grown" in [tool["name"] for tool in server["tools"]])


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_resource_is_read_once_while_it_is_fresh(tmp_path: Path, transport: str) -> None:
    with configured(transport, NEW) as config:
        async with connected(tmp_path, config) as client:
            first = await client.mcp_read_resource("far", "ui://one")
            assert await client.mcp_read_resource("far", "ui://one") == first
            assert "'1'" in await call(client, "reads")


async def test_a_server_of_the_package_is_spoken_to_in_the_newest_revision(tmp_path: Path) -> None:
    async with connected(tmp_path, {"command": sys.executable, "args": [WORKSHOP, "stdio"]}) as client:
        assert "42" in await call(client, "add", a=2, b=40)
        assert "Hello, Ada." in await call(client, "greet")


async def test_a_server_of_a_later_revision_fails_with_those_it_speaks(tmp_path: Path) -> None:
    with configured("stdio", "2031-01-01") as config:
        async with session(tmp_path, config) as client:
            failed = await wait_for(client, lambda server: server["status"] == "failed")
    assert (
        failed["error"] == "the server rejected the handshake: it speaks none of our revisions of MCP, only 2031-01-01"
    )
