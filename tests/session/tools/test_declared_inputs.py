"""Declared fields of tool inputs have their effect."""

from __future__ import annotations

import json
from pathlib import Path

from parley.models.script import Script, ScriptedTurn
from parley.testing.model_server import running
from tests.helpers.session import Json, SessionHarness


async def test_a_question_keeps_its_previews(tmp_path: Path) -> None:
    options = "[{ label = 'A', description = 'a', preview = 'one' }, { label = 'B', description = 'b' }]"
    question = f"{{ question = 'Which?', header = 'Pick', options = {options}, multiSelect = false }}"
    call = f"{{ name = 'AskUserQuestion', id = 't1', input = {{ questions = [{question}] }} }}"
    script = f"[[turn]]\ntools = [{call}]\n[[turn]]\ntext = 'ok'\n"
    async with SessionHarness(tmp_path, script, permission_prompt_tool="stdio") as harness:
        harness.prompt("go")
        asked = await harness.receive("control_request")
        input = asked["request"]["input"]
        notes = {"Which?": {"preview": "one", "notes": "because"}}
        answer = {"behavior": "allow", "updatedInput": {**input, "answers": {"Which?": "A"}, "annotations": notes}}
        response = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
        harness.send({"type": "control_response", "response": response})
        await harness.receive("result")
    (line,) = harness.messages("user")

    assert input["questions"][0]["options"][0]["preview"] == "one"
    assert "because" in json.dumps(line["message"]["content"])


async def test_an_agent_runs_with_the_model_and_the_effort_of_the_call(tmp_path: Path) -> None:
    given: Json = {"description": "Look", "prompt": "Look around", "model": "haiku", "effort": "low"}
    turns = [
        ScriptedTurn(blocks=[{"type": "tool_use", "id": "t1", "name": "Agent", "input": given}]),
        ScriptedTurn(text="Seen."),
        ScriptedTurn(text="Done."),
    ]
    with running(Script(turn=turns, at_end="repeat")) as server:
        harness = SessionHarness(tmp_path, "", model="claude-opus-5", skip_permissions=True)
        harness.environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "a-key-for-tests"}
        async with harness:
            harness.prompt("go")
            await harness.receive("result")
    main, agent, last = [exchange.body for exchange in server.exchanges]

    assert [body["model"] for body in (main, last)] == ["claude-opus-5"] * 2
    assert "haiku" in agent["model"]
    assert agent["output_config"] == {"effort": "low"}


async def test_tasks_are_made_changed_and_shown(tmp_path: Path) -> None:
    calls = (
        "{ name = 'TaskCreate', id = 't1', input = { subject = 'Look', description = 'around' } }",
        "{ name = 'TaskUpdate', id = 't2', input = { taskId = '1', subject = 'Look again' } }",
        "{ name = 'TaskGet', id = 't3', input = { taskId = '1' } }",
        "{ name = 'TaskList', id = 't4', input = { } }",
    )
    script = "".join(f"[[turn]]\ntools = [{call}]\n" for call in calls) + "[[turn]]\ntext = 'ok'\n"
    async with SessionHarness(tmp_path, script, tools=("TaskCreate", "TaskUpdate", "TaskGet", "TaskList")) as harness:
        harness.prompt("go")
        await harness.receive("result")
    contents = [line["message"]["content"][0]["content"] for line in harness.messages("user")]

    assert ("Look" in contents[0], "Look again" in contents[2], "Look again" in contents[3]) == (True, True, True)
