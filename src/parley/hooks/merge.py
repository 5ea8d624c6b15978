"""What the answers of several hooks to one event come to. Pure; `RULES` is the table in docs/hooks.md.

Answers count in the order in which the hooks were registered, never in the order in which
they arrived: host callbacks first, then the commands of the settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from parley.hooks.base import CONTEXT, HookEventSpec, HookRun, OnFailure
from parley.hooks.output import HookOutput, SpecificOutput
from parley.protocol.base import UNSET, Json, Struct

Permission = Literal["allow", "ask", "deny"]
STRENGTH: dict[str, int] = {"allow": 1, "ask": 2, "deny": 3}
OLD_WORDS = {"block": "deny", "approve": "allow"}
"""`decision` said it before there was `permissionDecision`, with words of its own."""

RULES = {
    "permissionDecision": "the strongest of all, `decision` included: deny, ask, allow; an unknown value is a deny",
    "permissionDecisionReason": "from the first hook with the winning decision",
    "updatedInput": "the first",
    "additionalContext": "all, as separate paragraphs",
    "decision block and reason": "one is enough; the reasons of all blocking hooks, joined by newlines",
    "continue false and stopReason": "one is enough; the first reason",
    "systemMessage": "all, as separate lines",
    "suppressOutput": "applies to the hook that sets it",
    "updatedToolOutput, updatedMCPToolOutput": "the first; the second applies to MCP tools only",
    "decision of PermissionRequest": "the first deny, else the first allow",
    "async": "the reply has no effect yet, except a PreToolUse deny, which applies at once",
    "a failure with onFailure block": "a block; after a successful call, its output is withheld",
    "a failure with onFailure continue": "ignored, but reported",
    "keys that are not known": "reported; a PreToolUse reply fails if the key may be a denial or no decision is given",
}


class HookResult(Struct, frozen=True, kw_only=True):
    """What one hook said."""

    label: str
    source: str
    on_failure: OnFailure
    run: HookRun


class HookVerdict(Struct, frozen=True, kw_only=True):
    """What all of them come to."""

    permission: Permission | None = None
    permission_reason: str = ""
    decided_by: str = ""
    """The source of the hook whose decision won."""
    updated_input: Json | None = None
    contexts: tuple[str, ...] = ()
    blocked: str | None = None
    """Why, if it is blocked."""
    stopped: str | None = None
    """Why the turn is to end, if it is."""
    messages: tuple[str, ...] = ()
    """For the person."""
    updated_output: Any = UNSET
    updated_mcp_output: Any = UNSET
    withheld: str | None = None
    """Why the output of a call is not to be told: who could have replaced it, and must not fail, has failed."""
    answer: Json | None = None
    """The answer to a permission question."""


def merge_results(event: HookEventSpec, answers: Sequence[HookResult]) -> HookVerdict:
    """One verdict from all answers."""
    heard = [answer for answer in answers if not answer.run.output.is_async]
    outputs = [answer.run.output for answer in heard]
    specifics = [output.hookSpecificOutput for output in outputs if output.hookSpecificOutput is not None]
    blocks = [reason for answer in heard if (reason := block_reason(event, answer)) is not None]
    permission, decider = strongest_permission(event, heard)
    return HookVerdict(
        permission=permission,
        permission_reason=reason_of(decider) if decider is not None else "",
        decided_by=decider.source if decider is not None else "",
        updated_input=first_value(event, specifics, "updatedInput", None),
        contexts=tuple(said.additionalContext for said in specifics if said.additionalContext)
        if CONTEXT in event.effects
        else (),
        blocked="\n".join(blocks) if blocks else None,
        stopped=next((output.stopReason or "" for output in outputs if output.continues is False), None)
        if event.stops
        else None,
        messages=tuple(output.systemMessage for output in outputs if output.systemMessage),
        updated_output=first_value(event, specifics, "updatedToolOutput", UNSET),
        updated_mcp_output=first_value(event, specifics, "updatedMCPToolOutput", UNSET),
        withheld=withhold_reason(event, heard),
        answer=permission_answer(event, specifics, blocks),
    )


def block_reason(event: HookEventSpec, answer: HookResult) -> str | None:
    """The reason of one that blocks, where the event can be blocked."""
    ran = answer.run
    if not event.block:
        return None
    if ran.failure is not None:
        fails = answer.on_failure == "block" and event.failure_blocks
        return f"the hook ({answer.label}) failed: {ran.failure}" if fails else None
    if ran.blocks is not None:
        return ran.blocks or "blocked without a reason"
    return (ran.output.reason or "blocked without a reason") if ran.output.decision == "block" else None


def withhold_reason(event: HookEventSpec, answers: Sequence[HookResult]) -> str | None:
    """Nobody knows what a hook that failed would have put in the place of an output."""
    if "updatedToolOutput" not in event.effects:
        return None
    failed = [answer for answer in answers if answer.run.failure is not None and answer.on_failure == "block"]
    return "\n".join(f"the hook ({answer.label}) failed: {answer.run.failure}" for answer in failed) or None


def strongest_permission(
    event: HookEventSpec, answers: Sequence[HookResult]
) -> tuple[Permission | None, HookResult | None]:
    """The permission decision that wins, and whose it is."""
    best: tuple[Permission | None, HookResult | None] = (None, None)
    for answer in answers:
        said = permission_of(event, answer)
        if said is not None and (best[0] is None or STRENGTH[said] > STRENGTH[best[0]]):
            best = (said, answer)
    return best


def permission_of(event: HookEventSpec, answer: HookResult) -> Permission | None:
    if "permissionDecision" not in event.effects:
        return None
    if block_reason(event, answer) is not None:
        return "deny"
    if answer.run.failure is not None:
        return None
    # A word that is not understood denies, and of two words in one answer the stronger counts.
    words: list[Permission] = [word if word in STRENGTH else "deny" for word in decision_words(answer.run.output)]
    return max(words, key=STRENGTH.__getitem__, default=None)


def decision_words(output: HookOutput) -> list[Any]:
    """What an answer says in the two places for a decision."""
    specific = output.hookSpecificOutput
    said = (specific.permissionDecision if specific else None, OLD_WORDS.get(output.decision or "", output.decision))
    return [word for word in said if word]


def reason_of(answer: HookResult) -> str:
    """Why a hook decided as it did, in its own words."""
    ran = answer.run
    if ran.failure is not None:
        return f"the hook ({answer.label}) failed: {ran.failure}"
    specific = ran.output.hookSpecificOutput
    told = (specific.permissionDecisionReason if specific else None) or ran.output.reason or ran.blocks
    if told:
        return told
    unclear = [word for word in decision_words(ran.output) if word not in STRENGTH]
    return f"the decision {unclear[0]!r} is not supported here" if unclear else ""


def first_value(event: HookEventSpec, specifics: Sequence[SpecificOutput], name: str, absent: Any) -> Any:
    """The first that says something under this name, where the event heeds it."""
    if name not in event.effects:
        return absent
    return next((value for said in specifics if (value := getattr(said, name)) not in (None, UNSET)), absent)


def permission_answer(event: HookEventSpec, specifics: Sequence[SpecificOutput], blocks: Sequence[str]) -> Json | None:
    if "decision" not in event.effects:
        return None
    if blocks:
        return {"behavior": "deny", "message": "\n".join(blocks)}
    said = [specific.decision for specific in specifics if specific.decision]
    denies = [decision for decision in said if decision.get("behavior") != "allow"]
    return next(iter(denies or said), None)
