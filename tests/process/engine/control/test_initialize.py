"""The fields of `initialize` through the executable. A server of the Messages API sees what reaches the model.

Plugins and managed settings of the handshake are in `tests/process/cli/test_await_initialize.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.engine.context.system_prompt import BOUNDARY
from parley.models.script import Script, ScriptedTurn
from parley.testing.model_server import running
from tests.helpers.hooks import reply, results
from tests.helpers.mcp import script
from tests.helpers.process import ProcessHarness
from tests.helpers.session import Json

API_KEY = "sk-test"
AGENT = (
    "[[turn]]\nwhen = 'go'\n"
    "tools = [{ name = 'Agent', input = { description = 'd', prompt = 'SUBTASK', run_in_background = true } }]\n"
    "[[turn]]\nwhen = 'SUBTASK'\ntools = [{ name = 'Bash', input = { command = 'touch made' } }]\n"
    "[[turn]]\ntext = 'Started.'\n[[turn]]\ntext = 'Done.'\n[[turn]]\ntext = 'Done.'\n"
)


async def sent(folder: Path, *prompts: str, argv: tuple[str, ...] = (), **fields: Any) -> list[Json]:
    """The requests that reach the model after this handshake."""
    with running(Script(turn=[ScriptedTurn(text="Hello.")], at_end="repeat")) as server:
        api: Json = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": API_KEY}
        async with ProcessHarness(folder, "", "--model", "claude-opus-4-5", *argv, **api) as harness:
            await harness.answer("initialize", **fields)
            for prompt in prompts or ("go",):
                if prompt.startswith("/mode "):
                    await harness.answer("set_permission_mode", mode=prompt.removeprefix("/mode "))
                    continue
                (folder / "CLAUDE.md").write_text(f"Note for {prompt}.")
                await harness.turn(prompt)
    return [exchange.body for exchange in server.exchanges]


def system_of(request: Json) -> str:
    return "".join(block["text"] for block in request["system"])


async def test_tool_aliases_name_the_tools_that_run(tmp_path: Path) -> None:
    calls = script([("Shell", {"command": "echo one"})], [("Shell", {"command": "rm x"})], "Done.")
    flags = ("--allowedTools", "Bash(echo one)", "--disallowedTools", "Bash(rm *)")
    async with ProcessHarness(tmp_path, calls, *flags) as harness:
        await harness.answer("initialize", toolAliases={"Shell": "Bash"})
        await harness.turn()
    first, second = results(harness)
    assert first == "one"
    assert "Bash(rm *)" in second


async def test_a_title_names_the_session(tmp_path: Path) -> None:
    async with ProcessHarness(tmp_path, script("Done.")) as harness:
        await harness.answer("initialize", title="  My\n talk ")
        result = await harness.turn()
    [transcript] = (tmp_path / "home").rglob(f"{result['session_id']}.jsonl")
    titles = [json.loads(line) for line in transcript.read_text().splitlines() if "My talk" in line]
    assert titles


async def test_instructions_for_plan_mode_reach_the_model_when_it_begins(tmp_path: Path) -> None:
    before, after = await sent(tmp_path, "one", "/mode plan", "two", planModeInstructions="Draw a map of the parts.")
    assert "Draw a map" not in str(before)
    assert "Draw a map of the parts." in str(after)


@pytest.mark.parametrize("excluded", [True, False])
async def test_excluded_sections_move_into_the_first_message(tmp_path: Path, excluded: bool) -> None:
    [request] = await sent(tmp_path, excludeDynamicSections=excluded)
    for fact in (str(tmp_path), "Note for go."):
        assert (fact in system_of(request), fact in str(request["messages"])) == (not excluded, excluded)


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_snapshot_keeps_the_first_system_prompt(tmp_path: Path, recorded: bool) -> None:
    first, second = await sent(tmp_path, "one", "two", systemPromptSnapshot=recorded)
    assert "Note for one." in system_of(first)
    assert ("Note for two." in system_of(second)) is not recorded


async def test_the_part_before_the_boundary_is_cached(tmp_path: Path) -> None:
    [request] = await sent(tmp_path, systemPrompt=["Static.", BOUNDARY, "Dynamic."])
    assert request["system"] == [
        {"type": "text", "text": "Static.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Dynamic.", "cache_control": {"type": "ephemeral"}},
    ]


@pytest.mark.parametrize("declared", [True, False])
async def test_an_interrupt_spares_background_agents_of_clients_that_can_stop_them(
    tmp_path: Path, declared: bool
) -> None:
    async with ProcessHarness(tmp_path, AGENT, "--permission-prompt-tool", "stdio") as harness:
        await harness.answer("initialize", perTaskStopAffordance=declared)
        harness.prompt("go")
        started = await harness.receive("system", "task_started")
        asked = await harness.receive_until(lambda line: line["type"] == "control_request")
        await harness.answer("interrupt")
        if declared:
            harness.send(reply(asked, {"behavior": "deny", "message": "no"}))
    [ended] = harness.of("task_notification")
    assert (ended["task_id"], ended["status"]) == (started["task_id"], "completed" if declared else "stopped")


@pytest.mark.parametrize("disabled", [True, False])
async def test_summaries_of_agents_are_accepted_and_reported_where_the_environment_forbids_them(
    tmp_path: Path, disabled: bool
) -> None:
    forbidden: Json = {"CLAUDE_CODE_DISABLE_AGENT_PROGRESS_SUMMARIES": "1"} if disabled else {}
    async with ProcessHarness(tmp_path, script("Done."), **forbidden) as harness:
        await harness.answer("initialize", agentProgressSummaries=True)
        await harness.turn()
    found = [line["content"] for line in harness.of("informational")]
    assert [text.partition(" ")[0] for text in found] == ["initialize.agentProgressSummaries"] * disabled


@pytest.mark.parametrize("format", ["html", "markdown"])
async def test_previews_of_questions_are_asked_for_in_the_format_of_the_client(tmp_path: Path, format: str) -> None:
    with running(Script(turn=[ScriptedTurn(text="Hello.")])) as server:
        api: Json = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": API_KEY}
        flags = ("--model", "claude-opus-4-5", "--permission-prompt-tool", "stdio")
        async with ProcessHarness(
            tmp_path, "", *flags, **api, CLAUDE_CODE_QUESTION_PREVIEW_FORMAT=format, ENABLE_TOOL_SEARCH="false"
        ) as harness:
            await harness.turn()
    [tool] = [tool for tool in server.exchanges[0].body["tools"] if tool["name"] == "AskUserQuestion"]
    assert ("HTML" in json.dumps(tool)) is (format == "html")
