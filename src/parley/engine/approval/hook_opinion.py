"""Weighs the decision of PreToolUse hooks against rules and mode. Pure.

    deny rule > hook > ask rule > allow rule > mode > the client

A hook may deny any call, or have the client asked about it. Its allow only replaces a question of the mode: it does not
override a deny rule, an ask rule, a safety check, or a tool that asks the user.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from parley.engine.approval.request import BINDING_REASONS
from parley.permissions.base import Allow, Ask, Decision, Deny, ToolRequest
from parley.protocol.base import Struct

HOOK = "hook"
"""The source and the reason type of a decision by a hook."""


class HookOpinion(Struct, frozen=True, kw_only=True):
    """What PreToolUse hooks decided about a call."""

    behavior: Literal["allow", "ask", "defer", "deny"]
    reason: str = ""
    event: str = "PreToolUse"


def apply_hook_decision(
    request: ToolRequest, decision: Decision, opinion: HookOpinion, decide_default: Callable[[], Decision]
) -> Decision:
    """The decision in view of the hooks. `decide_default` gives the decision of the default mode."""
    if isinstance(decision, Deny) and decision.source == "rule":
        return decision
    if opinion.behavior == "deny":
        return deny_by_hook(opinion)
    if opinion.behavior in ("ask", "defer"):  # a call that cannot be deferred is asked about
        if isinstance(decision, Deny):
            return decision  # this mode never asks
        return Ask(reason=opinion.reason, reason_type=HOOK, scope=decision.scope)
    if isinstance(decision, Allow):
        return Allow(input=decision.input, source=HOOK, reason=opinion.reason, reason_type=HOOK, scope=decision.scope)
    default = decide_default()
    if request.asks_user or not isinstance(default, Ask | Allow) or is_binding(default):
        return decision
    return Allow(input=request.input, source=HOOK, reason=opinion.reason, reason_type=HOOK, scope=default.scope)


def deny_by_hook(opinion: HookOpinion) -> Deny:
    why = opinion.reason or f"{'deferred' if opinion.behavior == 'defer' else 'denied'} without a reason"
    return Deny(message=f"{opinion.event} hook error: {why}", source=HOOK, reason=why, reason_type=HOOK)


def is_binding(decision: Ask | Allow) -> bool:
    return isinstance(decision, Ask) and decision.reason_type in BINDING_REASONS
