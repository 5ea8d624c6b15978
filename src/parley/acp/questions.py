"""Questions to the person at the editor, and what their answers mean.

A tool call and a plan become a permission request. A question of the model becomes a form if the editor shows forms
(elicitation), else a permission request with its choices. Nothing here does I/O: each function builds the parameters of
a request, or reads its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from parley.acp.schema import ElicitationResponse, PermissionResponse
from parley.permissions.rule import format_rule, split_alternatives
from parley.protocol.base import Json, Struct
from parley.sdk.permissions import PermissionUpdate
from parley.sdk.questions import Answers, Plan, PlanDecision, Question, Questions

DENIED = "The user denied this call."
CANCELLED = "The user cancelled the turn."
PLACES = {"session": "in this session", "localSettings": "in this project", "userSettings": "in all projects"}


class PermissionChoice(Struct, frozen=True, kw_only=True):
    """One answer to a permission request."""

    id: str
    kind: str
    name: str
    updates: list[PermissionUpdate] = []
    """The permission updates of an answer that allows."""
    denied_rules: list[str] = []
    """The rules that are denied from now on."""

    @property
    def allows(self) -> bool:
        return self.kind.startswith("allow")

    def to_json(self) -> Json:
        return {"optionId": self.id, "kind": self.kind, "name": self.name}


# Tool calls.


def permission_choices(suggestions: Sequence[PermissionUpdate]) -> list[PermissionChoice]:
    """Allow or reject this call, or all like it: as the engine's suggestions say."""
    groups = split_alternatives([update.to_dict() for update in suggestions])
    always = [
        PermissionChoice(
            id=f"allow_always_{number}",
            kind="allow_always",
            name=f"Always: {', '.join(map(describe_update, group))}",
            updates=[PermissionUpdate.from_dict(update) for update in group],
        )
        for number, group in enumerate(groups, 1)
    ]
    rules = [rule for update in suggestions for rule in format_rules(update.to_dict())]
    never = [
        PermissionChoice(
            id="reject_always",
            kind="reject_always",
            name=f"Reject {', '.join(rules)} in this session",
            denied_rules=rules,
        )
    ]
    return [
        PermissionChoice(id="allow_once", kind="allow_once", name="Allow"),
        *always,
        PermissionChoice(id="reject_once", kind="reject_once", name="Reject"),
        *(never if rules else ()),
    ]


def describe_update(update: Json) -> str:
    place = PLACES.get(str(update.get("destination")), "")
    match update:
        case {"type": "addRules"}:
            text = f"allow {', '.join(format_rules(update))}"
        case {"type": "addDirectories", "directories": directories}:
            text = f"work in {', '.join(directories)}"
        case {"type": "setMode", "mode": mode}:
            text = f"change to the permission mode {mode}"
        case _:
            text = str(update.get("type"))
    return f"{text} {place}".strip()


def format_rules(update: Json) -> list[str]:
    return [format_rule(rule["toolName"], rule.get("ruleContent")) for rule in update.get("rules") or ()]


def read_choice(response: Any, choices: Sequence[PermissionChoice]) -> PermissionChoice | None:
    """The choice of the person; None if the request was cancelled. Raises ValueError for an invalid response."""
    try:
        outcome = msgspec.convert(response, PermissionResponse).outcome
    except msgspec.ValidationError as exc:
        raise ValueError(f"the response to session/request_permission is invalid: {exc}") from None
    if outcome.outcome == "cancelled":
        return None
    found = next((choice for choice in choices if choice.id == outcome.option_id), None)
    if outcome.outcome != "selected" or found is None:
        raise ValueError(f"the response to session/request_permission names the unknown option {outcome.option_id!r}")
    return found


# Plans.

PLAN_CHOICES = [
    PermissionChoice(id="acceptEdits", kind="allow_always", name="Yes, and accept all edits"),
    PermissionChoice(id="default", kind="allow_once", name="Yes, and ask before each edit"),
    PermissionChoice(id="plan", kind="reject_once", name="No, keep planning"),
]


def plan_decision(plan: Plan, choice: PermissionChoice | None) -> PlanDecision:
    if choice is None:
        return plan.reject(CANCELLED)
    if choice.id == "acceptEdits":
        return plan.approve("acceptEdits")
    return plan.approve("default") if choice.allows else plan.reject()


# Questions of the model.

SKIP = PermissionChoice(id="skip", kind="reject_once", name="Do not answer")


def question_choices(question: Question) -> list[PermissionChoice]:
    """The choices of a question as answers to a permission request."""
    offered = [
        PermissionChoice(id=f"choice_{number}", kind="allow_once", name=choice.label)
        for number, choice in enumerate(question.choices, 1)
    ]
    return [*offered, SKIP]


def question_text(question: Question) -> str:
    """The question with what its choices mean."""
    lines = [f"- **{choice.label}**: {choice.description}" for choice in question.choices if choice.description]
    return "\n".join([question.text, *(["", *lines] if lines else [])])


def question_form(questions: Questions) -> Json:
    """The schema of a form with one field per question."""
    return {
        "type": "object",
        "properties": {
            f"question_{number}": question_field(each) for number, each in enumerate(questions.questions, 1)
        },
        "required": [],
    }


def question_field(question: Question) -> Json:
    options = [
        {
            "const": choice.label,
            "title": f"{choice.label}: {choice.description}" if choice.description else choice.label,
        }
        for choice in question.choices
    ]
    about = {"title": question.header or question.text, "description": question.text}
    if question.several:
        return {"type": "array", **about, "items": {"anyOf": options}}
    return {"type": "string", **about, **({"oneOf": options} if options else {})}


def read_form(response: Any, questions: Questions) -> Answers | None:
    """The answers in a form; None if the person did not answer. Raises ValueError for an invalid response."""
    found = read_elicitation(response)
    if found["action"] != "accept":
        return None
    content = found.get("content") or {}
    answers = {
        each.text: value
        for number, each in enumerate(questions.questions, 1)
        if isinstance(value := content.get(f"question_{number}"), str | list) and value
    }
    return questions.answer(answers) if answers else None


def read_elicitation(response: Any) -> Json:
    """The answer to an elicitation. Raises ValueError for an invalid response."""
    try:
        found = msgspec.convert(response, ElicitationResponse)
    except msgspec.ValidationError as exc:
        raise ValueError(f"the response to elicitation/create is invalid: {exc}") from None
    if found.action not in ("accept", "decline", "cancel"):
        raise ValueError(f"the response to elicitation/create has the unknown action {found.action!r}")
    return {"action": found.action, **({} if found.content is None else {"content": found.content})}
