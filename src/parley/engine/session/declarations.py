"""What the client declared in `initialize` about itself and the session, as far as no other part keeps it."""

from __future__ import annotations

from parley.tools.base import Context

PLAN_RULE = "You are in plan mode: read and search as much as you need, and change nothing."
PLAN_END = "When the plan stands, present it with ExitPlanMode."


class ClientDeclarations:
    def __init__(self) -> None:
        self.title = ""
        """The title of a new session."""
        self.plan_instructions = ""
        """What to do in plan mode, instead of our own advice."""
        self.summarizes_agents = False
        """Running subagents report what they do."""
        self.can_stop_tasks: bool | None = None
        """Whether the client can stop single tasks; None before the handshake."""
        self._knows_plan = False
        """Whether the model was given the instructions since the session went into plan mode."""

    def describe_plan_mode(self, context: Context) -> str:
        """The client's instructions for plan mode, between ours; empty if it has none."""
        if not self.plan_instructions:
            return ""
        self._knows_plan = True
        place = f" You may write it to {context.plan_file} first." if context.plan_file else ""
        return f"{PLAN_RULE}\n\n{self.plan_instructions}\n\n{PLAN_END}{place}"

    def plan_news(self, mode: str, context: Context) -> list[str]:
        """What the model has to know at the start of a turn: the instructions, if it does not have them yet."""
        if mode != "plan":
            self._knows_plan = False
        if mode != "plan" or self._knows_plan or not self.plan_instructions:
            return []
        return [self.describe_plan_mode(context)]
