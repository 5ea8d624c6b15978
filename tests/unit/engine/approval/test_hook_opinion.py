"""What a hook's word is worth: every cell of decision and word."""

from __future__ import annotations

import pytest

from parley.engine.approval.gate import apply_hook_decision
from parley.engine.hooks.registry import HookOpinion
from parley.permissions.base import Allow, Ask, Decision, Deny, ToolRequest
from parley.workspace.base import Scope

REACH = Scope(files=("/a",))
INPUT = {"command": "x"}
REQUEST = ToolRequest(tool="Bash", input=INPUT, cwd="/w")
PERSON = ToolRequest(tool="AskUserQuestion", input=INPUT, cwd="/w", asks_user=True)

RULE_DENIES = Deny(message="no", source="rule")
MODE_DENIES = Deny(message="no", source="mode")
RULE_ASKS = Ask(reason="a rule", reason_type="rule", scope=REACH)
GRAVE = Ask(reason="grave", reason_type="safetyCheck", scope=REACH)
MODE_ASKS = Ask(reason="the mode", reason_type="other", scope=REACH)
ALLOWED = Allow(input=INPUT, source="mode", scope=REACH)

HOOK_ALLOWS = Allow(input=INPUT, source="hook", reason="r", reason_type="hook", scope=REACH)
HOOK_ASKS = Ask(reason="r", reason_type="hook", scope=REACH)
HOOK_DENIES = Deny(message="PreToolUse hook error: r", source="hook", reason="r", reason_type="hook")


@pytest.mark.parametrize(
    ("decision", "plainly", "allow", "ask", "deny"),
    [
        (RULE_DENIES, RULE_DENIES, RULE_DENIES, RULE_DENIES, RULE_DENIES),
        (MODE_DENIES, MODE_ASKS, HOOK_ALLOWS, MODE_DENIES, HOOK_DENIES),
        (MODE_DENIES, RULE_ASKS, MODE_DENIES, MODE_DENIES, HOOK_DENIES),
        (MODE_DENIES, GRAVE, MODE_DENIES, MODE_DENIES, HOOK_DENIES),
        (RULE_ASKS, RULE_ASKS, RULE_ASKS, HOOK_ASKS, HOOK_DENIES),
        (GRAVE, GRAVE, GRAVE, HOOK_ASKS, HOOK_DENIES),
        (MODE_ASKS, MODE_ASKS, HOOK_ALLOWS, HOOK_ASKS, HOOK_DENIES),
        (ALLOWED, MODE_ASKS, HOOK_ALLOWS, HOOK_ASKS, HOOK_DENIES),
    ],
)
def test_a_hooks_word_is_weighed(
    decision: Decision, plainly: Decision, allow: Decision, ask: Decision, deny: Decision
) -> None:
    words = [HookOpinion(behavior=word, reason="r") for word in ("allow", "ask", "deny")]
    assert [apply_hook_decision(REQUEST, decision, word, lambda: plainly) for word in words] == [allow, ask, deny]


def test_no_hook_answers_for_a_person() -> None:
    assert apply_hook_decision(PERSON, MODE_ASKS, HookOpinion(behavior="allow"), lambda: MODE_ASKS) == MODE_ASKS
