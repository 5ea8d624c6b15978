"""What recipes share. Standard library only: a recipe runs in the environment of its program."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Coroutine
from typing import Any

Json = dict[str, Any]


def run_claude(prompt: str, *flags: str) -> list[Json]:
    """The lines of a session with one prompt."""
    command = ["claude", "-p", prompt, "--output-format", "stream-json", "--verbose", *flags]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def call_mcp_tool(server: Json | list[str], tool: str, input: Json, *expected: str) -> None:
    """Call a tool of an MCP server, which is its command or its entry in a configuration."""
    entry = {"command": server[0], "args": server[1:]} if isinstance(server, list) else server
    lines = run_claude(
        f"call mcp__s__{tool} {json.dumps(input)}",
        *("--mcp-config", json.dumps({"mcpServers": {"s": entry}}), "--strict-mcp-config"),
        *("--allowedTools", "mcp__s"),
    )
    servers = next(line["mcp_servers"] for line in lines if line.get("subtype") == "init")
    results = [
        block
        for line in lines
        if line["type"] == "user"
        for block in line["message"]["content"]
        if block["type"] == "tool_result"
    ]
    assert len(results) == 1, (servers, results, lines[-1]["result"])
    assert results[0].get("is_error") is not True, results
    assert all(text in json.dumps(results[0]["content"], ensure_ascii=False) for text in expected), results


def within(coroutine: Coroutine[Any, Any, Any], seconds: float = 120) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, seconds))
