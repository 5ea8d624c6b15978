"""Parsing hook outputs."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest

from parley.hooks.event_types import AsyncHookJSONOutput, HookSpecificOutput, SyncHookJSONOutput
from parley.hooks.output import MAX_REASON_CHARS, HookFailed, HookOutput, parse_answer, parse_output, unknown_keys
from parley.protocol.base import UNSET


@pytest.mark.parametrize("answer", [None, UNSET, {}, {"from the future": 1}, {"hookSpecificOutput": None}])
def test_an_empty_answer_is_not_an_opinion(answer: Any) -> None:
    assert parse_output(answer) == HookOutput()


@pytest.mark.parametrize(
    "answer",
    ["yes", [], 1, {"continue": "no"}, {"hookSpecificOutput": []}, {"hookSpecificOutput": {"updatedInput": 1}}],
)
def test_an_answer_that_cannot_be_understood_is_a_failure(answer: Any) -> None:
    with pytest.raises(HookFailed):
        parse_output(answer)


def test_of_reasons_and_messages_the_beginning_counts_and_of_what_replaces_something_the_whole() -> None:
    long = "x" * (MAX_REASON_CHARS + 5)
    specific = {"permissionDecisionReason": long, "additionalContext": long, "updatedToolOutput": long}
    read = parse_output({"stopReason": long, "reason": long, "systemMessage": long, "hookSpecificOutput": specific})
    short = f"{long[:-5]}… (5 more characters)"
    assert [read.stopReason, read.reason, read.systemMessage] == [short] * 3
    said = read.hookSpecificOutput
    assert said is not None
    assert (said.permissionDecisionReason, said.additionalContext, said.updatedToolOutput) == (short, long, long)


BELONGS = "it belongs in hookSpecificOutput"
DENY = {"permissionDecision": "deny"}


@pytest.mark.parametrize(
    "answer",
    [
        {"permisionDecision": "deny"},
        {"permissionDecision": "deny"},
        {"permission_decision": "deny"},
        {"continue": True, "permissionDecision": "deny"},
        {"hookSpecificOutput": {"permisionDecision": "deny"}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "decision": {"behavior": "deny"}}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "decision": "block", "additionalContext": "x"}},
        {"hookSpecificOutput": {"hookEventName": "PostToolUse", "permissionDecision": "allow"}},
        {"hookSpecificOutput": {"hookEventName": 1, "permissionDecision": "allow"}},
        {"hookSpecificOutput": {"hookSpecificOutput": DENY}},
        {"hookSpecificOutput": {"updatedInput": {"a": 1}, "behavior": "deny"}},
        {"hookSpecificOutput": {"permissionDecision": ["deny"]}},
        {"hookSpecificOutput": [DENY]},
        {"hookSpecificOutput": {"permissionDecision": "", "permissionDecison": "deny"}},
        {"hookspecificoutput": DENY},
        {"output": {"hookSpecificOutput": DENY}},
        {"behavior": "deny", "message": "no"},
        {"suppressOutput": "yes"},
        [DENY],
        "deny",
        False,
        0,
    ],
)
def test_an_answer_to_a_guarded_event_that_may_hide_a_decision_is_a_failure(answer: Any) -> None:
    with pytest.raises(HookFailed):
        parse_answer("PreToolUse", answer)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"continue": True, "suppressOutput": True, "systemMessage": "x", "reason": "x", "stopReason": "x"},
        {"async": True, "asyncTimeout": 5},
        {"terminalSequence": "x", "decision": "approve"},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "additionalContext": "x", "updatedInput": {}}},
        {"hookSpecificOutput": {"permissionDecision": None, "permissionDecisionReason": None}},
    ],
)
def test_what_is_declared_is_known(answer: Any) -> None:
    assert parse_answer("PreToolUse", answer)[1] == ()


@pytest.mark.parametrize(
    ("event", "answer", "unknown"),
    [
        ("PreToolUse", {"decision": "block", "resaon": "x"}, ("resaon (did you mean reason?)",)),
        ("PreToolUse", {"decision": "block", "future": "x"}, ("future",)),
        (
            "PreToolUse",
            {"hookSpecificOutput": {"hookEventName": "Stop", **DENY}},
            ("hookSpecificOutput.hookEventName: 'Stop' (expected PreToolUse)",),
        ),
        ("Stop", {"additionalContext": "x"}, (f"additionalContext (in the wrong place: {BELONGS})",)),
        ("Stop", {"decision": "deny"}, ("decision: 'deny' (expected block)",)),
        ("PostToolUse", {"hookSpecificOutput": DENY}, ("hookSpecificOutput.permissionDecision",)),
        (
            "PermissionRequest",
            {"hookSpecificOutput": {"decision": {"behavior": "allow", "updated_input": {}}}},
            ("hookSpecificOutput.decision.updated_input (did you mean updatedInput?)",),
        ),
        ("SessionStart", {"hookSpecificOutput": {"initialUserMessage": "x", "watchPaths": []}}, ()),
        ("SessionEnd", {"hookSpecificOutput": {"hookEventName": "SessionEnd"}}, ()),
    ],
)
def test_keys_that_are_not_known_are_named(event: str, answer: Any, unknown: tuple[str, ...]) -> None:
    assert parse_answer(event, answer)[1] == unknown


@pytest.mark.parametrize("said", [{"decision": "block"}, {"hookSpecificOutput": DENY}])
def test_a_denial_is_not_put_off(said: Any) -> None:
    assert parse_answer("PreToolUse", {"async": True, **said})[0].is_async is None
    assert parse_answer("PreToolUse", {"async": True, "decision": "approve"})[0].is_async is True


def test_all_that_the_sdk_declares_is_known() -> None:
    for shape in get_args(HookSpecificOutput):
        (event,) = get_args(get_type_hints(shape)["hookEventName"])
        declared = dict.fromkeys(shape.__annotations__)
        assert unknown_keys(event, {"hookSpecificOutput": {**declared, "hookEventName": event}}) == ()
    general = set(SyncHookJSONOutput.__annotations__) | set(AsyncHookJSONOutput.__annotations__)
    assert unknown_keys("Stop", dict.fromkeys(name.rstrip("_") for name in general)) == ()
