"""A decision on a tool call as a report: what would happen, why, and by which rule of which file.

explain(policy.decide(request, mode), request, mode, settings.merged.rules, "runs").to_json()
"""

from __future__ import annotations

from collections.abc import Iterable

from parley.engine.approval.request import input_digest
from parley.permissions.base import Allow, Ask, Decision, Deny, ToolRequest
from parley.protocol.base import Json, Struct
from parley.settings.base import RuleText

VERDICTS: dict[type, str] = {Allow: "allow", Ask: "ask", Deny: "deny"}


class CheckResult(Struct, frozen=True, kw_only=True):
    """A decision and its explanation."""

    tool: str
    input: Json
    mode: str
    decision: str
    outcome: str
    """What would happen with the call."""
    source: str
    reason: str
    reason_type: str
    message: str
    rule: Json | None
    blocked_path: str | None
    suggestions: list[Json]
    input_sha256: str

    def to_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def explain(
    decision: Decision, request: ToolRequest, mode: str, rules: Iterable[RuleText], ask_outcome: str
) -> CheckResult:
    """`rules`: those of the settings files. `ask_outcome`: what happens if the decision is to ask."""
    outcome = "runs" if isinstance(decision, Allow) else "denied"
    return CheckResult(
        tool=request.tool,
        input=request.input,
        mode=mode,
        decision=VERDICTS[type(decision)],
        outcome=ask_outcome if isinstance(decision, Ask) else outcome,
        source=getattr(decision, "source", "rule" if decision.rule is not None else ""),
        reason=decision.reason,
        reason_type=decision.reason_type,
        message=getattr(decision, "message", ""),
        rule=describe_rule(decision, rules),
        blocked_path=getattr(decision, "blocked_path", None),
        suggestions=list(getattr(decision, "suggestions", ())),
        input_sha256=input_digest(request.input),
    )


def describe_rule(decision: Decision, rules: Iterable[RuleText]) -> Json | None:
    """The rule that decided, with its file and line."""
    rule = decision.rule
    if rule is None:
        return None
    found: Json = {"text": rule.text, "behavior": rule.behavior, "source": rule.source}
    for written in rules:
        if (written.text.strip(), written.behavior, written.source) == (rule.text, rule.behavior, rule.source):
            return {**found, "file": written.path, "line": written.line}
    return found
