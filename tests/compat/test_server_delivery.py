"""How the MCP servers of the official TypeScript SDK reach our engine: on its command line, or in `initialize`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.models.script import ScriptedCall, ScriptedTurn
from tests.compat.harness import HELLO, Report, Stage
from tests.compat.install import Client
from tests.helpers import paths

pytest_plugins = ["tests.compat.clients"]

SECRET = "in-the-header-or-the-environment"
STDIO = {
    "program": {
        "type": "stdio",
        "command": sys.executable,
        "args": [str(paths.MCP_SERVERS / "plain.py"), "well"],
        "env": {"SECRET": SECRET},
    }
}
NAMES = ("mcp__program__echo", "mcp__web__say", "mcp__host__say")
CALLS = [ScriptedTurn(tools=[ScriptedCall(name=name, id=name, input={}) for name in NAMES]), HELLO]


@pytest.fixture
def stage(typescript_sdk: Client, tmp_path: Path) -> Stage:
    return Stage(typescript_sdk, tmp_path)


def deliver(stage: Stage, servers: Any = STDIO, **options: Any) -> Report:
    options = {"allowedTools": [*NAMES], **options}
    return stage.run(
        "delivery", CALLS, prompt="Hi", servers=servers, secret=SECRET, options=options, spawn_ourselves=True
    )


def find_results(report: Report) -> dict[str, str]:
    blocks = [block for one in report.messages if one["type"] == "user" for block in one["message"]["content"]]
    return {block["tool_use_id"]: block["content"][0]["text"] for block in blocks}


def find_states(report: Report) -> dict[str, str]:
    [init] = [message for message in report.messages if message.get("subtype") == "init"]
    return {one["name"]: one["status"] for one in init["mcp_servers"]}


def test_servers_of_all_kinds_are_read_from_initialize_without_a_warning(stage: Stage) -> None:
    report = deliver(stage, mcpServersDelivery="initialize")

    assert report.of("described")[0]["mcp_servers_applied"] is True
    assert find_states(report) == {"program": "connected", "web": "connected", "host": "connected"}
    assert find_results(report) == dict(zip(NAMES, ("{}", SECRET, "of the host"), strict=True))
    assert report.messages[-1]["result"] == "Hello there."
    assert (report.of("warning"), report.warnings()) == ([], [])
    assert SECRET not in json.dumps(report.of("spawn")[0]["args"])


def test_the_command_line_is_still_read(stage: Stage) -> None:
    report = deliver(stage, mcpServersDelivery="argv")

    assert "mcp_servers_applied" not in report.of("described")[0]
    assert find_states(report) == {"program": "connected", "web": "connected", "host": "connected"}
    assert find_results(report)["mcp__web__say"] == SECRET


def test_a_server_that_fails_does_not_fail_the_session(stage: Stage) -> None:
    servers = {**STDIO, "gone": {"type": "http", "url": "http://127.0.0.1:9/mcp"}, "odd": {"type": "telepathy"}}

    report = deliver(stage, servers, mcpServersDelivery="initialize")

    assert report.of("described")[0]["mcp_servers_applied"] is True
    connected = {"program": "connected", "web": "connected", "host": "connected"}
    assert find_states(report) == {**connected, "gone": "failed", "odd": "failed"}
    assert report.messages[-1]["result"] == "Hello there."
