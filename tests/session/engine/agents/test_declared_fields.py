"""Declared fields of an agent's definition have their effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.engine.agents.setup import agent_compaction
from parley.engine.context.history import CompactionPolicy
from parley.models.script import Script, ScriptedTurn
from parley.testing.model_server import running
from tests.helpers.session import Json, SessionHarness


async def system_of_agent(folder: Path, **fields: Any) -> str:
    """The system prompt of an agent with these fields."""
    (folder / "CLAUDE.md").write_text("Tabs, not spaces.")
    call: Json = {"description": "Look", "prompt": "Look around", "subagent_type": "scout"}
    block = {"type": "tool_use", "id": "t1", "name": "Agent", "input": call}
    turns = [ScriptedTurn(blocks=[block]), ScriptedTurn(text="Seen."), ScriptedTurn(text="Done.")]
    with running(Script(turn=turns, at_end="repeat")) as server:
        harness = SessionHarness(folder, "", model="claude-opus-5", skip_permissions=True)
        harness.environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "a-key-for-tests"}
        async with harness:
            scout = {"description": "Scouts", "prompt": "You scout.", **fields}
            await harness.request("initialize", agents={"scout": scout})
            harness.prompt("go")
            await harness.receive("result")
    return "\n".join(block["text"] for block in server.exchanges[1].body["system"])


@pytest.mark.parametrize("omitted", [True, False])
async def test_an_agent_may_go_without_memory_files(tmp_path: Path, omitted: bool) -> None:
    found = await system_of_agent(tmp_path, omitClaudeMd=omitted)

    assert found.startswith("You scout.")
    assert ("Tabs, not spaces." in found) is not omitted


async def test_an_agent_is_reminded_of_what_is_critical(tmp_path: Path) -> None:
    reminder = "Never delete anything."

    assert reminder in await system_of_agent(tmp_path, criticalSystemReminder_EXPERIMENTAL=reminder)


def test_an_agent_may_have_a_window_of_its_own() -> None:
    policy = CompactionPolicy()

    assert agent_compaction(policy, 200_000, 50_000).window == 50_000
    assert agent_compaction(policy, 200_000, 500_000) == policy


@pytest.mark.parametrize("background", [True, False])
async def test_an_agent_may_always_run_in_the_background(tmp_path: Path, background: bool) -> None:
    call = "{ description = 'Look', prompt = 'Look around', subagent_type = 'scout' }"
    script = f"at_end = 'repeat'\n[[turn]]\ntools = [{{ name = 'Agent', id = 't1', input = {call} }}]\n"
    async with SessionHarness(tmp_path, script + "[[turn]]\ntext = 'Seen.'\n", skip_permissions=True) as harness:
        scout = {"description": "Scouts", "prompt": "You scout.", "background": background}
        await harness.request("initialize", agents={"scout": scout})
        harness.prompt("go")
        started = await harness.receive("system", "task_started")
        await harness.receive("result")

    assert bool(started.get("is_backgrounded")) is background
