"""What was decided on a tool call, and how it ended: also one that was refused, or could not even be tried."""

from __future__ import annotations

from parley.permissions.base import Allow, Deny
from parley.protocol.base import Json, Struct
from parley.protocol.blocks import ToolUse
from parley.tools.base import ToolOutput

NOT_RUN = {"host": ("permission-rule", "user_reject"), "nobody": ("user-rejected", "config")}
"""How and by whom, as the line says it of a call that did not run; by who denied it."""
BY_RULE = ("permission-rule", "config")
BY_HOOK = ("permission-rule", "hook")
STOPPED_TEXT = "The user did not want this tool call and ended the turn. Wait for what they say next."


class DecisionRecord(Struct, frozen=True, kw_only=True):
    """A decision on one call, as it is recorded."""

    call: ToolUse
    decision: Allow | Deny
    input_sha256: str
    """Of the input that was judged: nothing else may run."""
    mode: str
    cwd: str
    """Where relative paths started."""
    was_asked: bool
    wait_seconds: float

    def json(self, *, reads_only: bool) -> Json:
        decision = self.decision
        record: Json = {
            "tool_use_id": self.call.id,
            "tool": self.call.name,
            "decision": "allow" if isinstance(decision, Allow) else "deny",
            "source": decision.source,
            "reason": decision.reason,
            "mode": self.mode,
            "asked": self.was_asked,
            "cwd": self.cwd,
            "input_sha256": self.input_sha256,
            "elapsed_ms": round(self.wait_seconds * 1000, 3),
        }
        if isinstance(decision, Allow) and not reads_only:
            record["effect"] = True  # what follows must not be forgotten
        if decision.rule is not None:
            record |= {"rule": decision.rule.text, "rule_source": decision.rule.source}
        return record


class ToolOutcome(Struct, frozen=True, kw_only=True):
    """How a call ended."""

    output: ToolOutput
    denied: Deny | None = None
    meta: Json | None = None
    """For the line's `tool_result_meta`."""
    contexts: tuple[str, ...] = ()
    """What hooks have to say to the model beside the result."""
    stop_reason: str | None = None
    """Why a hook wants the turn to end, if one does."""
    executed_input: Json | None = None
    """The input it ran with, if it ran."""

    @property
    def stops_turn(self) -> bool:
        return self.denied is not None and self.denied.interrupt


def denied_outcome(denial: Deny) -> ToolOutcome:
    """How a call ends that was denied."""
    if denial.interrupt:
        result = ToolOutput(content=STOPPED_TEXT, detail="User rejected tool use", is_error=True)
        return ToolOutcome(output=result, denied=denial, meta={"non_execution_kind": "user-rejected"})
    kind, source = NOT_RUN.get(denial.source, BY_HOOK if denial.source == "hook" else BY_RULE)
    decision = {"decision": "reject", "source": source}
    if denial.reason_type and denial.source not in NOT_RUN:
        decision["reason_type"] = denial.reason_type
    return ToolOutcome(
        output=ToolOutput(content=denial.message, detail=f"Error: {denial.message}", is_error=True),
        denied=denial,
        meta={"non_execution_kind": kind, "permission_decision": decision},
        stop_reason=denial.stop_reason,
    )


def unusable_call(text: str) -> ToolOutput:
    """A call that could not even be tried."""
    return ToolOutput(content=f"<tool_use_error>{text}</tool_use_error>", detail=text, is_error=True)
