"""What a hook answers, read.

Reasons and messages are for people and for one line each: of those the beginning counts, so that no line of ours
becomes too long for a client. What replaces something counts as a whole.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from parley.protocol.base import UNSET, Json, Struct, convert

MOST_REASON_CHARS = 10_000


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


class HookFailed(Exception):
    """A hook did not come to an answer, and why."""


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
