"""EnterPlanMode and ExitPlanMode: make a plan first, then have it approved.

A plan comes with the call, or from the session's plan file where the model wrote one.
Either way the person sees it in the permission request, and may change it there: what
comes back is what the model is told.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.workspace.base import Scope

NOT_ALLOWED = "allowedPrompts allows nothing here: permission rules decide on each command."


class EnterPlanModeInput(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class EnterPlanMode:
    name: ClassVar[str] = "EnterPlanMode"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = EnterPlanModeInput
    description: ClassVar[str] = (
        "Goes into plan mode: you look around and make a plan, and change nothing until the user has approved it. "
        "For work that is large, risky or can be done in several ways. ExitPlanMode presents the plan."
    )

    async def run(self, call: EnterPlanModeInput, context: Context, reach: Scope) -> ToolOutput:
        if context.session.set_mode is None:
            raise ToolError("The mode cannot be changed here. Present your plan as text, and wait for an answer.")
        context.session.set_mode("plan")
        place = f" You may write it to {context.plan_file} first." if context.plan_file else ""
        text = context.session.describe_plan_mode(context) or (
            "You are in plan mode. Read and search as much as you need, and change nothing. "
            f"When the plan is ready, present it with ExitPlanMode.{place}"
        )
        return ToolOutput(content=text, detail={"message": text})


class PlanShown(Struct, frozen=True, kw_only=True):
    plan: Annotated[
        str | None, Meta(description="The plan in Markdown; may be left out if it was written to the plan file")
    ] = None


class ExitPlanModeInput(Struct, frozen=True, kw_only=True):
    """Other keys are passed to the client."""

    plan: str | None = None
    planFilePath: str | None = None
    allowedPrompts: Any = None
    """What the model would like to do without being asked, in words. The client sees it; it allows nothing."""


class ExitPlanMode:
    name: ClassVar[str] = "ExitPlanMode"
    reads_only: ClassVar[bool] = True
    always_asks: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = ExitPlanModeInput
    shown: ClassVar[type[Struct]] = PlanShown
    description: ClassVar[str] = (
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
