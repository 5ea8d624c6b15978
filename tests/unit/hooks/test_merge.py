"""One test per row of the table in docs/hooks.md."""

from __future__ import annotations

from typing import Any

import pytest

from parley.hooks.base import HookRun
from parley.hooks.event_spec import OnFailure
from parley.hooks.events import EVENTS
from parley.hooks.merge import RULES, HookResult, HookVerdict, merge_results
from parley.hooks.output import parse_output


def said(output: Any = None, *, on_failure: OnFailure = "continue", **ran: Any) -> HookResult:
    return HookResult(
        label="h", source="callback", on_failure=on_failure, run=HookRun(output=parse_output(output), **ran)
    )


def specific(**fields: Any) -> Any:
    return {"hookSpecificOutput": fields}


def decision(word: str, reason: str | None = None) -> HookResult:
    return said(specific(permissionDecision=word, permissionDecisionReason=reason))


def decided(word: Any, reason: str = "", **fields: Any) -> HookVerdict:
    return HookVerdict(permission=word, permission_reason=reason, decided_by="callback", **fields)


ALLOW, DENY = {"behavior": "allow"}, {"behavior": "deny", "message": "no"}
RETRY = HookVerdict(fields={"retry": True})
ROWS: dict[str, list[tuple[str, list[HookResult], HookVerdict]]] = {
    "permissionDecision": [
        ("PreToolUse", [decision("allow"), decision("deny"), decision("ask")], decided("deny")),
        ("PreToolUse", [decision("allow"), decision("ask")], decided("ask")),
        ("PreToolUse", [said(), decision("allow")], decided("allow")),
        ("PreToolUse", [decision("allow"), decision("defer"), decision("ask")], decided("defer")),
        ("PreToolUse", [decision("defer"), decision("deny")], decided("deny")),
        ("PreModelSwitch", [decision("defer")], decided("deny")),
        ("PreToolUse", [said({"decision": "approve"})], decided("allow")),
        ("PreToolUse", [said({"decision": "deny"})], decided("deny")),
        ("PreToolUse", [said({"decision": "no"})], decided("deny", "unknown decision 'no'")),
        ("PostToolUse", [decision("deny")], HookVerdict()),
    ],
    "permissionDecisionReason": [
        (
            "PreToolUse",
            [decision("allow", "fine"), decision("ask", "one"), decision("ask", "two")],
            decided("ask", "one"),
        )
    ],
    "updatedInput": [
        (
            "PreToolUse",
            [said(), said(specific(updatedInput={"a": 1})), said(specific(updatedInput={"a": 2}))],
            HookVerdict(
                updated_input={"a": 1},
                updates=(said(specific(updatedInput={"a": 1})), said(specific(updatedInput={"a": 2}))),
            ),
        ),
        ("PostToolUse", [said(specific(updatedInput={"a": 1}))], HookVerdict()),
    ],
    "additionalContext": [
        (
            "UserPromptSubmit",
            [said(specific(additionalContext="a")), said(specific(additionalContext="b"))],
            HookVerdict(contexts=("a", "b")),
        ),
        ("SessionEnd", [said(specific(additionalContext="a"))], HookVerdict()),
    ],
    "decision block and reason": [
        (
            "Stop",
            [said({"decision": "block", "reason": "a"}), said(), said(blocks="b", exit_code=2)],
            HookVerdict(blocked="a\nb"),
        ),
        ("PostToolUse", [said({"decision": "block"})], HookVerdict(blocked="blocked without a reason")),
        ("PreToolUse", [said({"decision": "block", "reason": "a"})], decided("deny", "a", blocked="a")),
        ("SessionEnd", [said({"decision": "block", "reason": "a"})], HookVerdict()),
    ],
    "continue false and stopReason": [
        (
            "PostToolUse",
            [said({"continue": True}), said({"continue": False, "stopReason": "a"}), said({"continue": False})],
            HookVerdict(stopped="a"),
        ),
        ("PostToolUse", [said({"continue": False})], HookVerdict(stopped="")),
        ("MessageDisplay", [said({"continue": False, "stopReason": "a"})], HookVerdict()),
    ],
    "systemMessage": [
        ("Stop", [said({"systemMessage": "a"}), said({"systemMessage": "b"})], HookVerdict(messages=("a", "b")))
    ],
    "suppressOutput": [("Stop", [said({"suppressOutput": True}, stdout="secret")], HookVerdict())],
    "updatedToolOutput, updatedMCPToolOutput": [
        (
            "PostToolUse",
            [said(specific(updatedToolOutput="a", updatedMCPToolOutput=[])), said(specific(updatedToolOutput="b"))],
            HookVerdict(updated_output="a", updated_mcp_output=[]),
        ),
        ("PostToolUse", [said(specific(updatedToolOutput=None))], HookVerdict()),
        ("PreToolUse", [said(specific(updatedToolOutput="a"))], HookVerdict()),
    ],
    "decision of PermissionRequest": [
        (
            "PermissionRequest",
            [said(specific(decision=ALLOW)), said(specific(decision=DENY))],
            HookVerdict(answer=DENY),
        ),
        ("PermissionRequest", [said(), said(specific(decision=ALLOW))], HookVerdict(answer=ALLOW)),
        (
            "PermissionRequest",
            [said(specific(decision=ALLOW)), said(blocks="no")],
            HookVerdict(blocked="no", answer={"behavior": "deny", "message": "no"}),
        ),
        ("PreToolUse", [said(specific(decision=DENY))], HookVerdict()),
    ],
    "displayContent, sessionTitle, initialUserMessage, worktreePath": [
        (
            "SessionStart",
            [said(specific(sessionTitle="a")), said(specific(sessionTitle="b", initialUserMessage="hi"))],
            HookVerdict(fields={"sessionTitle": "a", "initialUserMessage": "hi"}),
        ),
        ("MessageDisplay", [said(specific(displayContent=""))], HookVerdict(fields={"displayContent": ""})),
        ("WorktreeCreate", [said(specific(worktreePath="/w"))], HookVerdict(fields={"worktreePath": "/w"})),
        ("Stop", [said(specific(sessionTitle="a"))], HookVerdict()),
    ],
    "action and content": [
        (
            "Elicitation",
            [said(specific(content={"a": 0})), said(specific(action="accept", content={"a": 1}))],
            HookVerdict(fields={"action": "accept", "content": {"a": 1}}),
        ),
    ],
    "watchPaths": [
        (
            "CwdChanged",
            [said(specific(watchPaths=["/a", "/b"])), said(), said(specific(watchPaths=["/b", "/c"]))],
            HookVerdict(fields={"watchPaths": ["/a", "/b", "/c"]}),
        ),
        ("FileChanged", [said(specific(watchPaths=[]))], HookVerdict(fields={"watchPaths": []})),
    ],
    "reloadSkills, retry, suppressOriginalPrompt": [
        (
            "PermissionDenied",
            [said(specific(retry=False)), said(specific(retry=True))],
            HookVerdict(fields={"retry": True}),
        ),
    ],
    "async": [
        ("PreToolUse", [said({"async": True, **specific(permissionDecision="allow")})], HookVerdict()),
        ("Stop", [said({"async": True, "decision": "block"})], HookVerdict()),
    ],
    "a failure with onFailure block": [
        (
            "PreToolUse",
            [decision("allow"), said(failure="late", on_failure="block")],
            decided("deny", "the hook (h) failed: late", blocked="the hook (h) failed: late"),
        ),
        (
            "UserPromptSubmit",
            [said(failure="late", on_failure="block")],
            HookVerdict(blocked="the hook (h) failed: late"),
        ),
        (
            "PostToolUse",
            [said(specific(updatedToolOutput="a")), said(failure="late", on_failure="block")],
            HookVerdict(updated_output="a", blocked="the hook (h) failed: late", withheld="the hook (h) failed: late"),
        ),
        ("Stop", [said(failure="late", on_failure="block")], HookVerdict()),
    ],
    "a failure with onFailure continue": [
        ("PreToolUse", [said(failure="late"), decision("allow")], decided("allow")),
        ("UserPromptSubmit", [said(failure="late")], HookVerdict()),
        ("PostToolUse", [said(failure="late")], HookVerdict()),
    ],
    "unknown keys": [
        ("PreToolUse", [said({"decision": "approve"}, unknown=("a",))], decided("allow")),
        ("PostToolUse", [said(unknown=("a",))], HookVerdict()),
    ],
}
CASES = [pytest.param(*case, id=f"{row} {number}") for row, cases in ROWS.items() for number, case in enumerate(cases)]


@pytest.mark.parametrize(("event", "answers", "expected"), CASES)
def test_answers_come_to_what_the_table_says(event: str, answers: list[HookResult], expected: HookVerdict) -> None:
    assert merge_results(EVENTS[event], answers) == expected


def test_every_row_has_its_test() -> None:
    assert list(ROWS) == list(RULES)


def test_no_one_says_nothing() -> None:
    assert all(merge_results(event, []) == HookVerdict() for event in EVENTS.values())
