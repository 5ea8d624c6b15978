"""MCP servers in a session: real servers, over every way there is, well behaved and not."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from room import Json, Room

PROGRAMS = Path(__file__).parent.parent / "mcp" / "programs"
PATIENCE_SECONDS = 40


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
    return {"command": sys.executable, "args": [str(PROGRAMS / program), *words], **more}


def config(**servers: Json) -> tuple[str, ...]:
    return (json.dumps({"mcpServers": servers}),)


def visit(
    folder: Path,
    turns: str,
    talk: Callable[[Room], Awaitable[None]],
    environment: dict[str, str] | None = None,
    **options: Any,
) -> Room:
    """A session with these options; the room remembers all lines."""

    async def bounded() -> Room:
        room = Room(folder, turns, **options)
        room.environment |= environment or {}
        async with asyncio.timeout(PATIENCE_SECONDS), room:
            await talk(room)
        return room

    return asyncio.run(bounded())


async def one_turn(room: Room) -> None:
    room.prompt("go")
    await room.hear("result")


def results(room: Room) -> list[Any]:
    """The contents of tool results, in their order."""
    lines = [line for line in room.told("user") if isinstance(line["message"]["content"], list)]
    blocks = [block for line in lines for block in line["message"]["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def states(room: Room) -> dict[str, str]:
    init = next(line for line in room.told("system") if line["subtype"] == "init")
    return {server["name"]: server["status"] for server in init["mcp_servers"]}


def news(room: Room) -> list[Json]:
    """What was told of servers."""
    return [line["mcp_server"] for line in room.told("system") if "mcp_server" in line]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


EVERYTHING = script(
    [
        ("mcp__workshop__add", {"a": 2, "b": 3}),
        ("mcp__workshop__measure", {"word": "plank"}),
        ("mcp__workshop__draw", {}),
        ("mcp__workshop__fail", {}),
        ("mcp__workshop__add", {"a": "two"}),
    ],
    [("ListMcpResourcesTool", {}), ("ReadMcpResourceTool", {"server": "workshop", "uri": "workshop://rules"})],
    "Done.",
)


def check_everything(room: Room) -> None:
    added, measured, [picture], failed, wrong, listed, read = results(room)
    assert added == [{"type": "text", "text": "5"}]
    assert measured == '{"letters":5}'
    assert (picture["type"], picture["source"]["media_type"]) == ("image", "image/png")
    assert "Error executing tool fail" in failed
    assert "add" in wrong
    assert json.loads(listed)[0]["uri"] == "workshop://rules"
    assert json.loads(read)[0]["text"] == "Wear glasses."
    assert states(room) == {"workshop": "connected"}


def test_a_stdio_server_gives_text_pictures_structure_errors_and_resources(tmp_path: Path) -> None:
    async def talk(room: Room) -> None:
        await one_turn(room)
        answer = (await room.ask("mcp_status"))["response"]["response"]
        [server] = answer["mcpServers"]
        assert server == {
            **server,
            "name": "workshop",
            "status": "connected",
            "serverInfo": {"name": "workshop", "version": "1.2.3"},
            "transport": "stdio",
            "scope": "dynamic",
            "source": "dynamic",
        }
        assert server["tools"][0] == {"name": "add", "annotations": {"readOnly": True}}

    room = visit(tmp_path, EVERYTHING, talk, mcp_config=config(workshop=own("workshop.py", "stdio")), allowed_tools=ALL)
    check_everything(room)
    assert next(line["tool_use_meta"] for line in room.told("assistant") if "tool_use_meta" in line) == [
        {"id": "t1", "display_name": "Add", "server_display_name": "workshop", "tool_name": "add"}
    ]


ALL = ("mcp__workshop", "mcp__plain", "ListMcpResourcesTool", "ReadMcpResourceTool")


@contextmanager
def listening(transport: str) -> Iterator[str]:
    """A server of the package on a port of this machine; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(PROGRAMS / "workshop.py"), transport, str(port)])
    try:
        for _ in range(400):
            with socket.socket() as probe:
                probe.settimeout(0.05)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            process.poll()
            assert process.returncode is None
            subprocess.run(["sleep", "0.05"], check=True)
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("transport", ["sse", "http"])
def test_a_server_behind_a_url_gives_the_same(tmp_path: Path, transport: str) -> None:
    with listening(transport) as url:
        servers = config(workshop={"type": transport, "url": url, "headers": {"X-From": "parley"}})
        room = visit(tmp_path, EVERYTHING, one_turn, mcp_config=servers, allowed_tools=ALL)
    check_everything(room)
