"""AskUserQuestion, asked of a real host: the questions go out, the answers come back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.engine.approval.request import input_digest
from parley.protocol.base import Json
from parley.tools.base import InvalidInput, read_input, tool_schema
from parley.tools.planning import AskUserQuestion
from tests.helpers.session import SessionHarness

A, B = {"label": "A", "description": "first"}, {"label": "B", "description": "second"}
ONE = {"question": "Which one?", "header": "Pick", "options": [A, B], "multiSelect": False}
TWO = {"question": "How many?", "header": "Count", "options": [A, B], "multiSelect": True}


def script(input: Json) -> str:
    """A model that asks, and then answers."""
    call = json.dumps({"type": "tool_use", "id": "toolu_q", "name": "AskUserQuestion", "input": input})
    return f"[[turn]]\nblocks = [{toml(json.loads(call))}]\n[[turn]]\ntext = 'ok'\n"


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


async def asked(folder: Path, input: Json, answer: Json, **options: Any) -> tuple[Json, Json]:
    """The permission request the host got, and the line with the tool's result."""

    async with SessionHarness(folder, script(input), permission_prompt_tool="stdio", **options) as harness:
        harness.prompt("go")
        question = await harness.receive("control_request")
        success = {"subtype": "success", "request_id": question["request_id"], "response": answer}
        harness.send({"type": "control_response", "response": success})
        await harness.receive("result")
        return question["request"], next(harness.messages("user"))


def content(line: Json) -> str:
    return str(line["message"]["content"][0]["content"])


async def test_the_host_is_asked_and_its_answer_reaches_the_model(tmp_path: Path) -> None:
    answer = {"behavior": "allow", "updatedInput": {"questions": [ONE], "answers": {"Which one?": "B"}}}
    request, line = await asked(tmp_path, {"questions": [ONE]}, answer)
    assert request == {
        "subtype": "can_use_tool",
        "tool_name": "AskUserQuestion",
        "display_name": "AskUserQuestion",
        "title": "The model has a question",
        "input": {"questions": [ONE]},
        "input_sha256": input_digest({"questions": [ONE]}),
        "tool_use_id": "toolu_q",
        "requires_user_interaction": True,
    }
    assert content(line) == "The user answered:\n- Which one? B"
    assert line["tool_use_result"] == {"questions": [ONE], "answers": {"Which one?": "B"}}


@pytest.mark.parametrize("mode", ["bypassPermissions", "acceptEdits", "plan"])
async def test_the_host_is_asked_in_every_mode(tmp_path: Path, mode: str) -> None:
    answer = {"behavior": "allow", "updatedInput": {"questions": [ONE], "answers": {"Which one?": "A"}}}
    _, line = await asked(tmp_path, {"questions": [ONE]}, answer, permission_mode=mode)
    assert line["tool_use_result"]["answers"] == {"Which one?": "A"}


async def test_the_host_is_asked_even_where_a_rule_allows_it(tmp_path: Path) -> None:
    answer = {"behavior": "deny", "message": "User skipped the question"}
    _, line = await asked(tmp_path, {"questions": [ONE]}, answer, allowed_tools=("AskUserQuestion",))
    assert content(line) == "User skipped the question"
    assert line["message"]["content"][0]["is_error"] is True


async def test_answers_outside_the_input_are_matched_in_the_order_of_the_questions(tmp_path: Path) -> None:
    answer = {"behavior": "allow", "selectedOptions": ["B", "A"]}
    _, line = await asked(tmp_path, {"questions": [ONE, TWO]}, answer)
    assert line["tool_use_result"]["answers"] == {"Which one?": "B", "How many?": "A"}


async def test_several_picks_of_one_question_are_joined(tmp_path: Path) -> None:
    _, line = await asked(tmp_path, {"questions": [TWO]}, {"behavior": "allow", "selectedOptions": ["A", "B"]})
    assert line["tool_use_result"]["answers"] == {"How many?": "A, B"}


async def test_answers_in_the_input_go_before_those_beside_it(tmp_path: Path) -> None:
    updated = {"questions": [ONE], "answers": {"Which one?": ["A", "B"]}}
    answer = {"behavior": "allow", "updatedInput": updated, "selectedOptions": ["C"]}
    _, line = await asked(tmp_path, {"questions": [ONE]}, answer)
    assert line["tool_use_result"]["answers"] == {"Which one?": "A, B"}


