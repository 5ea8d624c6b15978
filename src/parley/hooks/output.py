"""Hook outputs: what a hook may answer, and how it is read.

Reasons and messages are truncated, so that no message becomes too long for a client. Replacement values are complete.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeVar

import msgspec

from parley.hooks.event_spec import HookEventSpec
from parley.hooks.events import MUST_DECIDE, find_output_fields
from parley.protocol.base import UNSET, Json, Struct, convert, find_duplicate_key

MAX_REASON_CHARS = 10_000
MAX_KEYS = 20
"""How many unknown keys of one output are named."""
MAX_OUTPUT_BYTES = 4 * 1024 * 1024
"""Larger than the output limit of tools, because a hook may replace a tool's output."""
MAX_SHOWN_CHARS = 100
"""Of a reply that is not an object, in the message about it."""
MISPLACED_OUTPUT = re.compile(
    r'hookSpecificOutput|permissionDecision|"decision"\s*:|\bdecision\W{1,3}(?:deny|block)'
    r"|\A\W*(?:deny|denied|block|blocked)\W*\Z",
    re.IGNORECASE,
)
"""A decision that is not in a JSON object, for example after a log line, in a list, or as a word of its own."""


class SpecificOutput(Struct, frozen=True, kw_only=True):
    """`hookSpecificOutput`: the fields for one kind of event."""

    permissionDecision: str | None = None
    permissionDecisionReason: str | None = None
    updatedInput: Json | None = None
    additionalContext: str | None = None
    updatedToolOutput: Any = UNSET
    updatedMCPToolOutput: Any = UNSET
    decision: Json | None = None
    classifierContext: str | None = None
    initialUserMessage: str | None = None
    sessionTitle: str | None = None
    watchPaths: list[str] | None = None
    reloadSkills: bool | None = None
    suppressOriginalPrompt: bool | None = None
    displayContent: str | None = None
    retry: bool | None = None
    action: Literal["accept", "decline", "cancel"] | None = None
    content: Json | None = None
    worktreePath: str | None = None


class HookOutput(Struct, frozen=True, kw_only=True):
    """The output of a hook. An empty one has no effect."""

    continues: bool | None = msgspec.field(default=None, name="continue")
    stopReason: str | None = None
    suppressOutput: bool | None = None
    decision: str | None = None
    reason: str | None = None
    systemMessage: str | None = None
    is_async: bool | None = msgspec.field(default=None, name="async")
    asyncTimeout: float | None = None
    """Milliseconds."""
    terminalSequence: str | None = None
    hookSpecificOutput: SpecificOutput | None = None


Output = TypeVar("Output", HookOutput, SpecificOutput)
REASONS = ("stopReason", "reason", "systemMessage", "permissionDecision", "permissionDecisionReason", "decision")


GENERAL_KEYS = frozenset(
    {"continue", "stopReason", "suppressOutput", "decision", "reason", "systemMessage", "async", "asyncTimeout"}
    | {"hookSpecificOutput", "terminalSequence"}
)
DECISION_WORDS = ("", "block", "approve")
DECISION_KEYS = frozenset(
    {"behavior", "updatedInput", "updatedPermissions", "message", "interrupt", "toolUseID", "decisionClassification"}
)
"""The keys of a PermissionRequest's `decision`."""
DECIDING = frozenset({"permissionDecision", "decision", "continue"})
"""The keys that can deny."""


