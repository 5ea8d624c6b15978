"""What tests of MCP servers share: scripts, servers that behave in several ways, sessions that have them."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.helpers import paths
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.session import Json, SessionHarness

PROGRAMS = paths.MCP_SERVERS
ALL = ("mcp__workshop", "mcp__plain", "ListMcpResourcesTool", "ReadMcpResourceTool")


def script(*turns: str | list[tuple[str, Json]]) -> str:
    """Turns of a model: a text, or calls of tools."""
    parts, count = [], 0
    for turn in turns:
        if isinstance(turn, str):
            parts.append(f"[[turn]]\ntext = {json.dumps(turn)}\n")
            continue
        calls = []
        for name, input in turn:
            count += 1
            calls.append(f"{{ name = '{name}', id = 't{count}', input = {table(input)} }}")
        parts.append(f"[[turn]]\ntools = [{', '.join(calls)}]\n")
    return "".join(parts)


def table(value: Json) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(one)}" for key, one in value.items()) + " }"


def own(program: str, *words: str, **more: Any) -> Json:
    """A server of ours. It is required, unless a test says otherwise: on a busy machine it may take its time."""
    return {"command": sys.executable, "args": [str(PROGRAMS / program), *words], "required": True, **more}


def workshop(**more: Any) -> Json:
    """`own("workshop.py", "stdio")`, forked from a process that has loaded it (mcp_servers/forked.py)."""
    client = {"command": sys.executable, "args": ["-I", "-S", str(PROGRAMS / "forked.py"), start_workshop()]}
    return {**client, "required": True, **more}


@cache
def start_workshop() -> str:
    """The name of its socket. The process ends with that of the tests, which holds its stdin."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("")  # Linux chooses a name
        listener.listen()
        command = [sys.executable, "-m", "tests.helpers.mcp_servers.forked", "serve", str(listener.fileno())]
        server = subprocess.Popen(command, cwd=paths.ROOT, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
        name: bytes = listener.getsockname()
    atexit.register(server.communicate)
    return name[1:].decode()


def config(**servers: Json) -> tuple[str, ...]:
    return (json.dumps({"mcpServers": servers}),)


async def visit(
    folder: Path,
    turns: str,
    conversation: Callable[[SessionHarness], Awaitable[None]],
    environment: dict[str, str] | None = None,
    **options: Any,
) -> SessionHarness:
    """Run a session with these options; the harness that is returned has all lines."""
    harness = SessionHarness(folder, turns, **options)
    harness.environment |= environment or {}
    async with asyncio.timeout(PATIENCE_SECONDS), harness:
        await conversation(harness)
    return harness


async def one_turn(harness: SessionHarness) -> None:
    harness.prompt("go")
    await harness.receive("result")


def results(harness: SessionHarness) -> list[Any]:
    """The contents of tool results, in the order of the calls: those that only read end as they like."""
    lines = [line for line in harness.messages("user") if isinstance(line["message"]["content"], list)]
    blocks = [block for line in lines for block in line["message"]["content"]]
    found = [block for block in blocks if block["type"] == "tool_result"]
    found.sort(key=lambda block: (len(block["tool_use_id"]), block["tool_use_id"]))
    return [block["content"] for block in found]


def states(harness: SessionHarness) -> dict[str, str]:
    init = next(line for line in harness.messages("system") if line["subtype"] == "init")
    return {server["name"]: server["status"] for server in init["mcp_servers"]}


def news(harness: SessionHarness) -> list[Json]:
    """What was told of servers."""
    return [line["mcp_server"] for line in harness.messages("system") if "mcp_server" in line]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def answer(request: Json, payload: Any) -> Json:
    response = {"subtype": "success", "request_id": request["request_id"], "response": payload}
    return {"type": "control_response", "response": response}


async def seen(harness: SessionHarness, wanted: Callable[[Json], bool]) -> Json:
    """A line that came already, or comes yet."""
    found = next((line for line in harness.lines if wanted(line)), None)
    return await harness.receive_until(wanted) if found is None else found
