"""How a tool call ended, for the turn that made it: also one that was refused, or could not even be tried."""

from __future__ import annotations

from parley.permissions.base import Deny
from parley.protocol.base import Json, Struct
from parley.tools.base import Result

NOT_RUN = {"host": ("permission-rule", "user_reject"), "nobody": ("user-rejected", "config")}
"""How and by whom, as the line says it of a call that did not run; by who denied it."""
BY_RULE = ("permission-rule", "config")
BY_HOOK = ("permission-rule", "hook")
STOPPED = "The user did not want this tool call and ended the turn. Wait for what they say next."


class Called(Struct, frozen=True, kw_only=True):
    """How a call ended."""

    result: Result
    denied: Deny | None = None
    meta: Json | None = None
    """For the line's `tool_result_meta`."""
    contexts: tuple[str, ...] = ()
    """What hooks have to say to the model beside the result."""
    stopped: str | None = None
    """Why a hook wants the turn to end, if one does."""
    ran: Json | None = None
    """The input it ran with, if it ran."""

    @property
    def stops_turn(self) -> bool:
        return self.denied is not None and self.denied.interrupt


def refused(denial: Deny) -> Called:
    """How a call ends that was denied."""
    if denial.interrupt:
        result = Result(content=STOPPED, detail="User rejected tool use", is_error=True)
        return Called(result=result, denied=denial, meta={"non_execution_kind": "user-rejected"})
    kind, source = NOT_RUN.get(denial.source, BY_HOOK if denial.source == "hook" else BY_RULE)
    decision = {"decision": "reject", "source": source}
    if denial.reason_type and denial.source not in NOT_RUN:
        decision["reason_type"] = denial.reason_type
    return Called(
        result=Result(content=denial.message, detail=f"Error: {denial.message}", is_error=True),
        denied=denial,
        meta={"non_execution_kind": kind, "permission_decision": decision},
        stopped=denial.stopped,
    )


def unusable(text: str) -> Result:
    """A call that could not even be tried."""
    return Result(content=f"<tool_use_error>{text}</tool_use_error>", detail=text, is_error=True)
