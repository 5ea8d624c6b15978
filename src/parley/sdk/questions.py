"""Questions and plans of the model, with typed answers.

    async def choose(questions: Questions) -> Answers | None:
        return questions.answer({"Which one?": "B"})

    async def review(plan: Plan) -> PlanDecision:
        return plan.approve(mode="acceptEdits") if "tests" in plan.text else plan.reject("Test it, too.")

    Options(on_question=choose, on_plan=review)

None means "not answered": the model is told so and continues. Questions and plans are calls of the
tools AskUserQuestion and ExitPlanMode; a `can_use_tool` that handles these needs neither callback.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from parley.protocol.base import Json
from parley.sdk.errors import InvalidReturn
from parley.sdk.permissions import PermissionResult, PermissionResultAllow, PermissionResultDeny, PermissionUpdate
from parley.sdk.types.shapes import PermissionMode

NOT_ANSWERED = "The person did not answer the question."


@dataclass(frozen=True)
class Choice:
    """One choice of a question."""

    label: str
    description: str = ""


@dataclass(frozen=True)
class Question:
    """A question with its choices."""

    text: str
    header: str
    choices: tuple[Choice, ...]
    several: bool
    """Whether several choices are allowed."""


@dataclass(frozen=True)
class Answers:
    """The answers to `Questions`, by the text of the question."""

    by_question: Mapping[str, str]


@dataclass(frozen=True)
class Questions:
    """Questions of the model."""

    questions: tuple[Question, ...]
    tool_use_id: str | None = None
    input: Json = field(default_factory=dict)

    def answer(self, answers: Mapping[str, str | Sequence[str]]) -> Answers:
        """Answers by question text, several choices as a list. Raises ValueError for an unknown question."""
        texts = {question.text for question in self.questions}
        if unknown := sorted(set(answers) - texts):
            raise ValueError(f"unknown question {unknown[0]!r} (the questions are {sorted(texts)})")
        return Answers({text: value if isinstance(value, str) else ", ".join(value) for text, value in answers.items()})


@dataclass(frozen=True)
class PlanDecision:
    """What `on_plan` decides; from `Plan.approve` or `Plan.reject`."""

    approved: bool
    mode: PermissionMode | None = None
    message: str = ""


@dataclass(frozen=True)
class Plan:
    """A plan that the model asks to execute."""

    text: str
    path: str | None = None
    tool_use_id: str | None = None
    input: Json = field(default_factory=dict)

    def approve(self, mode: PermissionMode | None = None) -> PlanDecision:
        """Approve the plan and continue in this mode."""
        return PlanDecision(approved=True, mode=mode)

    def reject(self, message: str = "The plan was not approved.") -> PlanDecision:
        """Reject the plan. The model reads the message."""
        return PlanDecision(approved=False, message=message)


OnQuestion = Callable[[Questions], Awaitable[Answers | None] | Answers | None]
OnPlan = Callable[[Plan], Awaitable[PlanDecision] | PlanDecision]


def read_questions(input: Json, tool_use_id: str | None) -> Questions:
    """Read the tool input that the model wrote. Entries that are not objects are skipped."""
    entries = input.get("questions")
    return Questions(
        questions=tuple(parse_question(entry) for entry in entries if isinstance(entry, dict))
        if isinstance(entries, list)
        else (),
        tool_use_id=tool_use_id,
        input=input,
    )


def parse_question(given: Json) -> Question:
    options = given.get("options")
    return Question(
        text=str(given.get("question", "")),
        header=str(given.get("header", "")),
        choices=tuple(map(parse_choice, options)) if isinstance(options, list) else (),
        several=given.get("multiSelect") is True,
    )


def parse_choice(given: Any) -> Choice:
    if not isinstance(given, dict):
        return Choice(str(given))
    return Choice(str(given.get("label", "")), str(given.get("description", "")))


def read_plan(input: Json, tool_use_id: str | None) -> Plan:
    path = input.get("planFilePath")
    return Plan(str(input.get("plan", "")), path if isinstance(path, str) else None, tool_use_id, input)


def question_decision(questions: Questions, answers: object) -> PermissionResult:
    """Raises InvalidReturn if the callback returned neither Answers nor None."""
    if answers is None:
        return PermissionResultDeny(message=NOT_ANSWERED)
    if not isinstance(answers, Answers):
        raise InvalidReturn(f"on_question must return Answers or None, not {type(answers).__name__}")
    return PermissionResultAllow(updated_input={**questions.input, "answers": dict(answers.by_question)})


def plan_decision(plan: Plan, decision: object) -> PermissionResult:
    """Raises InvalidReturn if the callback did not return a PlanDecision."""
    if not isinstance(decision, PlanDecision):
        raise InvalidReturn(f"on_plan must return a PlanDecision, not {type(decision).__name__}")
    if not decision.approved:
        return PermissionResultDeny(message=decision.message)
    change = None if decision.mode is None else [PermissionUpdate("setMode", mode=decision.mode, destination="session")]
    return PermissionResultAllow(updated_input=dict(plan.input), updated_permissions=change)
