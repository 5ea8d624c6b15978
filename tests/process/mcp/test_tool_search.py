"""250 MCP tools behind a search, through the executable: what requests carry, and that the tools work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.models.catalog import CHARS_PER_TOKEN
from parley.models.script import Script, ScriptedCall, ScriptedError, ScriptedTurn
from parley.testing.model_server import ModelServer, running
from tests.helpers import paths
from tests.helpers.environment import base_environment
from tests.helpers.mcp import script
from tests.helpers.patience import PATIENCE_SECONDS

PARLEY = str(Path(sys.executable).with_name("parley"))
FLAGS = ("--output-format", "stream-json", "--verbose", "--allowedTools", "mcp__many")
MAX_TOKENS = 2_000
TASK: list[list[tuple[str, dict[str, Any]]]] = [
    [("ToolSearch", {"query": "select:mcp__many__create_invoice_0,read_customer_11"})],
    [("ToolSearch", {"query": "+archive shipment", "max_results": 1})],
    [("mcp__many__create_invoice_0", {"id": "a"}), ("mcp__many__read_customer_11", {"id": "b"})],
    [("mcp__many__archive_shipment_27", {"id": "c"})],
]
"""A task that needs three of the tools."""
THROUGH_SEARCH = [*TASK[:3], [("ToolSearch", {"call": "mcp__many__archive_shipment_27", "input": {"id": "c"}})]]
"""The same task; one tool is called as servers without references need it."""


def play(task: list[list[tuple[str, dict[str, Any]]]]) -> Script:
    calls = [ScriptedTurn(tools=[ScriptedCall(name=name, input=input) for name, input in turn]) for turn in task]
    return Script(turn=[*calls, ScriptedTurn(text="Done.")])


SCRIPT = play(TASK)
LOADED = ["mcp__many__create_invoice_0", "mcp__many__read_customer_11", "mcp__many__archive_shipment_27"]
BUILT_IN = ["Agent", "Bash", "Edit", "Grep", "Read", "Write", "ToolSearch"]


def run(folder: Path, *argv: str, prompt: str = "go", **environment: str) -> list[dict[str, Any]]:
    """The lines of a run with 250 tools."""
    program = str(paths.MCP_SERVERS / "many.py")
    servers = {"many": {"command": sys.executable, "args": [program, "250"], "required": True}}
    done = subprocess.run(
        [PARLEY, "--print", prompt, *FLAGS, "--mcp-config", json.dumps({"mcpServers": servers}), *argv],
        capture_output=True,
        cwd=folder,
        env={"HOME": str(folder / "home"), **base_environment(), **environment},
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def results(lines: list[dict[str, Any]]) -> list[Any]:
    return [line["message"]["content"][0]["content"] for line in lines if line["type"] == "user"]


def tool_lists(server: ModelServer) -> list[list[dict[str, Any]]]:
    return [exchange.body["tools"] for exchange in server.exchanges if exchange.raw and exchange.body.get("tools")]


def names(tools: list[dict[str, Any]]) -> list[str]:
    return [str(tool.get("name") or tool["function"]["name"]) for tool in tools]


def tokens(tools: list[dict[str, Any]]) -> int:
    return len(json.dumps(tools, separators=(",", ":"))) // CHARS_PER_TOKEN


def check_task(lines: list[dict[str, Any]]) -> None:
    first, second, *called = results(lines)
    assert [block["tool_name"] for block in (*first, *second)] == LOADED
    assert [block["text"] for [block] in called] == [
        "create_invoice_0: a",
        "read_customer_11: b",
        "archive_shipment_27: c",
    ]
    assert (lines[-1]["subtype"], lines[-1]["result"], lines[-1]["permission_denials"]) == ("success", "Done.", [])


@pytest.mark.parametrize("model", ["claude-sonnet-5-5", "openai:some-model"])
def test_the_first_request_carries_few_definitions_and_three_of_250_tools_are_found(model: str, tmp_path: Path) -> None:
    with running(play(THROUGH_SEARCH)) as server:
        urls = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
        lines = run(tmp_path, "--model", model, **urls)
    check_task(lines)
    first, *others = tool_lists(server)
    with running(SCRIPT) as everything:
        urls = {"ANTHROPIC_BASE_URL": everything.url, "OPENAI_BASE_URL": f"{everything.url}/v1"}
        run(tmp_path, "--model", model, ENABLE_TOOL_SEARCH="false", **urls)
    all_tools = tool_lists(everything)[0]
    assert tokens(first) <= MAX_TOKENS
    assert len(all_tools) > 250
    assert names(first) == BUILT_IN
    assert others == [first] * 4
    assert "create_invoice_0" in json.dumps(server.exchanges[0].body["messages"])
    # A server that may not know references gets definitions as text.
    last = json.dumps(server.exchanges[-1].body)
    assert ("defer_loading" in last, "tool_reference" in last) == (False, False)
    assert all(f'\\"name\\":\\"{name}\\"' in last for name in LOADED)


def test_the_messages_api_gets_references_if_it_is_said_to_take_them(tmp_path: Path) -> None:
    with running(SCRIPT) as server:
        check_task(run(tmp_path, "--model", "sonnet", ANTHROPIC_BASE_URL=server.url, ENABLE_TOOL_SEARCH="true"))
    first, *_, last = server.exchanges
    assert "anthropic-beta" not in first.headers
    assert last.headers["anthropic-beta"] == "advanced-tool-use-2025-11-20"
    assert [tool["name"] for tool in last.body["tools"] if tool.get("defer_loading")] == LOADED
    found = [
        block for message in last.body["messages"] for block in message["content"] if block["type"] == "tool_result"
    ]
    assert found[0]["content"] == [{"type": "tool_reference", "tool_name": name} for name in LOADED[:2]]


def test_a_server_that_rejects_references_gets_definitions_instead(tmp_path: Path) -> None:
    text = "tools.7.defer_loading: Extra inputs are not permitted"
    rejection = ScriptedTurn(error=ScriptedError(status=400, type="invalid_request_error", message=text))
    with running(Script(turn=[SCRIPT.turn[0], rejection, *SCRIPT.turn[1:]])) as server:
        check_task(run(tmp_path, "--model", "sonnet", ANTHROPIC_BASE_URL=server.url, ENABLE_TOOL_SEARCH="true"))
    assert names(server.exchanges[-1].body["tools"]) == [*BUILT_IN, *LOADED]
    assert "defer_loading" not in json.dumps(server.exchanges[2].body)
    assert "tool_reference" not in json.dumps(server.exchanges[2].body)


def test_the_scripted_model_finds_and_calls_them_and_a_resumed_session_still_has_them(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(script(*TASK, "Done."))
    lines = run(tmp_path, "--model", f"scripted:{tmp_path / 'task.toml'}")
    check_task(lines)
    [init] = [line for line in lines if line.get("subtype") == "init"]
    assert {"ToolSearch", "Glob", *LOADED} <= set(init["tools"])
    detail = next(line["tool_use_result"] for line in lines if line["type"] == "user")
    assert detail["matches"] == LOADED[:2]
    assert detail["total_deferred_tools"] > 250

    with running(Script(turn=[ScriptedTurn(text="Hello again.")])) as server:
        run(tmp_path, "--model", "sonnet", "--resume", init["session_id"], ANTHROPIC_BASE_URL=server.url)
    assert names(tool_lists(server)[0]) == [*BUILT_IN, *LOADED]


def test_an_invalid_setting_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [PARLEY, "--print", "hi", "--model", "offline"],
        capture_output=True,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), **base_environment(), "ENABLE_TOOL_SEARCH": "auto:many"},
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode != 0
    assert b"ENABLE_TOOL_SEARCH must be true, false, auto or auto:N" in done.stderr
