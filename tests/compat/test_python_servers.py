"""MCP servers inside the official Python SDK, called by our engine: many at a time, answered in any order."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.models.script import ScriptedCall, ScriptedTurn
from tests.compat.harness import Report, Stage, installed
from tests.compat.install import CURRENT_PYTHON

COUNT = 32


def ringing(stage: Stage, door: str) -> Report:
    bells = [
        ScriptedCall(name="mcp__tower__bell", id=f"b{number}", input={"number": number}) for number in range(COUNT)
    ]
    turns = [
        ScriptedTurn(tools=bells),
        ScriptedTurn(tools=[ScriptedCall(name="mcp__tower__boom", id="x", input={})]),
        ScriptedTurn(text="Done."),
    ]
    env = {"CLAUDE_CODE_MAX_TOOL_USE_CONCURRENCY": str(COUNT)}
    return stage.run("tower", turns, env=env, door=door, count=COUNT)


@pytest.mark.parametrize("door", ["client", "stream", "string"])
def test_32_calls_at_a_time_are_answered_out_of_order_and_none_is_lost(tmp_path: Path, door: str) -> None:
    # The old release does not run with the `mcp` package of today.
    report = ringing(Stage(installed(CURRENT_PYTHON), tmp_path), door)

    results = {
        block["tool_use_id"]: block
        for message in report.messages
        if message["class"] == "UserMessage" and isinstance(message["content"], list)
        for block in message["content"]
    }
    rang = {f"b{number}": [{"type": "text", "text": f"rang {number}"}] for number in range(COUNT)}
    assert {name: block["content"] for name, block in results.items() if name != "x"} == rang
    assert "the bell is cracked" in str(results["x"]["content"])
    assert results["x"]["is_error"] is True
    assert report.of("rang") == list(reversed(range(COUNT)))
    assert report.messages[-1]["result"] == "Done."
    assert report.warnings() == []
    for status in report.of("status"):
        [tower] = status["mcpServers"]
        assert (tower["name"], tower["status"]) == ("tower", "connected")
        assert [tool["name"] for tool in tower["tools"]] == ["bell", "boom"]
