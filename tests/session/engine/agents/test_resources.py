"""What a subagent brings along: skills, hooks, servers and a memory, and nothing of it from a tree no one trusts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.mcp import alive, own, results, visit
from tests.helpers.session import Json, SessionHarness
from tests.session.engine.commands.test_commands import put, saying

CALL = '[[turn]]\nwhen = "go"\ntools = [{ name = "Agent", id = "t1", input = { description = "d", %s } }]\n'
KIND = 'prompt = "SUBTASK", subagent_type = "helper"'
BASH = '[[turn]]\nwhen = "SUBTASK"\ntools = [{ name = "Bash", id = "t2", input = { command = "echo insub" } }]\n'
END = '[[turn]]\ntext = "Sub answer."\n[[turn]]\ntext = "Done."\n'


def helper(**fields: Any) -> str:
    return json.dumps({"helper": {"description": "d", "prompt": "You help.", **fields}})


def transcript(folder: Path) -> str:
    [path] = (folder / "home").rglob("subagents/*.jsonl")
    return path.read_text()


def skill(folder: Path, name: str, text: str) -> None:
    put(folder, f"home/.claude/skills/{name}/SKILL.md", text)


async def test_a_skill_that_an_agent_is_given_is_in_its_context_from_the_start(tmp_path: Path) -> None:
    skill(tmp_path, "tidy", "---\ndescription: T\n---\nLeave no crumbs.")
    skill(tmp_path, "secret", "---\ndescription: S\ndisable-model-invocation: true\n---\nHush.")
    script = CALL % KIND + '[[turn]]\nwhen = "crumbs"\ntext = "Sub answer."\n[[turn]]\ntext = "Done."\n'
    given = helper(skills=["tidy", "nobody", "secret"])
    harness = await visit(tmp_path, script, saying("go"), agents=given)
    assert "Leave no crumbs." in transcript(tmp_path)
    assert "Hush." not in transcript(tmp_path)
    assert [next(harness.messages("result"))["result"], *harness.warnings] == [
        "Done.",
        "agent 'helper': there is no skill 'nobody' that a model can use",
        "agent 'helper': there is no skill 'secret' that a model can use",
    ]


async def test_the_hooks_of_an_agent_are_called_for_it_alone(tmp_path: Path) -> None:
    def noting(name: str) -> list[Json]:
        return [{"matcher": "", "hooks": [{"type": "command", "command": f"cat >> {tmp_path}/{name}"}]}]

    hooks = {"PreToolUse": noting("calls"), "Stop": noting("ends")}
    script = (
        CALL % KIND
        + BASH
        + END.replace(
            '[[turn]]\ntext = "Done."',
            '[[turn]]\ntools = [{ name = "Bash", input = { command = "true" } }]\n[[turn]]\ntext = "Done."',
        )
    )
    await visit(tmp_path, script, saying("go"), agents=helper(hooks=hooks), skip_permissions=True)
    [call] = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    [end] = [json.loads(line) for line in (tmp_path / "ends").read_text().splitlines()]
    assert (call["agent_type"], call["tool_input"]) == ("helper", {"command": "echo insub"})
    assert (end["hook_event_name"], end["last_assistant_message"]) == ("SubagentStop", "Sub answer.")


async def test_a_hook_of_an_agent_may_answer_its_permission_questions(tmp_path: Path) -> None:
    answer = json.dumps({"hookSpecificOutput": {"decision": {"behavior": "allow"}}})
    hooks = {"PermissionRequest": [{"hooks": [{"type": "command", "command": f"echo '{answer}'"}]}]}
    touch = (
        f'[[turn]]\nwhen = "SUBTASK"\ntools = [{{ name = "Bash", input = {{ command = "touch {tmp_path}/made" }} }}]\n'
    )
    await visit(tmp_path, CALL % KIND + touch + END, saying("go"), agents=helper(hooks=hooks))
    assert (tmp_path / "made").exists()


async def test_a_server_of_an_agent_is_there_for_it_and_gone_after_it(tmp_path: Path) -> None:
    script = (
        CALL % KIND
        + '[[turn]]\nwhen = "SUBTASK"\ntools = [{ name = "mcp__shop__which", id = "t2" }]\n'
        + '[[turn]]\ntext = "Sub answer."\n'
        + '[[turn]]\nwhen = "Sub answer."\ntools = [{ name = "mcp__shop__which", id = "t3" }]\n'
        + '[[turn]]\ntext = "Done."\n'
    )
    given = helper(mcpServers=[{"shop": own("plain.py", "well")}], tools=["Read"])
    harness = await visit(tmp_path, script, saying("go"), agents=given, allowed_tools=("mcp__shop",))
    _, [pid], refusal = results(harness)
    assert "No such tool available: mcp__shop__which" in refusal
    assert not any("mcp__shop__which" in line.get("tools", ()) for line in harness.messages("system"))
    assert not alive(int(pid["text"]))


async def test_an_agent_is_notified_of_its_own_server_that_is_missing(tmp_path: Path) -> None:
    script = (
        CALL % KIND
        + '[[turn]]\nwhen = "Some of your own tools are missing"\ntext = "Sub answer."\n[[turn]]\ntext = "Done."\n'
    )
    given = helper(mcpServers=[{"gone": {"command": "/nowhere/at-all"}, "odd": {"type": "what"}}])
    harness = await visit(tmp_path, script, saying("go"), agents=given)
    assert next(harness.messages("result"))["result"] == "Done."
    assert "the MCP server 'gone' is not connected" in transcript(tmp_path)
    first, second = harness.warnings[:2]
    assert ("invalid MCP server" in first, "is not connected (failed)" in second) == (True, True)


@pytest.mark.parametrize("scope", ["user", "project", "local"])
async def test_an_agent_with_a_memory_is_shown_what_it_wrote(tmp_path: Path, scope: str) -> None:
    folder = {"user": "home/.claude/agent-memory", "project": ".claude/agent-memory"}
    place = folder.get(scope, ".claude/agent-memory-local")
    put(tmp_path, f"{place}/helper/MEMORY.md", "The tests need port 4711.")
    await visit(tmp_path, CALL % KIND + END, saying("go"), agents=helper(memory=scope))
    assert "port 4711" in transcript(tmp_path)
    assert f"{place}/helper" in transcript(tmp_path)


async def test_a_smaller_window_makes_an_agent_compact_earlier(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        from parley.engine.agents.setup import agent_compaction

        policy = harness.session.config.compaction
        assert [agent_compaction(policy, 1000, wish).window for wish in (500, 2000, 0, "x")] == [500, None, None, None]

    await visit(tmp_path, "", scenario)


async def test_an_agent_of_a_tree_that_no_one_trusts_runs_nothing(tmp_path: Path) -> None:
    traps = [f"touch {tmp_path}/sprung-{n}" for n in range(4)]
    head = f"""---
