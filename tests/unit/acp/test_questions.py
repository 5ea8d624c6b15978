from __future__ import annotations

import pytest

from parley.acp.questions import permission_choices, question_form, read_choice, read_elicitation, read_form
from parley.sdk.permissions import PermissionRuleValue, PermissionUpdate
from parley.sdk.questions import Answers, read_questions

RULE = PermissionUpdate(
    "addRules", rules=[PermissionRuleValue("Bash", "npm run *")], behavior="allow", destination="localSettings"
)
MODE = PermissionUpdate("setMode", mode="acceptEdits", destination="session")
ASKED = read_questions(
    {
        "questions": [
            {"question": "Which?", "header": "One", "options": [{"label": "A", "description": "the first"}]},
            {"question": "What else?", "options": [{"label": "B"}, {"label": "C"}], "multiSelect": True},
        ]
    },
    "t1",
)


def test_every_suggestion_is_a_choice_of_its_own() -> None:
    choices = permission_choices([RULE, MODE])

    assert [(choice.kind, choice.name) for choice in choices] == [
        ("allow_once", "Allow"),
        ("allow_always", "Always: allow Bash(npm run *) in this project"),
        ("allow_always", "Always: change to the permission mode acceptEdits in this session"),
        ("reject_once", "Reject"),
        ("reject_always", "Reject Bash(npm run *) in this session"),
    ]
    assert [choice.updates for choice in choices] == [[], [RULE], [MODE], [], []]
    assert choices[-1].denied_rules == ["Bash(npm run *)"]


def test_without_suggestions_only_this_call_is_decided() -> None:
    assert [choice.kind for choice in permission_choices([])] == ["allow_once", "reject_once"]


@pytest.mark.parametrize(
    "response", [None, {}, {"outcome": {"outcome": "selected", "optionId": "no"}}, {"outcome": {"outcome": "maybe"}}]
)
def test_an_invalid_answer_is_not_taken_for_a_choice(response: object) -> None:
    with pytest.raises(ValueError, match="session/request_permission"):
        read_choice(response, permission_choices([]))


def test_a_cancelled_request_has_no_choice() -> None:
    assert read_choice({"outcome": {"outcome": "cancelled"}}, permission_choices([])) is None


def test_a_form_has_a_field_for_every_question() -> None:
    assert question_form(ASKED)["properties"] == {
        "question_1": {
            "type": "string",
            "title": "One",
            "description": "Which?",
            "oneOf": [{"const": "A", "title": "A: the first"}],
        },
        "question_2": {
            "type": "array",
            "title": "What else?",
            "description": "What else?",
            "items": {"anyOf": [{"const": "B", "title": "B"}, {"const": "C", "title": "C"}]},
        },
    }


def test_the_answers_of_a_form() -> None:
    filled = {"action": "accept", "content": {"question_1": "A", "question_2": ["B", "C"]}}

    assert read_form(filled, ASKED) == Answers({"Which?": "A", "What else?": "B, C"})
    assert read_form({"action": "accept", "content": {}}, ASKED) is None
    assert read_form({"action": "decline"}, ASKED) is None


def test_an_unknown_action_is_invalid() -> None:
    with pytest.raises(ValueError, match="unknown action 'shrug'"):
        read_elicitation({"action": "shrug"})
