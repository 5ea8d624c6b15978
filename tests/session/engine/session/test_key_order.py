"""The engine answers the same whatever the order of the keys in the client's lines."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.golden import write_otherwise
from tests.helpers.session import SessionHarness

SCRIPT = """
[[turn]]
text = "I make it."
tools = [{ name = "Bash", id = "t1", input = { command = "touch made" } }]

[[turn]]
text = "Done."
"""
HOOKS = {"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["h1"]}]}


async def talk(folder: Path, seed: int | None) -> list[Any]:
    """A session with a hook, a question and requests; its lines."""
    draw = random.Random(seed)

    def write(line: dict[str, Any]) -> bytes:
        return json.dumps(line).encode() if seed is None else write_otherwise(line, draw)

    folder.mkdir()
    async with SessionHarness(folder, SCRIPT, permission_prompt_tool="stdio") as harness:
        initialize = {"subtype": "initialize", "hooks": HOOKS}
        harness.send(write({"type": "control_request", "request_id": "i1", "request": initialize}))
        await harness.receive("control_response")
        message = {"role": "user", "content": "List them."}
        harness.send(write({"type": "user", "uuid": "5" * 8 + "-0000-4000-8000-" + "5" * 12, "message": message}))
        allow = {"behavior": "allow", "updatedInput": {"command": "touch other"}}
        for reply in ({}, allow, {}):  # the hook is asked again about the changed input
            asked = await harness.receive("control_request")
            response = {"subtype": "success", "request_id": asked["request_id"], "response": reply}
            harness.send(write({"type": "control_response", "response": response}))
        await harness.receive("result")
        for subtype in ("interrupt", "set_model", "mcp_status", "no_such_request"):
            harness.send(write({"type": "control_request", "request_id": subtype, "request": {"subtype": subtype}}))
            await harness.receive("control_response")
        assert (folder / "other").exists()
        return harness.lines


@pytest.mark.parametrize("seed", range(3))
async def test_a_talk_goes_the_same_in_any_order(tmp_path: Path, seed: int) -> None:
    expected = await talk(tmp_path / "plain", None)
    found = await talk(tmp_path / "other", seed)

    assert list(map(comparable, found)) == list(map(comparable, expected))


def comparable(line: dict[str, Any]) -> Any:
    """The kind of a line, and what it answers."""
    response = line.get("response", {})
    return line["type"], line.get("subtype"), response.get("subtype"), response.get("request_id"), line.get("result")