class HookFailed(Exception):
    """A hook failed. The text says why."""

    def __init__(self, text: str, unknown: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.unknown = unknown
        """Unknown keys of its output."""


def parse_answer(event: str, answer: Any) -> tuple[HookOutput, tuple[str, ...]]:
    """Parse the output of a hook, and find its unknown keys.

    Raises HookFailed if it is invalid, or, for an event in MUST_DECIDE, if it may contain a misplaced decision.
    """
    output = parse_output(answer)
    unknown = unknown_keys(event, answer) if isinstance(answer, dict) else ()
    if event not in MUST_DECIDE:
        return output, unknown
    if output.is_async and is_denial(output):
        output = msgspec.structs.replace(output, is_async=None)  # a denial takes effect immediately
    named = named_event(answer)
    if named not in (None, event) and not is_denial(output):
        raise HookFailed(f"the output is for the event {named!r:.100}, not for {event}", unknown)
    if unknown and not has_decision(output):
        raise HookFailed(f"the output has no decision, but it has unknown keys: {', '.join(unknown)}", unknown)
    if not is_denial(output) and (likely := misplaced_decisions(event, answer)):
        raise HookFailed(f"the output has a key that may be meant as a denial: {', '.join(likely)}", unknown)
    return output, unknown


def named_event(answer: Any) -> Any:
    """The event that an output names; None if it names none."""
    specific = answer.get("hookSpecificOutput") if isinstance(answer, dict) else None
    return specific.get("hookEventName") if isinstance(specific, dict) else None


def is_denial(output: HookOutput) -> bool:
    """Whether it denies. An unknown decision denies."""
    specific = output.hookSpecificOutput
    words = (output.decision, specific.permissionDecision if specific is not None else None)
    return output.continues is False or any(word and word not in ("approve", "allow", "ask") for word in words)


def misplaced_decisions(event: str, answer: Any) -> list[str]:
    """Keys that are, or may be meant as, a decision in the wrong place."""
    if not isinstance(answer, dict):
        return []
    own, specific = find_output_fields(event), answer.get("hookSpecificOutput")
    wrong = [key for key in answer if key not in GENERAL_KEYS]
    wrong += (
        [key for key in specific if key not in own and key != "hookEventName"] if isinstance(specific, dict) else []
    )
    return [f"{key:.100}" for key in wrong if key in DECIDING or find_similar(key, GENERAL_KEYS | own) in DECIDING]


def has_decision(output: HookOutput) -> bool:
    specific = output.hookSpecificOutput
    decides = bool(output.decision) or (specific is not None and bool(specific.permissionDecision))
    return decides or output.continues is False or output.is_async is True


def unknown_keys(event: str, answer: Json) -> tuple[str, ...]:
    """The keys that are not valid for this event, with their location and a hint."""
    own = find_output_fields(event)
    found = [describe_key(key, GENERAL_KEYS, own, "hookSpecificOutput") for key in answer if key not in GENERAL_KEYS]
    word = answer.get("decision")
    if isinstance(word, str) and word not in DECISION_WORDS and event not in MUST_DECIDE:
        found.append(f"decision: {word!r:.100} (expected block)")
    if (named := named_event(answer)) not in (None, event):
        found.append(f"hookSpecificOutput.hookEventName: {named!r:.100} (expected {event})")
    specific = answer.get("hookSpecificOutput")
    if isinstance(specific, dict):
        wrong = [key for key in specific if key not in own and key != "hookEventName"]
        found += [f"hookSpecificOutput.{describe_key(key, own, GENERAL_KEYS, 'the top level')}" for key in wrong]
        decision = specific.get("decision")
        if isinstance(decision, dict) and "decision" in own:
            wrong = [key for key in decision if key not in DECISION_KEYS]
            found += [f"hookSpecificOutput.decision.{describe_key(key, DECISION_KEYS)}" for key in wrong]
    return tuple(found[:MAX_KEYS])


INERT = {
    "terminalSequence": "there is no terminal",
    "classifierContext": "the mode auto has no classifier",
}
"""Why declared keys have no effect."""


def inert_keys(event: HookEventSpec, output: HookOutput) -> tuple[str, ...]:
    """The keys of an output that are known and have no effect here."""
    specific = output.hookSpecificOutput
    found = ["terminalSequence"] if output.terminalSequence is not None else []
    found += [
        name
        for name in (specific.__struct_fields__ if specific is not None else ())
        if name not in event.effects and getattr(specific, name) not in (None, UNSET)
    ]
    return tuple(f"{name} ({INERT.get(name, f'not used by {event.name}')})" for name in found)


def describe_key(key: str, here: frozenset[str], elsewhere: frozenset[str] = frozenset(), place: str = "") -> str:
    """An unknown key and a hint. `place` is where the keys in `elsewhere` belong."""
    shown = f"{key:.100}"
    if key in elsewhere:
        return f"{shown} (in the wrong place: it belongs in {place})"
    likely = find_similar(key, here | elsewhere)
    return f"{shown} (did you mean {likely}?)" if likely else shown


def find_similar(key: str, known: frozenset[str]) -> str | None:
    """A known key with a similar name."""
    from difflib import get_close_matches  # only needed for invalid output

    plain = {name.lower(): name for name in known}
    close = get_close_matches(key[:100].lower().replace("_", "").replace("-", ""), plain, n=1, cutoff=0.75)
    return plain[close[0]] if close else None


def parse_output(answer: Any) -> HookOutput:
    """Parse an output. Raises HookFailed if it is invalid."""
    if answer is None or answer is UNSET:
        return HookOutput()
    try:
        output: HookOutput = convert(answer, HookOutput)
    except msgspec.ValidationError as exc:
        raise HookFailed(f"the output is invalid: {exc}") from None
    specific = output.hookSpecificOutput
    if specific is not None:
        output = msgspec.structs.replace(output, hookSpecificOutput=shorten_reasons(specific))
    return shorten_reasons(output)


def shorten_reasons(output: Output) -> Output:
    """The same with truncated reasons."""
    texts = {name: getattr(output, name, None) for name in REASONS}
    long = {name: shorten(text) for name, text in texts.items() if isinstance(text, str)}
    return msgspec.structs.replace(output, **long)


def shorten(text: str) -> str:
    if len(text) <= MAX_REASON_CHARS:
        return text
    return f"{text[:MAX_REASON_CHARS]}… ({len(text) - MAX_REASON_CHARS} more characters)"


# Replies of commands, URLs and MCP tools.


def decode_output(data: bytes | bytearray) -> str:
    return data.decode(errors="replace").replace("\0", "\ufffd")


def parse_reply(
    event: HookEventSpec, data: bytes, *, guards: bool, is_cut: bool = False, may_be_text: bool = True
) -> tuple[HookOutput, tuple[str, ...]]:
    """Parse the reply of a handler, and its unknown keys. Raises HookFailed if it is invalid.

    Output that starts like JSON and is invalid is an error, because it may have been meant as a denial. For a hook that
    `guards`, so is everything that is neither an object nor, if it `may_be_text`, readable text without a decision.
    """
    if guards and is_cut:
        raise HookFailed(f"the output is longer than {MAX_OUTPUT_BYTES} bytes")
    if guards and not is_utf8(data):
        raise HookFailed("the output is not text in UTF-8")
    text = decode_output(data).strip().removeprefix("\ufeff").strip()
    if text.startswith("{"):
        if is_cut:
            raise HookFailed(f"the output is longer than {MAX_OUTPUT_BYTES} bytes")
        try:
            answer = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as exc:
            if not event.accepts_text:
                raise HookFailed(f"the output is not valid JSON: {exc}") from None
        else:
            if (problem := find_duplicate_key(text)) is not None:
                raise HookFailed(f"the output is invalid: {problem}")
            return parse_answer(event.name, answer)
    if text and event.accepts_text:
        fields: dict[str, Any] = {event.text_field: text}
        return HookOutput(hookSpecificOutput=SpecificOutput(**fields)), ()
    if text and guards:
        if (found := MISPLACED_OUTPUT.search(text)) is not None:
            raise HookFailed(f"the output contains a decision ({found[0].strip()}), but it is not a JSON object")
        if not may_be_text or is_json(text):
            raise HookFailed(f"the output is not a JSON object: {text[:MAX_SHOWN_CHARS]}")
    return HookOutput(), ()


def is_utf8(data: bytes) -> bool:
    """Whether it is text in UTF-8. Text in UTF-16 has null bytes."""
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
    except RecursionError:
        return True
    return True
