"""A session that runs as an agent: its prompt, tools, model and the rest are those of the agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parley.engine.agents.setup import allowed_agents
from parley.engine.context.system_prompt import DEFAULT, Instructions, render
from tests.helpers.mcp import own, results, script, visit
from tests.helpers.session import SessionHarness
from tests.session.engine.commands.test_commands import heard, put, saying, user_command


def lead(**fields: Any) -> Any:
    return {"agent": "boss", "agents": json.dumps({"boss": {"description": "d", "prompt": "You lead.", **fields}})}


def first_init(harness: SessionHarness) -> Any:
    return next(line for line in harness.messages("system") if line["subtype"] == "init")


def prompt_of(harness: SessionHarness) -> str:
    return str(harness.session.journal.system_text)


async def test_its_prompt_stands_in_the_place_of_ours(tmp_path: Path) -> None:
    put(tmp_path, "CLAUDE.md", "Be kind to cats.")
    harness = await visit(
        tmp_path, script("Hi."), saying("go"), **lead(criticalSystemReminder_EXPERIMENTAL="Mind the gap.")
    )
    text = prompt_of(harness)
    assert text.startswith("You lead.\n\nMind the gap.")
    assert "You are an agent that works for a person" not in text
    assert ["Working directory" in text, "Be kind to cats." in text] == [True, True]


def test_a_prompt_of_the_person_comes_before_that_of_the_agent() -> None:
    assert render(Instructions(replaced="Mine.", role="Its.")) == "Mine."
    assert render(Instructions(replaced="", role="Its.")) == "Its."
    assert render(Instructions(replaced="")) == ""
    assert render(Instructions()) == DEFAULT


async def test_it_has_the_tools_that_the_agent_has(tmp_path: Path) -> None:
    put(tmp_path, "home/.claude/skills/tidy/SKILL.md", "---\ndescription: T\n---\nTidy.")
    calls = script([("Write", {"file_path": str(tmp_path / "a.txt"), "content": "x"})], "Done.")
    harness = await visit(
        tmp_path, calls, saying("go"), **lead(tools=["Read", "Bash", "Agent(Explore)"]), skip_permissions=True
    )
    assert first_init(harness)["tools"] == ["Task", "Bash", "Read"]
    assert first_init(harness)["agents"] == ["Explore"]
    assert "No such tool available: Write" in results(harness)[0]
    assert not (tmp_path / "a.txt").exists()
    denied = await visit(tmp_path, script("Hi."), saying("go"), **lead(disallowedTools=["Bash", "Skill"]))
    assert {"Bash", "Skill"} & set(first_init(denied)["tools"]) == set()


async def test_its_model_mode_turns_and_effort_are_the_agents(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(script([("Read", {"file_path": "x"})], "Never."))
    given = lead(model=f"scripted:{other}", permissionMode="plan", maxTurns=1, effort="low")
    harness = await visit(
        tmp_path,
        script("Mine."),
        saying("go"),
        **{**given, "model": None},
        settings=json.dumps({"model": f"scripted:{tmp_path}/script.toml"}),
    )
    [result] = harness.messages("result")
    assert result["subtype"] == "error_max_turns"
    assert (first_init(harness)["permissionMode"], first_init(harness)["effort"]) == ("plan", "low")


async def test_what_the_command_line_says_comes_first(tmp_path: Path) -> None:
    given = lead(model="haiku", permissionMode="plan", maxTurns=1)
    calls = script([("Read", {"file_path": "x"})], "Mine.")
    harness = await visit(tmp_path, calls, saying("go"), **given, permission_mode="acceptEdits", max_turns=3)
    assert next(harness.messages("result"))["result"] == "Mine."
    assert first_init(harness)["permissionMode"] == "acceptEdits"


async def test_it_begins_with_what_the_agent_always_begins_with(tmp_path: Path) -> None:
    user_command(tmp_path, "brief", "Be brief about: $ARGUMENTS")
    harness = await visit(tmp_path, script("One.", "Two."), saying("cats", "dogs"), **lead(initialPrompt="/brief"))
    assert heard(harness) == ["Be brief about: cats", "dogs"]


async def test_an_agent_that_the_host_defines_is_found_when_it_says_so(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        await harness.request("initialize", agents={"boss": {"description": "d", "prompt": "You came late."}})
        await saying("go")(harness)

    harness = await visit(tmp_path, script("Hi."), scenario, agent="boss")
    assert prompt_of(harness).startswith("You came late.")


async def test_a_session_asks_no_model_as_an_agent_that_no_one_defines(tmp_path: Path) -> None:
    harness = await visit(tmp_path, script("Never."), saying("go"), agent="ghost")
    [result] = harness.messages("result")
    assert (result["subtype"], result["num_turns"]) == ("error_during_execution", 0)
    assert result["errors"][0].startswith(
        "There is no agent 'ghost' (--agent, or agent in settings). The agents are: Bash"
    )


async def test_its_skills_hooks_and_servers_are_the_sessions(tmp_path: Path) -> None:
    put(tmp_path, "home/.claude/skills/tidy/SKILL.md", "---\ndescription: T\n---\nLeave no crumbs.")
    noting = {"hooks": [{"type": "command", "command": f"cat >> {tmp_path}/heard"}]}
    given = lead(skills=["tidy"], hooks={"Stop": [noting]}, mcpServers=[{"shop": own("plain.py", "well")}])
    calls = script([("mcp__shop__which", {})], "Done.")
    harness = await visit(tmp_path, calls, saying("/cost", "go"), **given, allowed_tools=("mcp__shop",))
    assert results(harness)[0][0]["text"].isdecimal()
    assert any("Leave no crumbs." in text for text in heard(harness))
    [end] = [json.loads(line) for line in (tmp_path / "heard").read_text().splitlines()]
    assert (end["hook_event_name"], end["agent_type"]) == ("Stop", "boss")


async def test_an_interrupt_ends_the_command_of_a_skill_that_it_begins_with(tmp_path: Path) -> None:
    put(tmp_path, "home/.claude/skills/slow/SKILL.md", "---\ndescription: S\n---\nIt says !`touch begun; sleep 600`.")

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        while not (tmp_path / "begun").exists():
            await harness.request("get_session_cost")
        await harness.request("interrupt")
        assert (await harness.receive("result"))["terminal_reason"] == "aborted_streaming"

    await visit(tmp_path, script("Never."), scenario, **lead(skills=["slow"]), skip_permissions=True)


async def test_settings_may_name_the_agent(tmp_path: Path) -> None:
    given = {**lead(), "agent": None}
    harness = await visit(tmp_path, script("Hi."), saying("go"), **given, settings=json.dumps({"agent": "boss"}))
    assert prompt_of(harness).startswith("You lead.")


def test_which_agents_a_list_of_tools_lets_it_call() -> None:
    assert allowed_agents(["Read", "Agent(a, b)", "Task(c)", "Bash(git *)"]) == ["a", "b", "c"]
    assert allowed_agents(["Agent", "Agent(*)"]) == []
