"""What a hook answers, read.

Reasons and messages are for people and for one line each: of those the beginning counts, so that no line of ours
becomes too long for a client. What replaces something counts as a whole.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from parley.protocol.base import UNSET, Json, Struct, convert

MOST_REASON_CHARS = 10_000
MOST_KEYS = 20
"""So many unknown keys of one answer are named."""


class Specific(Struct, frozen=True, kw_only=True):
    """`hookSpecificOutput`: what an answer says about one kind of event."""

    permissionDecision: str | None = None
    permissionDecisionReason: str | None = None
    updatedInput: Json | None = None
    additionalContext: str | None = None
    updatedToolOutput: Any = UNSET
    updatedMCPToolOutput: Any = UNSET
    decision: Json | None = None


class Output(Struct, frozen=True, kw_only=True):
    """A hook's answer. An empty one is no opinion."""

    goes_on: bool | None = msgspec.field(default=None, name="continue")
    stopReason: str | None = None
    suppressOutput: bool | None = None
    decision: str | None = None
    reason: str | None = None
    systemMessage: str | None = None
    is_async: bool | None = msgspec.field(default=None, name="async")
    asyncTimeout: float | None = None
    """Milliseconds."""
    hookSpecificOutput: Specific | None = None


Said = TypeVar("Said", Output, Specific)
REASONS = ("stopReason", "reason", "systemMessage", "permissionDecision", "permissionDecisionReason", "decision")


GENERAL_KEYS = frozenset(
    {"continue", "stopReason", "suppressOutput", "decision", "reason", "systemMessage", "async", "asyncTimeout"}
    | {"hookSpecificOutput", "terminalSequence"}
)
_CONTEXT = frozenset({"additionalContext"})
SPECIFIC_KEYS: dict[str, frozenset[str]] = {
    "PreToolUse": _CONTEXT | {"permissionDecision", "permissionDecisionReason", "updatedInput"},
    "PermissionRequest": frozenset({"decision"}),
    "PostToolUse": _CONTEXT | {"updatedToolOutput", "updatedMCPToolOutput", "classifierContext"},
    "UserPromptSubmit": _CONTEXT | {"sessionTitle", "suppressOriginalPrompt"},
    "SessionStart": _CONTEXT | {"initialUserMessage", "sessionTitle", "watchPaths", "reloadSkills"},
    "MessageDisplay": frozenset({"displayContent"}),
    "UserPromptExpansion": _CONTEXT | {"suppressOriginalPrompt"},
    "PreModelSwitch": frozenset({"permissionDecision", "permissionDecisionReason"}),
    "PermissionDenied": frozenset({"retry"}),
    "Elicitation": frozenset({"action", "content"}),
    "ElicitationResult": frozenset({"action", "content"}),
    "CwdChanged": frozenset({"watchPaths"}),
    "FileChanged": frozenset({"watchPaths"}),
    "WorktreeCreate": frozenset({"worktreePath"}),
}
"""What the official SDKs declare for `hookSpecificOutput`, whether it has an effect here or not.

An event that is not listed has `additionalContext`."""
DECISION_WORDS = ("", "block", "approve")
DECISION_KEYS = frozenset(
    {"behavior", "updatedInput", "updatedPermissions", "message", "interrupt", "toolUseID", "decisionClassification"}
)
"""The same for the `decision` of a PermissionRequest."""
MUST_DECIDE = frozenset({"PreToolUse"})
"""Events whose hooks guard something: an answer that may be a misspelt decision is a failure."""
DECIDING = frozenset({"permissionDecision", "decision", "continue"})
"""The keys with which an answer may deny."""


