"""What a PreToolUse hook's word is worth beside the rules and the mode. Pure.

    deny rule > hook > ask rule > allow rule > mode > the host

A hook may deny and ask whatever it likes. Its allow spares a question that only the mode asks: it opens
nothing that a rule denies or wants asked, nothing that is grave, and no question to a person.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from parley.permissions.base import Allow, Ask, Decision, Deny, ToolRequest
from parley.protocol.base import Struct

HOOK = "hook"
"""The source of a decision that a hook took, and its type of reason."""
BINDING = frozenset({"rule", "safetyCheck"})
"""Reasons to ask that no hook takes away."""


class HookOpinion(Struct, frozen=True, kw_only=True):
    """What the hooks say to a call."""

    behavior: Literal["allow", "ask", "deny"]
    reason: str = ""
    event: str = "PreToolUse"


def apply_hook_decision(
    request: ToolRequest, decision: Decision, opinion: HookOpinion, decide_default: Callable[[], Decision]
) -> Decision:
    """The decision, given what the hooks say. `plainly` is what it would be in the default mode."""
    if isinstance(decision, Deny) and decision.source == "rule":
        return decision
    if opinion.behavior == "deny":
        why = opinion.reason or "denied without a reason"
        return Deny(message=f"{opinion.event} hook error: {why}", source=HOOK, reason=why, reason_type=HOOK)
    if opinion.behavior == "ask":
        if isinstance(decision, Deny):
            return decision  # nobody is asked in this mode
        return Ask(reason=opinion.reason, reason_type=HOOK, scope=decision.scope)
    if isinstance(decision, Allow):
        return Allow(input=decision.input, source=HOOK, reason=opinion.reason, reason_type=HOOK, scope=decision.scope)
    beneath = decide_default()
    if request.asks_user or not isinstance(beneath, Ask | Allow) or is_binding(beneath):
        return decision
    return Allow(input=request.input, source=HOOK, reason=opinion.reason, reason_type=HOOK, scope=beneath.scope)


def is_binding(decision: Ask | Allow) -> bool:
    return isinstance(decision, Ask) and decision.reason_type in BINDING
