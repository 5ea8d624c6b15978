"""Merge the outputs of several hooks for one event. Pure. `RULES` is the table in docs/hooks.md.

Outputs are merged in the order of registration, not of arrival: callbacks of the client first, then commands from
settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from parley.hooks.base import Hook, HookRun
from parley.hooks.event_spec import CONTEXT, HookEventSpec, OnFailure
from parley.hooks.output import HookOutput, SpecificOutput
from parley.protocol.base import UNSET, Json, Struct

Permission = Literal["allow", "ask", "defer", "deny"]
STRENGTH: dict[str, int] = {"allow": 1, "ask": 2, "defer": 3, "deny": 4}
DECISION_ALIASES = {"block": "deny", "approve": "allow"}
"""The values of `decision`, which is older than `permissionDecision`."""

RULES = {
    "permissionDecision": ("the strongest of deny, defer, ask and allow, in this order; an unknown value means deny"),
    "permissionDecisionReason": "the value of the first hook with that decision",
    "updatedInput": "the value of the first hook that sets it; the other hooks then see the new input",
    "additionalContext": "the values of all hooks, as separate paragraphs",
    "decision block and reason": "one blocking hook is enough; the reasons of all of them are joined by newlines",
    "continue false and stopReason": "one hook is enough; the first reason is used",
    "systemMessage": "the values of all hooks, as separate lines",
    "suppressOutput": "applies to the hook that sets it",
    "updatedToolOutput, updatedMCPToolOutput": (
        "the value of the first hook that sets it; `updatedMCPToolOutput` applies only to MCP tools"
    ),
    "decision of PermissionRequest": "the first deny, otherwise the first allow",
    "displayContent, sessionTitle, initialUserMessage, worktreePath": "the value of the first hook that sets it",
    "action and content": "the values of the first hook that sets `action`",
    "watchPaths": "the paths of all hooks",
    "reloadSkills, retry, suppressOriginalPrompt": "true if one hook sets it",
    "async": "the rest of the reply is ignored, except a denial by PreToolUse, which applies immediately",
    "a failure with onFailure block": "the same as a block; for PostToolUse, the output of the call is withheld",
    "a failure with onFailure continue": "the hook is ignored, and a warning reports it",
    "unknown keys": "a warning names them; a PreToolUse hook fails if one may be a decision, or if there is none",
}


class HookResult(Struct, frozen=True, kw_only=True):
    """The result of one hook."""

    label: str
    source: str
    on_failure: OnFailure
    run: HookRun
    hook: Hook | None = None


class HookVerdict(Struct, frozen=True, kw_only=True):
    """The merged result of all hooks."""

    permission: Permission | None = None
    permission_reason: str = ""
    decided_by: str = ""
    """The source of the hook whose decision won."""
    updated_input: Json | None = None
    updates: tuple[HookResult, ...] = ()
    """The results that have an input; the first one is `updated_input`."""
    contexts: tuple[str, ...] = ()
    blocked: str | None = None
    """The reason, if it is blocked."""
    stopped: str | None = None
    """The reason, if the turn must end."""
    messages: tuple[str, ...] = ()
    """Messages for the user."""
    updated_output: Any = UNSET
    updated_mcp_output: Any = UNSET
    withheld: str | None = None
    """The reason to withhold a call's output: a required hook that could have replaced it failed."""
    answer: Json | None = None
    """The answer to a permission request."""
    fields: Json = {}
    """The other fields of outputs that have an effect, by name."""


def merge_results(event: HookEventSpec, answers: Sequence[HookResult]) -> HookVerdict:
    """Merge all results."""
    finished = [answer for answer in answers if not answer.run.output.is_async]
    outputs = [answer.run.output for answer in finished]
    specifics = [output.hookSpecificOutput for output in outputs if output.hookSpecificOutput is not None]
    blocks = [reason for answer in finished if (reason := block_reason(event, answer)) is not None]
    permission, decider = strongest_permission(event, finished)
    updates = [answer for answer in finished if input_of(answer) is not None] if "updatedInput" in event.effects else []
    return HookVerdict(
        permission=permission,
        permission_reason=reason_of(decider) if decider is not None else "",
        decided_by=decider.source if decider is not None else "",
        updated_input=input_of(updates[0]) if updates else None,
        updates=tuple(updates),
        contexts=tuple(specific.additionalContext for specific in specifics if specific.additionalContext)
        if CONTEXT in event.effects
        else (),
        blocked="\n".join(blocks) if blocks else None,
        stopped=next((output.stopReason or "" for output in outputs if output.continues is False), None)
        if event.stops
        else None,
        messages=tuple(output.systemMessage for output in outputs if output.systemMessage),
        updated_output=first_value(event, specifics, "updatedToolOutput", UNSET),
        updated_mcp_output=first_value(event, specifics, "updatedMCPToolOutput", UNSET),
        withheld=withhold_reason(event, finished),
        answer=permission_answer(event, specifics, blocks),
        fields=merge_fields(event, specifics),
    )


