"""SetGoal: the model sets the goal that its turns work towards. The engine implements `Goal` in engine/goal.py."""

from __future__ import annotations

from typing import Annotated, ClassVar, Protocol

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, ToolOutput
from parley.workspace.base import Scope

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


class SetGoal:
    name: ClassVar[str] = "SetGoal"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = SetGoalInput
    description: ClassVar[str] = (
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