async def test_answers_that_the_model_made_up_are_dropped(tmp_path: Path) -> None:
    made_up = {"questions": [ONE], "answers": {"Which one?": "A"}, "selectedOptions": ["A"], "response": "Yes!"}
    request, line = await asked(tmp_path, made_up, {"behavior": "allow"})
    assert request["input"] == {"questions": [ONE]}
    assert line["tool_use_result"]["answers"] == {}
    assert "gave no answer" in content(line)


async def test_what_is_left_open_is_reported(tmp_path: Path) -> None:
    updated = {"questions": [ONE, TWO], "answers": {"How many?": "A"}}
    _, line = await asked(tmp_path, {"questions": [ONE, TWO]}, {"behavior": "allow", "updatedInput": updated})
    assert content(line) == "The user answered:\n- How many? A\n\nNot answered:\n- Which one?"


async def test_a_question_that_is_skipped_is_not_an_answer(tmp_path: Path) -> None:
    _, line = await asked(tmp_path, {"questions": [ONE]}, {"behavior": "deny", "message": "User skipped the question"})
    assert content(line) == "User skipped the question"


async def test_notes_and_free_words_reach_the_model(tmp_path: Path) -> None:
    more = {"annotations": {"Which one?": {"notes": "but soon"}}, "response": "Hurry."}
    updated = {"questions": [ONE], "answers": {"Which one?": "A"}, **more}
    _, line = await asked(tmp_path, {"questions": [ONE]}, {"behavior": "allow", "updatedInput": updated})
    assert content(line) == "The user answered:\n- Which one? A\n  (note: but soon)\n\nThe user said: Hurry."
    assert line["tool_use_result"] == {"questions": [ONE], "answers": {"Which one?": "A"}, **more}


async def test_what_a_model_may_leave_out_is_filled_in_for_the_host(tmp_path: Path) -> None:
    short = {"question": "Which one?", "header": "A header of more than twelve", "options": [{"label": "A"}, B]}
    request, _ = await asked(tmp_path, {"questions": [short]}, {"behavior": "allow"})
    full = {**short, "options": [{"label": "A", "description": ""}, B], "multiSelect": False}
    assert request["input"] == {"questions": [full]}


@pytest.mark.parametrize(
    "input",
    [
        {},
        {"questions": []},
        {"questions": [ONE] * 5},
        {"questions": [{**ONE, "options": [A]}]},
        {"questions": [{**ONE, "options": [A] * 5}]},
        {"questions": [{**ONE, "options": [{"description": "no label"}, B]}]},
        {"questions": [{"header": "no question", "options": [A, B]}]},
    ],
)
def test_questions_that_cannot_be_asked_are_refused(input: Json) -> None:
    with pytest.raises(InvalidInput):
        read_input(AskUserQuestion(), input)


async def test_a_question_that_cannot_be_asked_does_not_bother_the_host(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[str], Json]:
        async with SessionHarness(tmp_path, script({"questions": []}), permission_prompt_tool="stdio") as harness:
            harness.prompt("go")
            await harness.receive("result")
            return [line["type"] for line in harness.lines], next(harness.messages("user"))

    kinds, line = await scenario()
    assert "control_request" not in kinds
    assert "InputValidationError" in content(line)


async def test_without_a_host_that_answers_it_is_not_offered(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script({"questions": [ONE]}), permission_mode="bypassPermissions") as harness:
        harness.prompt("go")
        await harness.receive("result")
        init, line = next(harness.messages("system")), next(harness.messages("user"))

    assert "AskUserQuestion" not in init["tools"]
    assert "No such tool available: AskUserQuestion" in content(line)


async def test_a_rule_that_denies_it_takes_it_off_the_list(tmp_path: Path) -> None:
    options: Json = {"permission_prompt_tool": "stdio", "disallowed_tools": ("AskUserQuestion",)}
    async with SessionHarness(tmp_path, script({"questions": [ONE]}), **options) as harness:
        harness.prompt("go")
        await harness.receive("result")
        result = next(harness.messages("user"))

    assert "No such tool available" in content(result)


def test_the_model_is_shown_the_questions_alone_and_in_full() -> None:
    shown = tool_schema(AskUserQuestion())["input_schema"]
    assert list(shown["properties"]) == ["questions"]
    assert shown["$defs"]["Question"]["required"] == ["question", "header", "options"]
    assert shown["$defs"]["Choice"]["required"] == ["label", "description"]
