"""What a host is asked about a tool of an MCP server, by a real one. Our own tools are in test_asking.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from parley.engine.approval.request import input_digest
from tests.helpers import paths
from tests.helpers.session import Json, SessionHarness

PROGRAM = paths.MCP_SERVERS / "gatekeeper.py"
NAME = "mcp__gate__decide"


async def test_a_question_about_a_tool_of_a_server_names_the_server(tmp_path: Path) -> None:
    gate = {"command": sys.executable, "args": [str(PROGRAM), str(tmp_path / "asked")]}
    call = f"[[turn]]\ntools = [{{ name = '{NAME}', id = 't1', input = {{ input = {{ a = 1 }} }} }}]\n"

    given = {"permission_prompt_tool": "stdio", "mcp_config": (json.dumps({"mcpServers": {"gate": gate}}),)}
    async with SessionHarness(tmp_path, call + "[[turn]]\ntext = 'Done.'\n", **given) as harness:
        harness.prompt("go")
        asked: Json = (await harness.receive("control_request"))["request"]

    assert asked == {
        "subtype": "can_use_tool",
        "tool_name": NAME,
        "mcp_server": {"name": "gate", "source": "dynamic"},
        "display_name": "Decide",
        "title": "Use Decide?",
        "input": {"input": {"a": 1}},
        "input_sha256": input_digest({"input": {"a": 1}}),
        "permission_suggestions": [
            {
                "type": "addRules",
                "rules": [{"toolName": NAME}],
                "behavior": "allow",
                "destination": "localSettings",
            }
        ],
        "tool_use_id": "t1",
        "server_policy_ask_only": True,
    }
    assert not (tmp_path / "asked").exists()
