"""Dialect B, line by line: what each of our messages says there, and what its lines say to us."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from parley.protocol.base import UNSET, Message, catalogue, decode, encode, encode_json, to_builtins
from parley.protocol.dialects.base import DialectContext
from parley.protocol.messages.conversation import Assistant, User
from parley.protocol.messages.dialects import AnswerComplete, PermissionRequest, SystemFault
from parley.protocol.messages.occasional import HookResponse, HookStarted
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry, Informational, Status
from tests.helpers.dialect_reading import Spec001Reader
from tests.helpers.golden import LINES, SEEDS, Sample, canonical, each

Json = dict[str, Any]
NOW = "2026-02-02T10:30:00.000Z"
DOCUMENT = [sample for sample in SEEDS if sample.name.startswith("001 ")]


def dialect() -> Spec001Reader:
    numbers = count(1)
    return Spec001Reader(DialectContext(now=lambda: NOW, new_uuid=lambda: f"u{next(numbers)}"))


def said(*messages: Message) -> list[Json]:
    """The lines that say these messages."""
    spoken = dialect()
    return [json.loads(line) for message in messages for line in spoken.encode(message)]


def answer(*blocks: Json, id: str = "msg_1", **fields: Any) -> Assistant:
    inner = {"id": id, "role": "assistant", "model": "m", "content": list(blocks)}
    line = {"type": "assistant", "message": inner, "session_id": "s", "uuid": "u", "parent_tool_use_id": None, **fields}
    message = decode(json.dumps(line).encode())
    assert isinstance(message, Assistant)
    return message


def result(**fields: Any) -> Result:
    line = {"type": "result", "subtype": "success", "session_id": "s", "is_error": False, "num_turns": 1, **fields}
    message = decode(json.dumps(line).encode())
    assert isinstance(message, Result)
    return message


TEXT = {"type": "text", "text": "I will."}
CALL = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}}
COMPLETE = AnswerComplete(message_id="msg_1")


@each(DOCUMENT)
def test_every_line_of_the_document_is_read_as_a_known_message(sample: Sample) -> None:
    [message] = dialect().decode(sample.line)

    assert type(message) in catalogue().values()


KEPT = {"system", "assistant", "user", "result", "stream_event"}


@each([sample for sample in DOCUMENT if sample.json.get("type") in KEPT])
def test_a_line_of_the_document_comes_back_with_all_it_said(sample: Sample) -> None:
    spoken = dialect()
    [message] = spoken.decode(sample.line)
    lines = [*spoken.encode(message), *spoken.encode(COMPLETE)]

    [back] = [json.loads(line) for line in lines]
    expected = {**sample.json, "tools": ["Read"]} if "tools" in sample.json else dict(sample.json)
    expected.pop("timestamp", None)  # it is said anew
    assert {name: back.get(name) for name in expected} == expected


@each(LINES)
def test_every_encoded_line_ends_with_a_timestamp_or_is_left_out(sample: Sample) -> None:
    for line in said(decode(sample.line), COMPLETE):
        assert list(line)[-1] == "timestamp"
        assert line["type"] in KEPT | {"control_request", "control_response", "control_cancel_request"} | OWN_WISH


OWN_WISH = {"keep_alive", "transcript_mirror"}


def test_the_blocks_of_an_answer_are_one_line_when_it_is_complete() -> None:
    [line] = said(answer(TEXT), answer(CALL), COMPLETE)

    assert line == {
        "type": "assistant",
        "message": {"role": "assistant", "content": [TEXT, CALL]},
        "session_id": "s",
        "timestamp": NOW,
    }


def test_an_answer_that_was_cut_off_is_reported_before_the_next_line() -> None:
    line, after = said(answer(TEXT), result())

    assert (line["type"], after["type"]) == ("assistant", "result")
    assert [line["type"] for line in said(answer(TEXT), answer(TEXT, id="msg_2"), COMPLETE)] == ["assistant"] * 2


def test_the_dialect_has_no_thinking() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": ""}

    assert said(answer(thinking), COMPLETE) == []
    [line] = said(answer(thinking), answer(TEXT), COMPLETE)
    assert line["message"]["content"] == [TEXT]


def test_a_line_of_a_subagent_says_whose_it_is_and_is_not_held() -> None:
    [line] = said(answer(CALL, parent_tool_use_id="t0"))

    assert line["parent_tool_use_id"] == "t0"


def test_a_failure_of_the_model_is_an_error_of_the_api() -> None:
    [line] = said(answer(TEXT, error="rate_limit", is_api_error_message=True))

    assert line == {
        "type": "system",
        "subtype": "error",
        "error": {"type": "api_error", "message": "I will."},
        "session_id": "s",
        "timestamp": NOW,
    }


def test_retries_warnings_and_refused_lines_are_errors_and_the_rest_is_left_out() -> None:
    retry = ApiRetry(attempt=1, max_retries=8, retry_delay_ms=500, error_status=529, error="server_error")
    warning = Informational(content="Half of the budget is spent", level="warning")
    refused = SystemFault(message="no", error={"type": "validation_error", "message": "no"})
    notice = Informational(content="By the way", level="info")
    lines = said(retry, warning, refused, notice, Status(status="requesting"))

    assert [(line["subtype"], line["error"]["type"]) for line in lines] == [
        ("error", "api_error"),
        ("error", "system_error"),
        ("error", "validation_error"),
    ]


def test_a_permission_request_is_sent_for_information() -> None:
    [line] = said(PermissionRequest(tool="Write", params={"file_path": "a"}, session_id="s", uuid="u"))

    assert line == {
        "type": "system",
        "subtype": "permission_request",
        "tool": "Write",
        "params": {"file_path": "a"},
        "session_id": "s",
        "timestamp": NOW,
    }


@pytest.mark.parametrize(
    ("event", "name", "about"),
    [("PreToolUse", "PreToolUse:Bash", {"tool": "Bash"}), ("SessionStart", "SessionStart:startup", {})],
)
def test_a_run_of_a_hook_is_one_line_and_names_the_tool_it_is_about(event: str, name: str, about: Json) -> None:
    ran = HookResponse(
        hook_id="h",
        hook_name=name,
        hook_event=event,
        output="",
        stdout="",
        stderr="",
        outcome="success",
        session_id="s",
    )
    [line] = said(HookStarted(hook_id="h", hook_name=name, hook_event=event), ran)

    assert line == {
        "type": "system",
        "subtype": "hook_execution",
        "hook_event": event,
        "hook_name": name,
        **about,
        "outcome": "success",
        "session_id": "s",
        "timestamp": NOW,
    }


FAILED = {"subtype": "error_during_execution", "is_error": True, "errors": ["It broke."]}
ENDS = [
    ({"subtype": "success"}, "success", None),
    ({"subtype": "error_max_turns", "is_error": True}, "max_turns_reached", None),
    ({"subtype": "error_max_budget_usd", "is_error": True}, "budget_exceeded", None),
    ({**FAILED, "terminal_reason": "budget_exhausted"}, "budget_exceeded", None),
    ({**FAILED, "terminal_reason": "aborted_tools"}, "user_cancelled", None),
    ({**FAILED, "terminal_reason": "aborted_streaming"}, "user_cancelled", None),
    ({"terminal_reason": "aborted_tools", "result": ""}, "success", None),
    ({"is_error": True, "result": "API Error: 429"}, "error", "api_error"),
    ({**FAILED, "terminal_reason": "permission_denied"}, "error", "permission_denied"),
    ({**FAILED, "num_turns": 0}, "error", "validation_error"),
    ({**FAILED, "subtype": "error_max_structured_output_retries"}, "error", "validation_error"),
    ({**FAILED, "fault_type": "tool_error"}, "error", "tool_error"),
    ({**FAILED, "fault_type": "system_error", "num_turns": 0}, "error", "system_error"),
    (FAILED, "error", "system_error"),
]


@pytest.mark.parametrize(("ours", "subtype", "kind"), ENDS)
def test_every_end_of_a_turn_has_its_subtype_and_an_error_its_type(ours: Json, subtype: str, kind: str | None) -> None:
    [line] = said(result(**ours))

    assert line["subtype"] == subtype
    assert line.get("error", {}).get("type") == kind


@pytest.mark.parametrize(("ours", "subtype", "kind"), ENDS)
def test_every_end_of_a_turn_is_the_same_again_when_it_is_read(ours: Json, subtype: str, kind: str | None) -> None:
    spoken, sent = dialect(), result(**ours)
    [message] = spoken.decode(spoken.encode(sent)[0])

    assert isinstance(message, Result)
    budget = ours.get("terminal_reason") == "budget_exhausted"  # of tokens or seconds: there is but one word for it
    expected = {**ours, "subtype": "error_max_budget_usd"} if budget else ours
    assert {name: getattr(message, name) for name in expected} == expected


def test_token_counts_are_flat_and_an_error_has_message_and_details() -> None:
    usage = {
        "input_tokens": 1250,
        "output_tokens": 487,
        "cache_creation_input_tokens": 3,
        "cache_read_input_tokens": 4,
    }
    [line] = said(result(**{**FAILED, "errors": ["One.", "Two."]}, usage=usage, api_error_status=429))

    assert {name: line[name] for name in ("input_tokens", "output_tokens")} == {
        "input_tokens": 1250,
        "output_tokens": 487,
    }
    assert (line["cache_creation_tokens"], line["cache_read_tokens"]) == (3, 4)
    assert line["error"] == {
        "type": "system_error",
        "message": "One.; Two.",
        "details": {"errors": ["One.", "Two."], "status": 429},
    }


def test_a_result_of_someone_else_gets_what_ours_always_have() -> None:
    [sample] = [sample for sample in DOCUMENT if sample.name == "001 result"]
    [message] = dialect().decode(sample.line)

    assert isinstance(message, Result)
    assert (message.is_error, message.duration_ms, message.duration_api_ms) == (False, 0, 0)
    assert message.usage == {
        "input_tokens": 1250,
        "output_tokens": 487,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    assert message.uuid == "u1"
    assert "input_tokens" not in to_builtins(message)


def test_an_error_of_someone_else_becomes_a_list_of_errors() -> None:
    [sample] = [sample for sample in DOCUMENT if sample.name == "001 error result"]
    [message] = dialect().decode(sample.line)

    assert isinstance(message, Result)
    assert (message.subtype, message.is_error) == ("error_during_execution", True)
    assert message.errors == ["API rate limit exceeded"]
    assert message.api_error_status == 429


def test_an_answer_of_someone_else_gets_the_model_that_was_announced() -> None:
    spoken = dialect()
    [init, assistant] = [sample for sample in DOCUMENT if sample.name in ("001 system init", "001 assistant")]
    spoken.decode(init.line)
    [message] = spoken.decode(assistant.line)

    assert isinstance(message, Assistant)
    assert message.message.model == "claude-sonnet-4-5-20250929"
    assert message.uuid


def test_content_may_be_a_field_of_the_line() -> None:
    line = {"type": "user", "content": [{"type": "text", "text": "Hi"}], "timestamp": NOW}
    [message] = dialect().decode(json.dumps(line).encode())

    assert isinstance(message, User)
    assert canonical(to_builtins(message.message)) == canonical({"role": "user", "content": line["content"]})


@pytest.mark.parametrize("line", [b'{"type":"user"}', b'{"type":"user","content":5}', b"nothing", b'{"type":"user",'])
def test_a_line_that_says_nothing_is_refused_as_everywhere(line: bytes) -> None:
    assert [type(message) for message in dialect().decode(line)] == [type(decode(line))]


def test_a_prompt_is_the_same_message_as_in_the_canonical_dialect() -> None:
    [sample] = [sample for sample in SEEDS if sample.name == "003 user input"]
    [message] = dialect().decode(sample.line)

    assert message == decode(sample.line)
    assert encode(message) == sample.line


def test_nothing_that_is_not_said_reaches_the_wire_as_a_field() -> None:
    [line] = said(User(message=decode(encode_json(answer(TEXT))).message, session_id=UNSET))  # type: ignore[attr-defined]

    assert set(line) == {"type", "message", "timestamp"}
