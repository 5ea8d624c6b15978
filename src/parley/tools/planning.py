"""Tools that a person answers: EnterPlanMode and ExitPlanMode for plans, AskUserQuestion for questions.

A plan comes with the call, or from the session's plan file where the model wrote one. Either way the person sees it in
the permission request, and may change it there: what comes back is what the model is told.

Questions are sent in the approval request, and the answers arrive in the reply: as `updatedInput.answers`, or as
`selectedOptions` in the order of the questions. So AskUserQuestion always asks, whatever the rules allow. Answers that
the model itself put into its call are dropped.

SetGoal: the model sets the goal that its turns work towards. The engine implements `Goal` in engine/goal.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

import msgspec
from msgspec import UNSET, Meta, UnsetType

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions
from parley.tools.base import HIDDEN, REQUIRED, Context, InvalidInput, NoInput, Tool, ToolOutput, read_input
from parley.workspace.base import Scope

NOT_ALLOWED = "allowedPrompts allows nothing here: permission rules decide on each command."


class EnterPlanMode(Tool):
    name = "EnterPlanMode"
    reads_only = True
    input = NoInput
    description = (
        "Goes into plan mode: you look around and make a plan, and change nothing until the user has approved it. "
        "For work that is large, risky or can be done in several ways. ExitPlanMode presents the plan."
    )

    async def run(self, call: NoInput, context: Context, reach: Scope) -> ToolOutput:
        if context.session.set_mode is None:
            raise ToolError("The mode cannot be changed here. Present your plan as text, and wait for an answer.")
        context.session.set_mode("plan")
        text = context.session.describe_plan_mode(context)
        return ToolOutput(content=text, detail={"message": text})


class ExitPlanModeInput(Struct, frozen=True, kw_only=True):
    """Other keys are passed to the client."""

    plan: Annotated[
        str | None, Meta(description="The plan in Markdown; may be left out if it was written to the plan file")
    ] = None
    planFilePath: Annotated[str | None, HIDDEN] = None
    allowedPrompts: Annotated[Any, HIDDEN] = None
    """What the model would like to do without being asked, in words. The client sees it; it allows nothing."""


class ExitPlanMode(Tool):
    name = "ExitPlanMode"
    reads_only = True
    always_asks = True
    input = ExitPlanModeInput
    description = (
        "Presents your plan to the user and asks for approval. Once approved, plan mode ends and you carry the plan "
        "out. Say in `plan` what you will change, in which order, and how you will check it. Use it only for plans "
        "that lead to changes, not to answer a question."
    )

    def prepare(self, input: Json, context: Context) -> Json:
        """The input with the plan from the plan file, unless the model gave one."""
        if not input.get("plan"):
            input = {key: value for key, value in input.items() if key not in ("plan", "planFilePath")}
            if written := context.read_plan():
                input |= {"plan": written, "planFilePath": context.plan_file}
        context.state.notes[self.name] = input.get("plan")
        return input

    async def run(self, call: ExitPlanModeInput, context: Context, reach: Scope) -> ToolOutput:
        if context.session.set_mode is not None:
            context.session.set_mode(None)
        plan, proposed = call.plan or None, context.state.notes.get(self.name)
        detail: Json = {"plan": plan, "isAgent": False}
        if context.plan_file:
            detail["filePath"] = context.plan_file
        note = f"\n\n{NOT_ALLOWED}" if call.allowedPrompts else ""
        if plan is None:
            text = f"The user agreed to leave plan mode. You may make changes now.{note}"
            return ToolOutput(content=text, detail=detail)
        how = "The user approved your plan"
        if plan != proposed:
            detail["planWasEdited"] = True
            how = "The user changed your plan and approved it as shown below"
        text = f"{how}. Plan mode has ended: carry out the plan now.\n\nThe approved plan:\n{plan}{note}"
        return ToolOutput(content=text, detail=detail)


class Choice(Struct, frozen=True, kw_only=True):
    # The model reads the names of this class and the next in the schema.
    label: Annotated[str, Meta(min_length=1, description="What the user picks, in a few words")]
    description: Annotated[str, Meta(description="What it means or leads to"), REQUIRED] = ""
    preview: Annotated[str | UnsetType, Meta(description="Something to look at: code, a layout")] = UNSET


class Question(Struct, frozen=True, kw_only=True):
    question: Annotated[str, Meta(min_length=1, description="The whole question, with a question mark")]
    header: Annotated[str, Meta(description="A label of at most 12 characters"), REQUIRED] = ""
    options: Annotated[list[Choice], Meta(min_length=2, max_length=4)]
    multiSelect: Annotated[bool, Meta(description="Whether several options may be picked")] = False


class QuestionsInput(Struct, frozen=True, kw_only=True):
    """The questions, and what the client adds to them."""

    questions: Annotated[list[Question], Meta(min_length=1, max_length=4)]
    answers: Annotated[dict[str, str | list[str]] | None, HIDDEN] = None
    selectedOptions: Annotated[list[str] | None, HIDDEN] = None
    response: Annotated[str | None, HIDDEN] = None
    """Free text instead of answers."""
    annotations: Annotated[dict[str, Json] | None, HIDDEN] = None
    """By question: `notes`, `preview`, and `unanswered`, which the result repeats for the client."""


class HtmlChoice(Choice, frozen=True, kw_only=True):
    """A choice whose preview is shown in a browser."""

    preview: Annotated[
        str | UnsetType, Meta(description="Something to look at: a self-contained fragment of HTML, without scripts")
    ] = UNSET


class HtmlQuestion(Question, frozen=True, kw_only=True):
    options: Annotated[list[HtmlChoice], Meta(min_length=2, max_length=4)]  # type: ignore[assignment]


class HtmlQuestionsInput(QuestionsInput, frozen=True, kw_only=True):
    questions: Annotated[list[HtmlQuestion], Meta(min_length=1, max_length=4)]  # type: ignore[assignment]


class AskUserQuestion(Tool):
    name = "AskUserQuestion"
    reads_only = True
    always_asks = True
    input: type[Struct] = QuestionsInput
    description = (
        "Asks the user one to four questions, each with two to four options to pick from; the user may always answer "
        "in their own words instead, so add no option for that. Ask when the work depends on a decision that is "
        "theirs and that you cannot find out. If you recommend an option, put it first."
    )

    def with_options(self, options: CliOptions) -> Tool:
        return AskWithHtmlPreviews() if options.question_preview_format == "html" else self

    def prepare(self, input: Json, context: Context) -> Json:
        """The questions alone, with defaults for optional fields."""
        try:
            read: QuestionsInput = read_input(self, input)
        except InvalidInput:
            return input  # it is refused when it is run
        return {"questions": msgspec.to_builtins(read.questions)}

    async def run(self, call: QuestionsInput, context: Context, reach: Scope) -> ToolOutput:
        answers = collect_answers(call)
        detail: Json = {"questions": msgspec.to_builtins(call.questions), "answers": answers}
        if call.response:
            detail["response"] = call.response
        if call.annotations:
            detail["annotations"] = call.annotations
        return ToolOutput(content=format_answers(call, answers), detail=detail)


class AskWithHtmlPreviews(AskUserQuestion):
    """The same tool for a client that shows previews as HTML."""

    input = HtmlQuestionsInput


def collect_answers(call: QuestionsInput) -> dict[str, str]:
    """Question and answer; several choices are joined by commas."""
    if call.answers is not None:
        return {question: join_answer(answer) for question, answer in call.answers.items()}
    picked = call.selectedOptions or []
    if len(call.questions) == 1 and picked:
        return {call.questions[0].question: join_answer(picked)}
    return {question.question: pick for question, pick in zip(call.questions, picked, strict=False)}


def join_answer(answer: str | list[str]) -> str:
    return answer if isinstance(answer, str) else ", ".join(answer)


def format_answers(call: QuestionsInput, answers: dict[str, str]) -> str:
    """The text for the model."""
    notes = {question: about.get("notes") for question, about in (call.annotations or {}).items()}
    lines = [
        f"- {question} {answer}" + (f"\n  (note: {notes[question]})" if notes.get(question) else "")
        for question, answer in answers.items()
        if answer
    ]
    parts = ["The user answered:\n" + "\n".join(lines)] if lines else []
    if call.response:
        parts.append(f"The user said: {call.response}")
    if not parts:
        return "The user gave no answer. Continue as you think best, or ask in plain text."
    open_questions = [asked.question for asked in call.questions if not answers.get(asked.question)]
    if open_questions and not call.response:
        parts.append("Not answered:\n" + "\n".join(f"- {question}" for question in open_questions))
    return "\n\n".join(parts)


MAX_CHARS = 500
"""The user must be able to read the whole condition in a dialog."""


class Goal(Protocol):
    """The goal of a session."""

    @property
    def is_active(self) -> bool: ...

    def set(self, condition: str) -> None:
        """Set it and tell the user. Raises ToolError, SessionError."""


class SetGoalInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    condition: Annotated[
        str, Meta(description=f"When the goal is met, so that the conversation can prove it. At most {MAX_CHARS} chars")
    ]
    ask_user: Annotated[
        bool, Meta(description="false only if the user's own words state this outcome as what they want")
    ] = True


class SetGoal(Tool):
    name = "SetGoal"
    reads_only = False
    input = SetGoalInput
    description = (
        "Sets a goal for the session: whenever you stop, another model judges from the conversation whether the "
        "condition is met, and you continue until it is. The user approves it first."
    )

    def asks_person(self, input: Json, context: Context) -> bool:
        """Whether only a person can allow the call. An active goal is never replaced without asking."""
        goal = context.session.open_goal
        return input.get("ask_user") is not False or goal is None or goal().is_active

    async def run(self, call: SetGoalInput, context: Context, reach: Scope) -> ToolOutput:
        if context.session.open_goal is None:
            raise ToolError("Goals are not available in this session.")
        goal, condition = context.session.open_goal(), call.condition.strip()
        if not condition or len(condition) > MAX_CHARS:
            raise ToolError(f"condition must have 1 to {MAX_CHARS} characters; it has {len(condition)}.")
        was_asked = self.asks_person({"ask_user": call.ask_user}, context)
        goal.set(condition)
        return ToolOutput(
            content=f"The goal is set: {condition}\nWork towards it now, and show the evidence that it is met.",
            detail={"condition": condition, "askUser": was_asked},
        )
