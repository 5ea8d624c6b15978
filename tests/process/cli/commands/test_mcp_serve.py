"""`parley mcp serve` through the real executable, driven by the official client."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

PARLEY = str(Path(sys.executable).with_name("parley"))
SECONDS = 90


@pytest.fixture
def connect(tmp_path: Path, environment: dict[str, str]) -> Any:
    @asynccontextmanager
    async def open_session(*options: str, **more: str) -> AsyncIterator[ClientSession]:
        server = StdioServerParameters(
            command=PARLEY, args=["mcp", "serve", *options], env={**environment, **more}, cwd=tmp_path
        )
        async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as session:
            await session.initialize()
            yield session

    return open_session


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


def decisions(tmp_path: Path) -> list[tuple[str, str]]:
    logs = (tmp_path / "home" / ".claude" / "projects").rglob("*.jsonl")
    entries = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    found = (entry["message"] for entry in entries if "decision" in entry.get("message", {}))
    return [(record["tool"], record["decision"]) for record in found]


async def test_the_tools_are_listed_with_their_schemas(connect: Any) -> None:
    async with connect() as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}

    assert {"Bash", "Edit", "Glob", "Grep", "Read", "Write"} <= set(tools)
    assert not {"Agent", "AskUserQuestion", "ExitPlanMode", "Skill"} & set(tools)
    assert tools["Read"].input_schema["required"] == ["file_path"]
    assert tools["Read"].annotations.read_only_hint is True
    assert tools["Bash"].annotations.read_only_hint is False


async def test_what_the_rules_allow_runs_and_is_recorded(connect: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("first line\n")
    async with connect("--allowedTools", "Bash(touch *)", "Write") as session:
        read = await session.call_tool("Read", {"file_path": str(tmp_path / "notes.txt")})
        assert "first line" in text_of(read)
        assert not read.is_error
        assert not (await session.call_tool("Bash", {"command": "touch made"})).is_error
        written = await session.call_tool("Write", {"file_path": str(tmp_path / "new.txt"), "content": "x"})
        assert not written.is_error

    assert (tmp_path / "made").exists()
    assert (tmp_path / "new.txt").read_text() == "x"
    assert decisions(tmp_path) == [("Read", "allow"), ("Bash", "allow"), ("Write", "allow")]


async def test_what_would_need_approval_is_denied_because_nobody_can_be_asked(connect: Any, tmp_path: Path) -> None:
    for options in ((), ("--permission-prompt-tool", "stdio"), ("--permission-mode", "plan")):
        async with connect(*options) as session:
            ran = await session.call_tool("Bash", {"command": "touch made"})
            written = await session.call_tool("Write", {"file_path": str(tmp_path / "new.txt"), "content": "x"})
        assert ran.is_error
        assert written.is_error

    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "new.txt").exists()
    assert {decision for _, decision in decisions(tmp_path)} == {"deny"}


async def test_deny_rules_hooks_and_settings_apply(connect: Any, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hush")
    config = tmp_path / "home" / ".claude"
    config.mkdir()
    hook = {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo no >&2; exit 2"}]}
    settings = {"permissions": {"deny": ["Read(//**/secret.txt)"], "allow": ["Bash"]}, "hooks": {"PreToolUse": [hook]}}
    (config / "settings.json").write_text(json.dumps(settings))

    async with connect() as session:
        read = await session.call_tool("Read", {"file_path": str(tmp_path / "secret.txt")})
        ran = await session.call_tool("Bash", {"command": "touch made"})

    assert read.is_error
    assert "hush" not in text_of(read)
    assert ran.is_error
    assert not (tmp_path / "made").exists()


async def test_keys_do_not_reach_commands(connect: Any) -> None:
    async with connect("--allowedTools", "Bash", ANTHROPIC_API_KEY="sk-secret") as session:
        assert "sk-secret" not in text_of(await session.call_tool("Bash", {"command": "env"}))


async def test_bad_calls_are_errors_and_the_server_continues(connect: Any, tmp_path: Path) -> None:
    async with connect() as session:
        with pytest.raises(MCPError, match="unknown tool 'Nope'"):
            await session.call_tool("Nope", {})
        wrong = await session.call_tool("Read", {"path": 3})
        assert wrong.is_error
        assert "file_path (required)" in text_of(wrong)
        assert (await session.call_tool("Read", {"file_path": str(tmp_path / "none")})).is_error
        await session.send_ping()


async def test_an_image_is_returned_as_one(connect: Any, tmp_path: Path) -> None:
    pixel = (
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63606060000000040001f617"
        "38550000000049454e44ae426082"
    )
    (tmp_path / "dot.png").write_bytes(bytes.fromhex(pixel))
    async with connect() as session:
        result = await session.call_tool("Read", {"file_path": str(tmp_path / "dot.png")})

    [image] = [block for block in result.content if block.type == "image"]
    assert image.mime_type == "image/png"


def serve(tmp_path: Path, environment: dict[str, str], *lines: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [PARLEY, "mcp", "serve"],
        input="".join(f"{line}\n" for line in lines).encode(),
        capture_output=True,
        cwd=tmp_path,
        env=environment,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_malformed_lines_are_answered_with_errors(tmp_path: Path, environment: dict[str, str]) -> None:
    answers = serve(
        tmp_path,
        environment,
        "nonsense",
        "[1]",
        '{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}',
        '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "Read", "arguments": 5}}',
        '{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": []}',
        '{"jsonrpc": "2.0", "id": true, "method": "ping"}',
        '{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [9]}}',
        '{"jsonrpc": "2.0", "id": 9, "result": {}}',
        '{"jsonrpc": "2.0", "id": "last", "method": "ping"}',
    )

    assert [(line["id"], line.get("error", {}).get("code")) for line in answers] == [
        (None, -32700),
        (None, -32600),
        (1, -32601),
        (2, -32602),
        (3, -32602),
        (None, -32600),
        ("last", None),
    ]


def test_an_argument_is_refused(run: Any) -> None:
    done = run("mcp", "serve", "extra")
    assert (done.returncode, done.stdout) == (1, "")
    assert "unexpected argument 'extra'" in done.stderr


def test_an_option_without_effect_is_named(run: Any) -> None:
    done = run("mcp", "serve", "--max-turns", "3", "--debug", "--verbose", "--output-format", "json")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == ["option '--output-format' has no effect with `parley mcp serve`"]
