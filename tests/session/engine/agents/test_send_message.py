"""SendMessage: a running agent reads it before its next step, a finished one resumes with its context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.mcp import results, visit
from tests.helpers.session import Json, SessionHarness
from tests.session.engine.commands.test_commands import saying
from tests.stress.engine.task_endings import Engine

AGENT = '[[turn]]\nwhen = "%s"\ntools = [{ name = "Agent", id = "%s", input = { description = "d", %s } }]\n'
SEND = '[[turn]]\nwhen = "%s"\ntools = [{ name = "SendMessage", id = "%s", input = { to = "%s", message = "%s" } }]\n'
TEXT = '[[turn]]\nwhen = "%s"\ntext = "%s"\n'
FIRST = AGENT % ("go", "t1", 'prompt = "ONE", name = "ann"') + TEXT % ("ONE", "First.") + TEXT % ("First.", "Told.")


def lines_of(harness: SessionHarness) -> list[str]:
    """What was said in the transcript of the only agent: by whom, and what."""
    [path] = harness.folder.rglob("subagents/*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    said = [row["message"] for row in rows if row["type"] in ("user", "assistant")]
    return [f"{one['role']}: {text_of(one['content'])}" for one in said]


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def started(harness: SessionHarness) -> list[Json]:
    return [line for line in harness.messages("system") if line["subtype"] == "task_started"]


async def test_a_finished_agent_resumes_in_the_background_with_its_context(tmp_path: Path) -> None:
    script = FIRST + SEND % ("more", "t2", "ann", "TWO") + TEXT % ("resumes", "Sent.")
    script += TEXT % ("TWO", "Second.") + TEXT % ("Second.", "All told.")

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")
        harness.prompt("more")
        sent, told = await harness.receive("result"), await harness.receive("result")
        assert [sent["result"], told["result"]] == ["Sent.", "All told."]
        assert told["origin"]["kind"] == "task-notification"

    harness = await visit(tmp_path, script, scenario)
    assert lines_of(harness) == ["user: ONE", "assistant: First.", "user: TWO", "assistant: Second."]
    first, second = started(harness)
    assert first["task_id"] == second["task_id"]
    assert first["run_id"] < second["run_id"]
    assert second["tool_use_id"] == "t2"
    assert Path(harness.session.tasks.find(first["task_id"]).output_file).read_text() == "First.\nSecond.\n"  # type: ignore[union-attr]
    launched = next(line for line in harness.messages("user") if "agentId" in (line.get("tool_use_result") or ()))
    assert launched["tool_use_result"]["canContinueAgent"] is True


@pytest.mark.parametrize("store", ["claude", "folder", "sqlite:all.db"])
async def test_an_agent_of_an_earlier_process_continues(tmp_path: Path, store: str) -> None:
    first = await visit(tmp_path, FIRST, saying("go"), store=store)
    agent_id = started(first)[0]["task_id"]
    script = SEND % ("more", "t2", agent_id, "TWO") + TEXT % ("resumes", "Sent.")
    script += TEXT % ("TWO", "Second.") + TEXT % ("Second.", "All told.")

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("more")
        await harness.receive("result")
        assert (await harness.receive("result"))["result"] == "All told."

    harness = await visit(tmp_path, script, scenario, resume=first.session.id, store=store)
    assert [line["task_id"] for line in started(harness)] == [agent_id]
    kept = harness.session.config.storage.list_agents()
    assert [(agent.id, agent.meta["agentType"]) for agent in kept] == [(agent_id, "general-purpose")]
    if not store.startswith("sqlite"):
        assert lines_of(harness) == ["user: ONE", "assistant: First.", "user: TWO", "assistant: Second."]


def test_an_agent_of_a_killed_engine_resumes_and_knows_that_its_call_was_cut_off(tmp_path: Path) -> None:
    script = AGENT % ("go", "t1", 'prompt = "ONE", name = "ann", run_in_background = true')
    script += '[[turn]]\nwhen = "ONE"\ntools = [{ name = "Bash", id = "t9", input = { command = "sleep 600" } }]\n'
    (tmp_path / "script.toml").write_text(script + TEXT % ("launched", "Started."))
    killed = Engine(tmp_path, ())
    killed.say("go")
    assert killed.until(1, "task_progress")
    assert killed.until(1, "result")
    killed.end(kill=True)
    script = SEND % ("more", "t2", "ann", "TWO") + TEXT % ("resumes", "Sent.")
    (tmp_path / "script.toml").write_text(script + TEXT % ("TWO", "Second.") + TEXT % ("Second.", "All told."))
    second = Engine(tmp_path, ("--resume", killed.lines[0].line["session_id"]))
    second.say("more")
    assert second.until(2, "result")
    second.end()
    assert [heard.line["result"] for heard in second.told("result")] == ["Sent.", "All told."]
    assert [heard.line["status"] for heard in second.told("task_notification")] == ["stopped", "completed"]
    [path] = tmp_path.rglob("subagents/*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    said = [row["message"] for row in rows if row["type"] in ("user", "assistant")]
    assert [one["role"] for one in said] == ["user", "assistant", "user", "user", "assistant"]
    assert said[2]["content"][0]["tool_use_id"] == "t9"
    assert said[2]["content"][0]["is_error"] is True


async def test_an_agent_that_runs_reads_a_message_before_its_next_step(tmp_path: Path) -> None:
    wait = "while ! test -e go.txt; do sleep 0.02; done; echo insub"
    script = AGENT % ("go", "t1", 'prompt = "ONE", name = "ann", run_in_background = true')
    script += f'[[turn]]\nwhen = "ONE"\ntools = [{{ name = "Bash", id = "t9", input = {{ command = "{wait}" }} }}]\n'
    script += TEXT % ("launched", "Started.") + SEND % ("more", "t2", "ann", "HURRY") + TEXT % ("is running", "Sent.")
    script += TEXT % ("HURRY", "Hurried.") + TEXT % ("Hurried.", "All told.")

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")
        harness.prompt("more")
        await harness.receive("result")
        (tmp_path / "go.txt").touch()
        assert (await harness.receive("result"))["result"] == "All told."

    harness = await visit(tmp_path, script, scenario, skip_permissions=True)
    assert lines_of(harness) == ["user: ONE", "assistant: ", "user: ", "user: HURRY", "assistant: Hurried."]


async def test_a_message_that_comes_after_the_last_step_makes_it_continue(tmp_path: Path) -> None:
    script = AGENT % ("go", "t1", 'prompt = "ONE", name = "ann", run_in_background = true')
    script += '[[turn]]\nwhen = "ONE"\ntext = "First."\ndelay_ms = 1000\n'
    script += SEND % ("launched", "t2", "ann", "MORE") + TEXT % ("is running", "Sent.")
    script += TEXT % ("MORE", "Second.") + TEXT % ("Second.", "All told.")

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        assert [(await harness.receive("result"))["result"] for _ in range(2)] == ["Sent.", "All told."]

    harness = await visit(tmp_path, script, scenario)
    assert lines_of(harness) == ["user: ONE", "assistant: First.", "user: MORE", "assistant: Second."]
    assert len(started(harness)) == 1


async def test_a_message_is_not_a_way_around_a_rule_about_agents(tmp_path: Path) -> None:
    script = FIRST.replace('prompt = "ONE"', 'prompt = "ONE", subagent_type = "Plan"')
    first = await visit(tmp_path, script, saying("go"))
    again = SEND % ("more", "t2", "ann", "TWO") + TEXT % ("A rule does not allow", "Well.")
    for rule in ("Agent(Plan)", "Task"):
        harness = await visit(tmp_path, again, saying("more"), resume=first.session.id, disallowed_tools=(rule,))
        assert results(harness)[-1].startswith("A rule does not allow agents of the type 'Plan'")
    asking = json.dumps({"permissions": {"ask": ["Agent(Plan)"]}})
    harness = await visit(tmp_path, again, saying("more"), resume=first.session.id, settings=asking)
    assert results(harness)[-1].startswith("A rule does not allow agents of the type 'Plan'")
    assert started(harness) == []


async def test_a_message_to_no_one_is_reported_with_those_there_are(tmp_path: Path) -> None:
    script = FIRST + SEND % ("more", "t2", "../../etc", "x") + TEXT % ("There is no agent", "Well.")
    harness = await visit(tmp_path, script, saying("go", "more"))
    agent_id = started(harness)[0]["task_id"]
    assert results(harness)[-1] == f"There is no agent '../../etc' to send a message to. The agents are: {agent_id}."


async def test_without_the_tool_the_hint_to_resume_an_agent_is_left_out(tmp_path: Path) -> None:
    harness = await visit(tmp_path, FIRST, saying("go"), disallowed_tools=("SendMessage",))
    [told] = [line for line in harness.messages("user") if "agentId" in (line.get("tool_use_result") or ())]
    assert told["tool_use_result"]["canContinueAgent"] is False
    assert "SendMessage" not in text_of(told["message"]["content"][0]["content"])
