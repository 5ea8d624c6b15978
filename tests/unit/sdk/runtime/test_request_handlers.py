"""What becomes of the answers of callbacks."""

from __future__ import annotations

from typing import Any

import pytest

from parley import HookMatcher, Options, Signal
from parley.protocol.messages.requests import Elicitation, HookCallback
from parley.sdk.runtime.message_router import MessageRouter
from parley.sdk.runtime.request_handlers import RequestHandler
from tests.helpers.sdk import run


def answer_hook(output: Any, event: str = "PreToolUse", *, failures_block: bool = True, **matcher: Any) -> Any:
    """What the engine gets from a hook with this output."""
    hooks: Any = {event: [HookMatcher(hooks=[lambda *asked: output], **matcher)]}
    handler = RequestHandler(Options(hooks=hooks), {}, MessageRouter())
    handler.failures_block = failures_block
    asked = HookCallback(callback_id="hook_0", input={"hook_event_name": event})
    return run("asyncio", handler, asked, Signal())


DENY = {"permissionDecision": "deny"}


@pytest.mark.parametrize(
    ("event", "output", "words"),
    [
        ("PreToolUse", {"permisionDecision": "deny"}, r"permisionDecision \(did you mean permissionDecision\?\)"),
        ("PreToolUse", DENY, "it belongs in hookSpecificOutput"),
        ("PreToolUse", {"hookSpecificOutput": {"permission_decision": "deny"}}, "did you mean permissionDecision"),
        ("PreToolUse", {"hookSpecificOutput": {"hookEventName": "PostToolUse"}}, "expected PreToolUse"),
        ("PostToolUse", {"hookSpecificOutput": {"additionalContxt": "x"}}, "did you mean additionalContext"),
        ("UserPromptSubmit", {"descision": "block"}, "did you mean decision"),
        ("Stop", {"decision": "deny"}, "expected block"),
        ("PermissionRequest", {"hookSpecificOutput": {"decision": {"behaviour": "deny"}}}, "did you mean behavior"),
    ],
)
def test_a_misspelled_key_in_the_answer_of_a_hook_is_an_error(event: str, output: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        answer_hook(output, event)


def test_an_engine_that_ignores_failed_hooks_gets_a_denial() -> None:
    found = answer_hook({"permisionDecision": "deny"}, failures_block=False)["hookSpecificOutput"]

    assert (found["hookEventName"], found["permissionDecision"]) == ("PreToolUse", "deny")
    assert "did you mean permissionDecision?" in found["permissionDecisionReason"]


def test_a_hook_that_may_fail_denies_nothing() -> None:
    with pytest.raises(TypeError):
        answer_hook({"permisionDecision": "deny"}, failures_block=False, on_failure="continue")


@pytest.mark.parametrize(
    ("event", "output"),
    [
        ("PreToolUse", {"hookSpecificOutput": DENY, "resaon": "x"}),
        ("PostToolUse", {"decision": "block", "resaon": "x"}),
        ("Stop", {"continue": False, "stopReson": "x"}),
        ("PermissionRequest", {"hookSpecificOutput": {"decision": {"behavior": "deny", "mesage": "x"}}}),
    ],
)
def test_a_denial_takes_effect_even_if_another_key_is_misspelled(
    event: str, output: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert answer_hook(output, event, on_failure="continue") == output
    assert "did you mean" in caplog.text


def test_a_key_that_resembles_none_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert answer_hook({"weather": 1}, "PostToolUse") == {"weather": 1}
    assert "unknown keys: weather" in caplog.text


def test_the_keys_of_an_unknown_event_are_not_checked() -> None:
    output = {"hookSpecificOutput": {"decison": 1}}

    assert answer_hook(output, "Eclipse") == output


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"acton": "accept"}, "the answer of on_elicitation has no key 'acton'; did you mean 'action'"),
        ({"content": {}}, "has no key 'action'"),
        ("accept", "must return a dict, not str"),
    ],
)
def test_an_invalid_answer_to_an_elicitation_is_an_error(answer: Any, words: str) -> None:
    handler = RequestHandler(Options(on_elicitation=lambda asked: answer), {}, MessageRouter())

    with pytest.raises(TypeError, match=words):
        run("asyncio", handler, Elicitation(mcp_server_name="s", message="m"), Signal())