name: helper
description: d
skills: trap
initialPrompt: /trap
hooks:
  PreToolUse:
    - matcher: ""
      hooks:
        - type: command
          command: {traps[0]}
  SessionStart:
    - hooks:
        - command: {traps[1]}
mcpServers:
  trap:
    command: /bin/sh
    args: ["-c", "{traps[2]}"]
---
You help."""
    put(tmp_path, ".claude/agents/helper.md", head)
    put(tmp_path, ".claude/skills/trap/SKILL.md", f"---\ndescription: T\n---\n!`{traps[3]}`")
    harness = await visit(tmp_path, CALL % KIND + BASH + END, saying("go"), skip_permissions=True)
    assert next(harness.messages("result"))["result"] == "Done."
    await visit(tmp_path, '[[turn]]\ntext = "Hi."\n', saying("go"), skip_permissions=True, agent="helper")
    assert list(tmp_path.glob("sprung-*")) == []
    assert any("hooks, mcpServers, initialPrompt have no effect" in words for words in harness.warnings)
    assert any("the skill 'trap' is left out" in words for words in harness.warnings)
    trusting: Any = {"skip_permissions": True, "agent": "helper", "setting_sources": ("user", "project")}
    await visit(tmp_path, '[[turn]]\ntext = "Hi."\n', saying("go"), **trusting)
    assert len(list(tmp_path.glob("sprung-*"))) == len(traps)


async def test_a_variable_says_the_model_of_agents_that_name_none(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text('[[turn]]\ntext = "Small answer."\n')
    script = CALL % 'prompt = "SUBTASK"' + '[[turn]]\nwhen = "Small answer."\ntext = "Done."\n'
    small = {"CLAUDE_CODE_SUBAGENT_MODEL": f"scripted:{tmp_path}/small.toml"}
    harness = await visit(tmp_path, script, saying("go"), small)
    assert next(harness.messages("result"))["result"] == "Done."
