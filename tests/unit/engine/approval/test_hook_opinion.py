"""What a hook's word is worth: every cell of decision and word."""

from __future__ import annotations

import pytest

from parley.engine.approval.hook_opinion import Opinion, weighed
from parley.permissions.base import Allow, Ask, Decision, Deny, Request
from parley.workspace.base import Reach

REACH = Reach(files=("/a",))
INPUT = {"command": "x"}
REQUEST = Request(tool="Bash", input=INPUT, cwd="/w")
PERSON = Request(tool="AskUserQuestion", input=INPUT, cwd="/w", asks_person=True)

RULE_DENIES = Deny(message="no", source="rule")
MODE_DENIES = Deny(message="no", source="mode")
RULE_ASKS = Ask(reason="a rule", reason_type="rule", reach=REACH)
GRAVE = Ask(reason="grave", reason_type="safetyCheck", reach=REACH)
MODE_ASKS = Ask(reason="the mode", reason_type="other", reach=REACH)
ALLOWED = Allow(input=INPUT, source="mode", reach=REACH)

HOOK_ALLOWS = Allow(input=INPUT, source="hook", reason="r", reason_type="hook", reach=REACH)
HOOK_ASKS = Ask(reason="r", reason_type="hook", reach=REACH)
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
    words = [Opinion(word=word, reason="r") for word in ("allow", "ask", "deny")]
    assert [weighed(REQUEST, decision, word, lambda: plainly) for word in words] == [allow, ask, deny]


def test_no_hook_answers_for_a_person() -> None:
    assert weighed(PERSON, MODE_ASKS, Opinion(word="allow"), lambda: MODE_ASKS) == MODE_ASKS
