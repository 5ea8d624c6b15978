"""Goals: a turn continues until its condition is judged to be met. A real client end talks to a real engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.engine.goal import MAX_IDLE_ROUNDS
from tests.helpers.mcp import script, visit
from tests.helpers.session import Json, SessionHarness, texts

CONDITION = "the tests pass"
READ = ("Read", {"file_path": "notes.txt"})
STATES = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}


def judged(reason: str, **verdict: bool) -> str:
    """The answer of the judge to one question."""
    answer = json.dumps({"ok": False, "reason": reason, **verdict})
    return f"[[turn]]\nwhen = 'Judge from its conversation'\ntext = '{answer}'\n"


def goals(harness: SessionHarness) -> list[Json | None]:
    return [line["value"] for line in harness.messages("active_goal")]


def notices(harness: SessionHarness) -> list[str]:
    return [line["content"] for line in harness.messages("system") if line.get("subtype") == "informational"]


def heard(harness: SessionHarness) -> list[str]:
    """What the model reads of the user and the engine."""
    messages = harness.session.journal.history.render()
    return [block["text"] for one in messages if one["role"] == "user" for block in one["content"] if "text" in block]


async def run(folder: Path, turns: str, *prompts: str, **options: Any) -> SessionHarness:
    (folder / "notes.txt").write_text("notes\n")

    async def scenario(harness: SessionHarness) -> None:
        for prompt in prompts:
            harness.prompt(prompt)
            await harness.receive("result")

    return await visit(folder, turns, scenario, STATES, **options)


async def test_a_turn_continues_until_the_goal_is_met(tmp_path: Path) -> None:
    turns = script([READ], "Half done.") + judged("two fail") + script([READ], "Done.") + judged("all pass", ok=True)
    harness = await run(tmp_path, turns, f"/goal {CONDITION}")

    [result] = harness.messages("result")
    assert (result["result"], result["num_turns"]) == ("Done.", 4)
    first, second, last = goals(harness)
    assert first is not None
    assert second is not None
    assert first == {"condition": CONDITION, "iterations": 0, "set_at": first["set_at"], "tokens_at_start": 0}
    assert second == {**first, "iterations": 1, "last_reason": "two fail"}
    assert last is None
    assert notices(harness) == ["Goal met: all pass"]
    started, check = heard(harness)
    assert f"<goal>\n{CONDITION}\n</goal>" in started
    assert "not met yet: two fail" in check
    assert CONDITION in check
    kinds = [line.get("subtype", line["type"]) for line in harness.lines]
    assert kinds.index("init") < kinds.index("active_goal")
    # The client reads what the user reads in Claude Code: that the goal is set, and why the turn continues.
    assert texts(harness.messages("assistant"))[0] == f"Goal set: {CONDITION}"
    [shown] = [line for line in harness.messages("user") if line.get("isSynthetic")]
    assert shown["message"]["content"] == [{"type": "text", "text": check}]


async def test_the_judge_reads_the_goal_and_the_conversation(tmp_path: Path) -> None:
    question = f"<goal>\\n{CONDITION}\\n</goal>\\n\\n<conversation>\\nuser:"
    verdict = json.dumps({"ok": True, "reason": "seen"})
    harness = await run(
        tmp_path,
        script([READ], "Done.") + f"[[turn]]\nwhen = \"{question}\"\ntext = '{verdict}'\n",
        f"/goal {CONDITION}",
    )
    assert notices(harness) == ["Goal met: seen"]


async def test_an_impossible_goal_is_cleared(tmp_path: Path) -> None:
    turns = script("There are no tests.") + judged("no tests", impossible=True)
    harness = await run(tmp_path, turns, f"/goal {CONDITION}", "/goal")

    assert goals(harness)[-1] is None
    assert notices(harness) == ["Goal given up as impossible: no tests"]
    assert list(harness.messages("result"))[-1]["result"] == "No goal set. Usage: `/goal <condition>`"


async def test_rounds_without_tool_calls_are_bounded_and_the_goal_stays(tmp_path: Path) -> None:
    rounds = [script(f"Text {number}.") + judged(f"reason {number}") for number in range(MAX_IDLE_ROUNDS)]
    harness = await run(tmp_path, "".join(rounds), f"/goal {CONDITION}", "/goal", "/goal clear", "/goal clear")

    results = [line["result"] for line in harness.messages("result")]
    assert results[0] == f"Text {MAX_IDLE_ROUNDS - 1}."
    shown = f"Goal active: {CONDITION} ({MAX_IDLE_ROUNDS} turns)\nLast check: reason {MAX_IDLE_ROUNDS - 1}"
    assert results[1:] == [shown, f"Goal cleared: {CONDITION}", "No goal set"]
    assert ["rounds without a tool call" in text for text in notices(harness)] == [True]


async def test_max_turns_bounds_a_goal(tmp_path: Path) -> None:
    turns = script([READ], "One.") + judged("more") + script([READ], "Two.")
    harness = await run(tmp_path, turns, f"/goal {CONDITION}", max_turns=2)
    [result] = harness.messages("result")
    assert (result["subtype"], harness.session.journal.goal is not None) == ("error_max_turns", True)


@pytest.mark.parametrize("answer", ["It looks fine.", '{"ok": "yes"}'])
async def test_an_answer_that_is_no_judgement_ends_the_turn(tmp_path: Path, answer: str) -> None:
    turns = script("Done.") + f"[[turn]]\nwhen = 'Judge from its conversation'\ntext = '{answer}'\n"
    harness = await run(tmp_path, turns, f"/goal {CONDITION}")

    [result] = harness.messages("result")
    assert result["subtype"] == "success"
    assert ["not a judgement" in text for text in notices(harness)] == [True]
    assert harness.session.journal.goal is not None


async def test_a_goal_is_restored_and_every_request_extends_the_one_before(tmp_path: Path) -> None:
    turns = script("Stuck.") + "[[turn]]\nwhen = 'Judge from'\ntext = 'No idea.'\n"
    before = await run(tmp_path, turns, f"/goal {CONDITION}")
    sent = before.session.journal.history.render()
    again = script([READ], "Going on.") + judged("more") + script([READ], "Done.") + judged("pass", ok=True)
    after = await run(tmp_path, again, "Go on", resume=before.session.id)

    restored, *_, last = goals(after)
    assert restored is not None
    assert (restored["condition"], last) == (CONDITION, None)
    assert after.session.journal.history.render()[: len(sent)] == sent
    third = await run(tmp_path, script("Hello."), "Hi", resume=before.session.id)
    assert goals(third) == []


async def test_clear_removes_the_goal(tmp_path: Path) -> None:
    turns = script("Stuck.") + "[[turn]]\nwhen = 'Judge from'\ntext = 'No idea.'\n"
    harness = await run(tmp_path, turns, f"/goal {CONDITION}", "/clear")
    assert (goals(harness)[-1], harness.session.journal.goal) == (None, None)


async def test_a_prompt_that_waits_goes_first(tmp_path: Path) -> None:
    turns = script([READ], "Working.", "An answer.") + judged("pass", ok=True)

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt(f"/goal {CONDITION}")
        harness.prompt("/goal clear")
        await harness.receive("result")
        await harness.receive("result")

    (tmp_path / "notes.txt").write_text("notes\n")
    harness = await visit(tmp_path, turns, scenario)
    results = [line["result"] for line in harness.messages("result")]
    assert results == ["Working.", f"Goal cleared: {CONDITION}"]


async def test_a_long_goal_is_refused(tmp_path: Path) -> None:
    harness = await run(tmp_path, script("Hello."), f"/goal {'x' * 4001}")
    [result] = harness.messages("result")
    assert (result["is_error"], goals(harness)) == (True, [])
    assert "4001 characters; at most 4000" in str(result)


def set_goal(**input: Any) -> tuple[str, Json]:
    return ("SetGoal", {"condition": CONDITION, **input})


async def test_the_model_sets_a_goal_only_with_approval(tmp_path: Path) -> None:
    turns = script([set_goal()], "Set.") + judged("pass", ok=True)
    asked: list[Json] = []

    async def scenario(harness: SessionHarness) -> None:
        harness.prompt("go")
        line = await harness.receive("control_request")
        asked.append(line["request"])
        answer = {"behavior": "allow", "updatedInput": line["request"]["input"]}
        response = {"subtype": "success", "request_id": line["request_id"], "response": answer}
        harness.send({"type": "control_response", "response": response})
        await harness.receive("result")

    options: dict[str, Any] = {"permission_prompt_tool": "stdio", "permission_mode": "bypassPermissions"}
    harness = await visit(tmp_path, turns, scenario, tools=("Read", "SetGoal"), **options)
    assert [(one["tool_name"], one["requires_user_interaction"]) for one in asked] == [("SetGoal", True)]
    assert [line["tool_use_result"] for line in harness.messages("user")] == [{"condition": CONDITION, "askUser": True}]
    assert notices(harness) == [f"Goal set: {CONDITION}", "Goal met: pass"]


async def test_without_approval_only_the_users_own_words_become_a_goal(tmp_path: Path) -> None:
    turns = script([set_goal()], [set_goal(ask_user=False)], [set_goal(ask_user=False)], "Set.")
    harness = await run(tmp_path, turns + judged("pass", ok=True), "go", tools=("Read", "SetGoal"))

    denied, made, replaced = [line["tool_use_result"] for line in harness.messages("user")]
    assert made == {"condition": CONDITION, "askUser": False}
    assert "no one to ask" in denied
    assert "no one to ask" in replaced
    assert [line["tool_use_id"] for line in next(harness.messages("result"))["permission_denials"]] == ["t1", "t3"]
    assert notices(harness) == [f"Goal set: {CONDITION}", "Goal met: pass"]
