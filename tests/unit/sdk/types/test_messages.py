"""Lines as the message classes that programs receive."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import parley as sdk
from parley.protocol.base import decode
from parley.sdk.runtime.message_parser import parse_message


def got(line: dict[str, Any]) -> Any:
    return parse_message(decode(msgspec.json.encode(line)))


KEY: sdk.SessionKey = {"project_key": "p", "session_id": "s"}
IDS = {"uuid": "u", "session_id": "s"}
CALL = {"id": "t", "name": "Bash", "input": {"a": 1}}
USED = {"type": "server_tool_use", "id": "t", "name": "web_search", "input": {"q": "x"}}
GAVE = {"type": "web_search_tool_result", "tool_use_id": "t", "content": []}
INFO = {"status": "allowed", "resetsAt": 5, "rateLimitType": "five_hour", "utilization": 0.5, "new": 1}
HOOK = {"type": "system", "subtype": "hook_started", "hook_id": "h", "hook_name": "Stop", "hook_event": "Stop", **IDS}
FAILED = {"type": "system", "subtype": "mirror_error", "error": "full", "key": KEY, **IDS}
BASH = {"tool_use_id": "t", "tool_name": "Bash", "parent_tool_use_id": None}
PROGRESS = {"type": "tool_progress", **BASH, "elapsed_time_seconds": 3, **IDS}
RESET = {"type": "conversation_reset", "new_conversation_id": "n", **IDS}
RESULT = {"type": "result", "subtype": "success", "is_error": False, "deferred_tool_use": CALL, **IDS}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            {"type": "rate_limit_event", "rate_limit_info": INFO, **IDS},
            sdk.RateLimitEvent(sdk.RateLimitInfo("allowed", 5, "five_hour", 0.5, raw=INFO), uuid="u", session_id="s"),
        ),
        (RESET, sdk.ConversationResetMessage("n", "u", "s")),
        (HOOK, sdk.HookEventMessage("hook_started", HOOK, "Stop", "s", "u")),
        (FAILED, sdk.MirrorErrorMessage("mirror_error", FAILED, key=KEY, error="full")),
    ],
)
def test_a_line_is_a_message_of_its_class(line: dict[str, Any], message: Any) -> None:
    found = got(line)

    assert (type(found), found) == (type(message), message)
    assert found.raw == line


def test_a_call_that_was_put_off_is_in_the_result() -> None:
    assert got(RESULT).deferred_tool_use == sdk.DeferredToolUse("t", "Bash", {"a": 1})


def test_blocks_of_the_backends_own_tools_have_classes() -> None:
    inner = {"role": "assistant", "model": "m", "content": [USED, GAVE]}

    assert got({"type": "assistant", "message": inner, **IDS}).content == [
        sdk.ServerToolUseBlock("t", "web_search", {"q": "x"}),
        sdk.ServerToolResultBlock("t", []),
    ]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ({"type": "hologram", "subtype": "new", "x": 1}, sdk.Unknown),
        ({"type": "system", "subtype": "a_word_of_tomorrow", "x": 1}, sdk.SystemMessage),
        (PROGRESS, sdk.Notice),
    ],
)
def test_fields_that_the_official_classes_drop_are_kept(line: dict[str, Any], kind: type[Any]) -> None:
    found = got(line)

    assert type(found) is kind
    assert found.raw == line


def test_an_image_of_a_user_is_kept_and_errors_may_have_any_word() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    user = got({"type": "user", "message": {"role": "user", "content": [image]}, "parent_tool_use_id": None, **IDS})
    inner = {"role": "assistant", "model": "m", "content": []}

    assert user.content == [sdk.OtherBlock("image", image)]
    assert got({"type": "assistant", "message": inner, "error": "a_new_one", **IDS}).error == "a_new_one"


def test_a_line_with_a_wrong_field_is_unreadable_and_says_why() -> None:
    found = got({"type": "conversation_reset", "new_conversation_id": 3})

    assert isinstance(found, sdk.Unreadable)
    assert "new_conversation_id" in found.reason
