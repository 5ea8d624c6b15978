"""Assertions on a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from parley import AssistantMessage, ResultMessage, TextBlock, ToolResultBlock, ToolUseBlock, UserMessage
from parley.testing import expect

CALL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "rm -r /", "timeout": 5}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "not here", "is_error": True}
TALK: list[dict[str, Any]] = [
    {"type": "assistant", "message": {"content": [{"type": "text", "text": "I will."}, CALL]}},
    {
        "type": "control_request",
        "request_id": "r1",
        "request": {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t1"},
    },
    {
        "type": "control_response",
        "response": {"request_id": "r1", "response": {"behavior": "deny", "message": "not here"}},
    },
    {"type": "user", "message": {"content": [RESULT]}},
    {"type": "assistant", "message": {"content": [{"type": "text", "text": "I may not."}]}},
    {"type": "result", "subtype": "success", "is_error": False, "result": "I may not.", "permission_denials": []},
]


def test_a_tool_was_asked_for_denied_and_the_turn_ended() -> None:
    seen = expect(TALK).said("I will").tool("Bash", command="rm -r /").asked().denied("not here").failed()

    seen.no_tool("Bash").said("I may not").turn_ended(text="I may not.", is_error=False)


def test_messages_of_an_sdk_are_checked_alike() -> None:
    messages = [
        AssistantMessage(
            content=[TextBlock(text="Look."), ToolUseBlock(id="a", name="Read", input={"n": 1})], model=""
        ),
        UserMessage(content=[ToolResultBlock(tool_use_id="a", content=[{"type": "text", "text": "milk"}])]),
        ResultMessage(
            subtype="success",
            duration_ms=0,
            duration_api_ms=0,
            is_error=False,
            num_turns=1,
            session_id="s",
            result="Milk.",
            permission_denials=[{"tool_use_id": "b"}],
        ),
    ]

    expect(messages).said("Look").tool("Read", n=1).allowed().returned("milk").turn_ended(text="Milk")


@pytest.mark.parametrize(
    ("check", "error"),
    [
        (lambda talk: talk.tool("Read"), "expected a call of Read; found calls of Bash"),
        (
            lambda talk: talk.tool("Bash", command="ls"),
            'expected a call of Bash with {"command":"ls"}; .* another input',
        ),
        (lambda talk: talk.no_tool("Bash"), "expected no call of Bash; it was called"),
        (lambda talk: talk.tool("Bash").allowed(), "expected that Bash is allowed; it was denied"),
        (
            lambda talk: talk.tool("Bash").denied("why"),
            "expected an error of Bash that contains 'why'; it is 'not here'",
        ),
        (lambda talk: talk.tool("Bash").returned(), "expected a result of Bash; found an error"),
        (lambda talk: talk.said("hello"), "expected the assistant to say 'hello'; it did not"),
        (lambda talk: talk.turn_ended("error_max_turns"), "to end with error_max_turns; it ended with success"),
        (lambda talk: talk.turn_ended(text="Yes"), "expected the result to contain 'Yes'; it is 'I may not.'"),
        (lambda talk: talk.turn_ended().turn_ended(), "expected the turn to end; it has no result"),
    ],
)
def test_a_failed_check_says_what_was_expected_and_shows_the_conversation(check: Any, error: str) -> None:
    with pytest.raises(AssertionError, match=error) as raised:
        check(expect(TALK))

    assert "2 calls Bash" in str(raised.value)
    assert "the turn ends with success: I may not." in str(raised.value)


def test_a_check_of_a_call_needs_a_call() -> None:
    with pytest.raises(TypeError, match=r"denied\(\) follows tool\(\)"):
        expect(TALK).denied()