SINGLE = ("displayContent", "sessionTitle", "initialUserMessage", "worktreePath")
SWITCHES = ("reloadSkills", "retry", "suppressOriginalPrompt")


def merge_fields(event: HookEventSpec, specifics: Sequence[SpecificOutput]) -> Json:
    """The fields that need no other field to be understood."""
    found = {name: first_value(event, specifics, name, None) for name in SINGLE}
    found |= {name: True for name in SWITCHES if name in event.effects and any(getattr(one, name) for one in specifics)}
    if "watchPaths" in event.effects:
        named = [specific.watchPaths for specific in specifics if specific.watchPaths is not None]
        found["watchPaths"] = list(dict.fromkeys(path for paths in named for path in paths)) if named else None
    decided = next((one for one in specifics if one.action is not None), None)
    if "action" in event.effects and decided is not None:
        found |= {"action": decided.action, "content": decided.content}
    return {name: value for name, value in found.items() if value is not None}


def block_reason(event: HookEventSpec, answer: HookResult) -> str | None:
    """The reason of a hook that blocks, if the event can be blocked."""
    run = answer.run
    if not event.block:
        return None
    if run.failure is not None:
        fails = answer.on_failure == "block" and event.failure_blocks
        return f"the hook ({answer.label}) failed: {run.failure}" if fails else None
    if run.blocks is not None:
        return run.blocks or "blocked without a reason"
    return (run.output.reason or "blocked without a reason") if run.output.decision == "block" else None


def withhold_reason(event: HookEventSpec, answers: Sequence[HookResult]) -> str | None:
    """The reason to withhold the output, because a failed hook might have replaced it."""
    if "updatedToolOutput" not in event.effects:
        return None
    failed = [answer for answer in answers if answer.run.failure is not None and answer.on_failure == "block"]
    return "\n".join(f"the hook ({answer.label}) failed: {answer.run.failure}" for answer in failed) or None


def input_of(answer: HookResult) -> Json | None:
    """The input that a hook sets."""
    specific = answer.run.output.hookSpecificOutput
    return None if specific is None else specific.updatedInput


def strongest_permission(
    event: HookEventSpec, answers: Sequence[HookResult]
) -> tuple[Permission | None, HookResult | None]:
    """The winning permission decision and its hook."""
    best: tuple[Permission | None, HookResult | None] = (None, None)
    for answer in answers:
        permission = permission_of(event, answer)
        if permission is not None and (best[0] is None or STRENGTH[permission] > STRENGTH[best[0]]):
            best = (permission, answer)
    return best


def permission_of(event: HookEventSpec, answer: HookResult) -> Permission | None:
    if not event.must_decide:
        return None
    if block_reason(event, answer) is not None:
        return "deny"
    if answer.run.failure is not None:
        return None
    # An unknown value denies. Of two values in one output the stronger wins.
    known = STRENGTH if event.can_defer else STRENGTH.keys() - {"defer"}
    words: list[Permission] = [word if word in known else "deny" for word in decision_words(answer.run.output)]
    return max(words, key=STRENGTH.__getitem__, default=None)


def decision_words(output: HookOutput) -> list[Any]:
    """The values of both decision fields."""
    specific = output.hookSpecificOutput
    values = (
        specific.permissionDecision if specific else None,
        DECISION_ALIASES.get(output.decision or "", output.decision),
    )
    return [value for value in values if value]


def reason_of(answer: HookResult) -> str:
    """The hook's reason for its decision."""
    run = answer.run
    if run.failure is not None:
        return f"the hook ({answer.label}) failed: {run.failure}"
    specific = run.output.hookSpecificOutput
    reason = (specific.permissionDecisionReason if specific else None) or run.output.reason or run.blocks
    if reason:
        return reason
    unclear = [word for word in decision_words(run.output) if word not in STRENGTH]
    return f"unknown decision {unclear[0]!r}" if unclear else ""


def first_value(event: HookEventSpec, specifics: Sequence[SpecificOutput], name: str, default: Any) -> Any:
    """The first value of a field that is set, if the event supports the field."""
    if name not in event.effects:
        return default
    return next((value for specific in specifics if (value := getattr(specific, name)) not in (None, UNSET)), default)


def permission_answer(event: HookEventSpec, specifics: Sequence[SpecificOutput], blocks: Sequence[str]) -> Json | None:
    if "decision" not in event.effects:
        return None
    if blocks:
        return {"behavior": "deny", "message": "\n".join(blocks)}
    decisions = [specific.decision for specific in specifics if specific.decision]
    denies = [decision for decision in decisions if decision.get("behavior") != "allow"]
    return next(iter(denies or decisions), None)
