"""Questions to the person, with answers that are given at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from parley.sdk.permissions import (
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionRuleValue,
    PermissionUpdate,
    ToolPermissionContext,
)
from parley.terminal.interfaces.dialogs import Picker, Row
from parley.terminal.questions import TerminalQuestions, build_choices
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.transcript import TerminalTranscript

RULE = PermissionUpdate(
    "addRules", rules=[PermissionRuleValue("Bash", "git *")], behavior="allow", destination="localSettings"
)
MODE = PermissionUpdate("setMode", mode="acceptEdits", destination="session")


class Person:
    """Answers with keys and texts, in order."""

    def __init__(self, *answers: str | None) -> None:
        self._answers = list(answers)
        self.offered: list[list[str]] = []

    async def wait_for_pause(self) -> None:
        return

    async def pick(self, picker: Picker) -> list[Row] | None:
        self.offered.append([row.key for row in picker.rows])
        keys = self._answers.pop(0)
        return None if keys is None else [row for row in picker.rows if row.key in keys]

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        return self._answers.pop(0)


def make(*answers: str | None) -> tuple[TerminalQuestions, Person, list[str]]:
    printed: list[str] = []
    transcript = TerminalTranscript(printed.extend, Styles(attributes=False), lambda: 60, lambda: 0.0)
    person = Person(*answers)
    return TerminalQuestions(person, transcript, lambda: 60), person, printed


def test_each_place_for_a_rule_is_a_choice_and_the_mode_is_another() -> None:
    choices = build_choices(ToolPermissionContext(suggestions=[RULE, MODE]))
    places = {
        key: None if updates is None else [update.destination for update in updates]
        for key, (_, _, updates) in choices.items()
    }

    assert places == {
        "y": [],
        "s": ["session"],
        "l": ["localSettings"],
        "u": ["userSettings"],
        "e": ["session"],
        "n": None,
        "r": None,
    }
    assert choices["u"][:2] == ("Yes, always", "allow Bash(git *)")


def test_a_call_that_must_be_asked_about_each_time_offers_no_rule() -> None:
    context = ToolPermissionContext(suggestions=[RULE, MODE], suppress_always_allow_rule=True)

    assert list(build_choices(context)) == ["y", "n", "r"]


async def test_a_call_is_shown_with_the_reason_and_allowed_with_a_rule() -> None:
    questions, person, printed = make("s")
    context = ToolPermissionContext(suggestions=[RULE], title="Run this command?", decision_reason="no rule")
    answer = await questions.decide("Bash", {"command": "git\x1b push"}, context)

    assert isinstance(answer, PermissionResultAllow)
    assert [update.destination for update in answer.updated_permissions or ()] == ["session"]
    assert person.offered == [["y", "s", "l", "u", "n", "r"]]
    assert printed == [
        "? Run this command?",
        "    git\\x1b push",
        "  why: no rule",
        "  → Yes, for this session: allow Bash(git *)",
    ]


@pytest.mark.parametrize(
    ("answers", "message", "interrupts"),
    [
        (["n"], "The user denied this call.", False),
        (["r", "too risky"], "The user denied this call. Their reason: too risky", False),
        (["r", None], "The user interrupted the turn.", True),
        ([None], "The user interrupted the turn.", True),
    ],
)
async def test_a_call_is_denied(answers: Sequence[str | None], message: str, interrupts: bool) -> None:
    questions, _, _ = make(*answers)
    answer = await questions.decide("Bash", {"command": "x"}, ToolPermissionContext())

    assert answer == PermissionResultDeny(message=message, interrupt=interrupts)


async def test_an_edit_is_shown_as_a_diff_and_the_rest_on_request() -> None:
    questions, person, printed = make("v", "y")
    new = "\n".join(f"line {number}" for number in range(60))
    edit = {"file_path": "/a.txt", "old_string": "old", "new_string": new}
    await questions.decide("Edit", edit, ToolPermissionContext())

    assert person.offered[0][-1] == "v"
    assert "    -old" in printed
    assert printed.count("    +line 5") == 2
    assert printed.count("    +line 59") == 1


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["a"], ("allow", "acceptEdits")),
        (["y"], ("allow", "default")),
        (["r", "be brief"], ("deny", "The user did not approve the plan. Revise it: be brief")),
        (["n"], ("deny", "The user interrupted the turn.")),
    ],
)
async def test_a_plan_is_reviewed(answers: Sequence[str | None], expected: tuple[str, str]) -> None:
    questions, _, printed = make(*answers)
    answer = await questions.decide("ExitPlanMode", {"plan": "# Plan\n\n- act"}, ToolPermissionContext())

    assert "Plan" in printed
    if isinstance(answer, PermissionResultAllow):
        assert ("allow", (answer.updated_permissions or [])[0].mode) == expected
    else:
        assert ("deny", answer.message) == expected


async def test_questions_have_one_answer_several_or_one_in_words() -> None:
    options = [{"label": "Red"}, {"label": "Blue"}]
    asked: Any = [
        {"question": "One?", "options": options},
        {"question": "Many?", "options": options, "multiSelect": True},
        {"question": "Own?", "options": options},
    ]
    questions, _, _ = make("2", "12", "0", "Green")
    answer = await questions.decide("AskUserQuestion", {"questions": asked}, ToolPermissionContext())

    assert isinstance(answer, PermissionResultAllow)
    assert (answer.updated_input or {})["answers"] == {"One?": "Blue", "Many?": "Red, Blue", "Own?": "Green"}


async def test_a_form_is_filled_field_by_field_or_declined() -> None:
    schema = {"properties": {"age": {"type": "integer"}}, "required": ["age"]}
    request = {"mcp_server_name": "s", "message": "Who?", "requested_schema": schema}
    questions, _, printed = make("old", "7")

    assert await questions.elicit(request) == {"action": "accept", "content": {"age": 7}}
    assert "  expected a whole number" in printed
    assert await make(None)[0].elicit(request) == {"action": "decline"}