class HookFailed(Exception):
    """A hook did not come to an answer, and why."""

    def __init__(self, text: str, unknown: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.unknown = unknown
        """The keys of its answer that are not known."""


def read_answer(event: str, answer: Any) -> tuple[Output, tuple[str, ...]]:
    """The answer of a hook to an event, and the keys in it that are not known.

    Raises HookFailed if it cannot be understood, or, for an event in MUST_DECIDE, if a decision may be hidden in it.
    """
    read = read_output(answer)
    unknown = unknown_keys(event, answer) if isinstance(answer, dict) else ()
    if event not in MUST_DECIDE:
        return read, unknown
    if read.is_async and denies(read):
        read = msgspec.structs.replace(read, is_async=None)  # what is denied does not run before the rest is known
    named = event_named(answer)
    if named not in (None, event) and not denies(read):
        raise HookFailed(f"its answer is for the event {named!r:.100}, not for {event}", unknown)
    if unknown and not has_decision(read):
        raise HookFailed(f"its answer has no decision, and keys that are not known: {', '.join(unknown)}", unknown)
    if not denies(read) and (likely := misplaced_decisions(event, answer)):
        raise HookFailed(f"its answer has a key that may be a denial: {', '.join(likely)}", unknown)
    return read, unknown


def event_named(answer: Any) -> Any:
    """The event that an answer says it is for; None if it does not say."""
    specific = answer.get("hookSpecificOutput") if isinstance(answer, dict) else None
    return specific.get("hookEventName") if isinstance(specific, dict) else None


def denies(read: Output) -> bool:
    """Whether it denies, also with a word that is not known."""
    specific = read.hookSpecificOutput
    words = (read.decision, specific.permissionDecision if specific is not None else None)
    return read.goes_on is False or any(word and word not in ("approve", "allow", "ask") for word in words)


def misplaced_decisions(event: str, answer: Any) -> list[str]:
    """The keys of an answer that are, or may be meant as, a decision in a place where none is read."""
    if not isinstance(answer, dict):
        return []
    own, specific = SPECIFIC_KEYS.get(event, _CONTEXT), answer.get("hookSpecificOutput")
    wrong = [key for key in answer if key not in GENERAL_KEYS]
    wrong += (
        [key for key in specific if key not in own and key != "hookEventName"] if isinstance(specific, dict) else []
    )
    return [f"{key:.100}" for key in wrong if key in DECIDING or similar(key, GENERAL_KEYS | own) in DECIDING]


def has_decision(read: Output) -> bool:
    specific = read.hookSpecificOutput
    decides = bool(read.decision) or (specific is not None and bool(specific.permissionDecision))
    return decides or read.goes_on is False or read.is_async is True


def unknown_keys(event: str, answer: Json) -> tuple[str, ...]:
    """The keys that no answer to this event has, each with its place and a hint."""
    own = SPECIFIC_KEYS.get(event, _CONTEXT)
    found = [described(key, GENERAL_KEYS, own) for key in answer if key not in GENERAL_KEYS]
    word = answer.get("decision")
    if isinstance(word, str) and word not in DECISION_WORDS and event not in MUST_DECIDE:
        found.append(f"decision: {word!r:.100} (it may be block)")
    if (named := event_named(answer)) not in (None, event):
        found.append(f"hookSpecificOutput.hookEventName: {named!r:.100} (it is {event})")
    specific = answer.get("hookSpecificOutput")
    if isinstance(specific, dict):
        wrong = [key for key in specific if key not in own and key != "hookEventName"]
        found += [f"hookSpecificOutput.{described(key, own, GENERAL_KEYS)}" for key in wrong]
        decision = specific.get("decision")
        if isinstance(decision, dict) and "decision" in own:
            wrong = [key for key in decision if key not in DECISION_KEYS]
            found += [f"hookSpecificOutput.decision.{described(key, DECISION_KEYS)}" for key in wrong]
    return tuple(found[:MOST_KEYS])


def described(key: str, here: frozenset[str], elsewhere: frozenset[str] = frozenset()) -> str:
    """A key that is not known in its place, and what may have been meant."""
    shown = f"{key:.100}"
    if key in elsewhere:
        return f"{shown} (not its place)"
    likely = similar(key, here | elsewhere)
    return f"{shown} (did you mean {likely}?)" if likely else shown


def similar(key: str, known: frozenset[str]) -> str | None:
    """The known key that this one may be a misspelling of."""
    from difflib import get_close_matches  # only a wrong answer needs it

    plain = {name.lower(): name for name in known}
    close = get_close_matches(key[:100].lower().replace("_", "").replace("-", ""), plain, n=1, cutoff=0.75)
    return plain[close[0]] if close else None


def read_output(answer: Any) -> Output:
    """An answer as it came. Raises HookFailed if it cannot be understood."""
    if answer is None or answer is UNSET:
        return Output()
    try:
        read: Output = convert(answer, Output)
    except msgspec.ValidationError as flaw:
        raise HookFailed(f"its answer cannot be understood: {flaw}") from None
    specific = read.hookSpecificOutput
    if specific is not None:
        read = msgspec.structs.replace(read, hookSpecificOutput=bounded(specific))
    return bounded(read)


def bounded(said: Said) -> Said:
    """The same with the beginnings of its reasons."""
    texts = {name: getattr(said, name, None) for name in REASONS}
    long = {name: shortened(text) for name, text in texts.items() if isinstance(text, str)}
    return msgspec.structs.replace(said, **long)


def shortened(text: str) -> str:
    if len(text) <= MOST_REASON_CHARS:
        return text
    return f"{text[:MOST_REASON_CHARS]}… ({len(text) - MOST_REASON_CHARS} more characters)"
