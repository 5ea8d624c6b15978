"""Subagents, played in a room: what is told of them, what they share, how they end."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.helpers.session import Json, SessionHarness

AGENT = '[[turn]]\nwhen = "go"\ntools = [{ name = "Agent", id = "toolu_a", input = {%s} }]\n'
WORK = 'description = "Do sub", prompt = "SUBTASK please", subagent_type = "general-purpose"'
SUB = """
[[turn]]
when = "SUBTASK"
text = "sub text"
tools = [{ name = "Bash", id = "toolu_sub", input = { command = "echo insub" } }]
[[turn]]
when = "insub"
text = "Sub answer."
"""
DONE = '[[turn]]\nwhen = "Sub answer."\ntext = "Done."\n'
FOREGROUND = AGENT % f"{WORK}, run_in_background = false" + SUB + DONE
BACKGROUND = (
    AGENT % f"{WORK}, run_in_background = true" + '[[turn]]\nwhen = "launched"\ntext = "Started."\n' + SUB + DONE
)


async def play(
    folder: Path, script: str, scenario: Callable[[SessionHarness], Awaitable[None]], **options: Any
) -> SessionHarness:
    harness = SessionHarness(folder, script, **{"skip_permissions": True, **options})

    async with harness:
        await scenario(harness)

    return harness


def of_agent(harness: SessionHarness) -> list[Json]:
    return [line for line in harness.lines if line.get("parent_tool_use_id") == "toolu_a"]


def kinds(lines: list[Json]) -> list[str]:
    return [line.get("subtype") or line["message"]["content"][0]["type"] for line in lines if line["type"] != "result"]


async def test_a_waiting_caller_receives_the_text_of_the_agent(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        result = await harness.receive("result")
        assert (result.get("result"), result["num_turns"]) == ("Done.", 2)
        assert result["subagent_stats"]["completed"] == 1
        assert result["usage"]["input_tokens"] < sum(used["inputTokens"] for used in result["modelUsage"].values())

    harness = await play(tmp_path, FOREGROUND, scenario)
    lines = of_agent(harness)
    assert [line["message"]["content"][0]["type"] for line in lines] == ["text", "tool_use", "tool_result"]
    assert {line["subagent_type"] for line in lines} == {"general-purpose"}
    [agent_id] = {line["agent_id"] for line in lines}
    given = next(
        line for line in harness.lines if line.get("tool_use_result", {}) and "agentId" in line["tool_use_result"]
    )
    assert given["tool_use_result"]["agentId"] == agent_id
    assert given["tool_use_result"]["content"] == [{"type": "text", "text": "Sub answer."}]
    notice = next(line for line in harness.lines if line.get("subtype") == "task_notification")
    assert (notice["summary"], notice["usage"]["tool_uses"]) == ("Sub answer.", 1)


async def test_an_agent_in_the_background_ends_in_a_turn_of_its_own(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        first, second = await harness.receive("result"), await harness.receive("result")
        assert (first["result"], second["result"]) == ("Started.", "Done.")
        assert second["origin"]["kind"] == "task-notification"

    harness = await play(tmp_path, BACKGROUND, scenario)
    said = [line["message"]["content"][0] for line in of_agent(harness)]
    assert [block["type"] for block in said] == ["text", "tool_use", "tool_result", "text"]


async def test_texts_of_an_agent_are_reported_to_a_host_that_wants_them(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")

    harness = await play(tmp_path, FOREGROUND, scenario, forward_subagent_text=True)
    said = [block.get("text") for line in of_agent(harness) for block in line["message"]["content"]]
    assert said == ["SUBTASK please", "sub text", None, None, "Sub answer."]


async def test_a_kind_no_one_defined_is_reported_with_those_there_are(tmp_path: Path) -> None:
    script = AGENT % 'description = "x", prompt = "y", subagent_type = "nobody"' + '[[turn]]\ntext = "Well."\n'

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        assert (await harness.receive("result"))["result"] == "Well."

    harness = await play(tmp_path, script, scenario)
    [told] = [line for line in harness.messages("user") if "tool_use_result" in line]
    assert told["tool_use_result"].startswith("Error: Agent type 'nobody' not found. Available agents: Bash, Explore")


async def test_agents_come_from_the_host_the_command_line_and_files(tmp_path: Path) -> None:
    project, own = tmp_path / ".claude" / "agents", tmp_path / "home" / ".claude" / "agents"
    for folder in (project, own):
        folder.mkdir(parents=True)
    (project / "near.md").write_text("---\nname: near\ndescription: N\npermissionMode: plan\n---\nYou are near.")
    (project / "broken.md").write_text("---\nname: [broken\n---\nx")
    (own / "far.md").write_text("---\nname: far\ndescription: F\ntools: Read, Grep\n---\nYou are far.")
    given = {"flag": {"description": "f", "prompt": "p"}}

    async def scenario(harness: SessionHarness) -> None:
        kind = {"description": "mine", "prompt": "You help.", "model": "haiku"}
        answer = await harness.request("initialize", agents={"mine": kind})
        names = [agent["name"] for agent in answer["response"]["response"]["agents"]]
        assert names == ["Bash", "Explore", "far", "flag", "general-purpose", "mine", "near", "Plan"]

    harness = await play(tmp_path, "", scenario, agents=json.dumps(given))
    broken, untrusted = harness.warnings
    assert "broken.md" in broken
    assert "no closing bracket" in broken
    assert "near.md" in untrusted
    assert "permissionMode" in untrusted


async def test_agents_call_agents_and_each_line_names_its_call(tmp_path: Path) -> None:
    inner = 'description = "Deeper", prompt = "INNER", subagent_type = "Explore"'
    script = (
        AGENT % WORK
        + f'[[turn]]\nwhen = "SUBTASK"\ntools = [{{ name = "Agent", id = "toolu_b", input = {{{inner}}} }}]\n'
        + '[[turn]]\nwhen = "INNER"\ntools = [{ name = "Bash", id = "toolu_c", input = { command = "echo deep" } }]\n'
        + '[[turn]]\nwhen = "deep"\ntext = "Deep answer."\n[[turn]]\nwhen = "Deep answer."\ntext = "Sub answer."\n'
        + DONE
    )

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        result = await harness.receive("result")
        assert result["result"] == "Done."
        stats = result["subagent_stats"]
        assert (stats["max_depth"], stats["spawned_by_subagents"], stats["completed"]) == (2, 1, 2)

    harness = await play(tmp_path, script, scenario)
    places = {
        block["id"]: line["parent_tool_use_id"]
        for line in harness.messages("assistant")
        for block in line["message"]["content"]
        if block["type"] == "tool_use"
    }
    assert places == {"toolu_a": None, "toolu_b": "toolu_a", "toolu_c": "toolu_b"}


async def test_a_background_agent_of_an_agent_names_the_task_above(tmp_path: Path) -> None:
    inner = 'description = "Deeper", prompt = "INNER", subagent_type = "Explore", run_in_background = true'
    script = (
        AGENT % WORK
        + f'[[turn]]\nwhen = "SUBTASK"\ntools = [{{ name = "Agent", id = "toolu_b", input = {{{inner}}} }}]\n'
        + '[[turn]]\nwhen = "launched"\ntext = "Sub answer."\n[[turn]]\nwhen = "INNER"\ntext = "Deep answer."\n'
        + DONE
        + '[[turn]]\nwhen = "Deep answer."\ntext = "Noted."\n'
    )

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")
        await harness.receive("result")

    harness = await play(tmp_path, script, scenario)
    started = {line["tool_use_id"]: line for line in harness.messages("system") if line["subtype"] == "task_started"}
    lists = [line["tasks"] for line in harness.messages("system") if line["subtype"] == "background_tasks_changed"]
    [task] = next(tasks for tasks in lists if tasks)
    assert task["task_id"] == started["toolu_b"]["task_id"]
    assert task["parent_task_id"] == started["toolu_a"]["task_id"]


async def test_questions_and_hooks_say_which_agent_they_are_about(tmp_path: Path) -> None:
    script = FOREGROUND.replace("echo insub", "touch made.txt; echo insub")
    hooks = {
        event: [{"matcher": None, "hookCallbackIds": [event]}]
        for event in ("PreToolUse", "SubagentStart", "SubagentStop", "Stop")
    }

    async def scenario(harness: SessionHarness) -> None:
        await harness.request("initialize", hooks=hooks)
        harness.prompt("go")
        while True:
            line = await harness.receive_until(lambda line: line["type"] in ("result", "control_request"))
            if line["type"] == "result":
                break
            answer = {"behavior": "allow"} if line["request"]["subtype"] == "can_use_tool" else {}
            response = {"subtype": "success", "request_id": line["request_id"], "response": answer}
            harness.send({"type": "control_response", "response": response})

    harness = await play(tmp_path, script, scenario, skip_permissions=False, permission_prompt_tool="stdio")
    [agent_id] = {line["agent_id"] for line in of_agent(harness)}
    asked = [line["request"] for line in harness.messages("control_request")]
    [question] = [request for request in asked if request["subtype"] == "can_use_tool"]
    assert (question["agent_id"], question["tool_use_id"]) == (agent_id, "toolu_sub")
    fired = {
        (request["callback_id"], request["input"].get("agent_id"))
        for request in asked
        if request["subtype"] == "hook_callback"
    }
    assert fired == {
        ("PreToolUse", None),
        ("PreToolUse", agent_id),
        ("SubagentStart", agent_id),
        ("SubagentStop", agent_id),
        ("Stop", None),
    }


async def test_a_budget_holds_across_agents_and_the_turn_still_has_its_result(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        result = await harness.receive("result")
        assert result["is_error"] is True
        assert "Reached maximum budget" in result["errors"][0]

    harness = await play(tmp_path, FOREGROUND, scenario, max_budget_calls=2)
    assert [line["message"]["content"][0].get("id") for line in harness.messages("assistant")] == [
        "toolu_a",
        "toolu_sub",
    ]


async def test_the_turns_of_an_agent_are_limited_by_its_kind(tmp_path: Path) -> None:
    script = (AGENT % 'description = "x", prompt = "SUBTASK", subagent_type = "short"') + SUB
    script += '[[turn]]\nwhen = "failed"\ntext = "I see."\n'
    kinds = {"short": {"description": "d", "prompt": "p", "maxTurns": 1}}

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        result = await harness.receive("result")
        assert (result["result"], result["subagent_stats"]["failed"]) == ("I see.", 1)

    await play(tmp_path, script, scenario, agents=json.dumps(kinds))


async def test_three_agents_run_at_once_and_an_interrupt_ends_them_all(tmp_path: Path) -> None:
    calls = ", ".join(
        f'{{ name = "Agent", input = {{ description = "d{n}", prompt = "WAIT {n}", subagent_type = "Bash" }} }}'
        for n in range(3)
    )
    wait = 'tools = [{ name = "Bash", input = { command = "sleep 600" } }]\n'
    script = f'[[turn]]\nwhen = "go"\ntools = [{calls}]\n' + "".join(
        f'[[turn]]\nwhen = "WAIT {n}"\n{wait}' for n in range(3)
    )

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        for _ in range(3):
            await harness.receive("system", "task_progress")
        await harness.request("interrupt")
        result = await harness.receive("result")
        assert result["terminal_reason"] == "aborted_tools"
        assert result["subagent_stats"]["killed"]["user"] == 3
        assert harness.session.tasks.find(next(iter(harness.session.tasks.ids()))).status == "killed"  # type: ignore[union-attr]

    harness = await play(tmp_path, script, scenario)
    ends = [line["status"] for line in harness.lines if line.get("subtype") == "task_notification"]
    assert ends == ["stopped"] * 3
    results = [line for line in harness.messages("user") if line["message"]["content"][0]["type"] == "tool_result"]
    assert sum(line["parent_tool_use_id"] is None for line in results) == 3


async def test_a_host_can_send_an_agent_to_the_background(tmp_path: Path) -> None:
    script = FOREGROUND.replace("echo insub", "while ! test -e done.txt; do sleep 0.02; done; echo insub")
    script = script.replace(DONE, '[[turn]]\nwhen = "launched"\ntext = "Started."\n' + DONE)

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("system", "task_progress")
        await harness.request("background_tasks")
        assert (await harness.receive("result"))["result"] == "Started."
        (tmp_path / "done.txt").touch()
        assert (await harness.receive("result"))["result"] == "Done."

    await play(tmp_path, script, scenario)


async def test_the_transcript_of_an_agent_stands_beside_its_session(tmp_path: Path) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        await harness.receive("result")

    harness = await play(tmp_path, FOREGROUND, scenario)
    [agent_id] = {line["agent_id"] for line in of_agent(harness)}
    [path] = (tmp_path / "home").rglob("subagents/*.jsonl")
    assert path.name == f"agent-{agent_id}.jsonl"
    assert path.parent.parent.name == harness.session.id
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    said = [row for row in rows if row["type"] in ("user", "assistant")]
    assert all(row["isSidechain"] and row["agentId"] == agent_id for row in said)
    assert [row["type"] for row in said] == ["user", "assistant", "assistant", "user", "assistant"]
    meta = json.loads(path.with_name(f"agent-{agent_id}.meta.json").read_text())
    assert meta == {"agentType": "general-purpose", "toolUseId": "toolu_a", "description": "Do sub"}
