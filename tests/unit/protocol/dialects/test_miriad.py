"""Dialect C by itself; what the engine does behind it is in tests/session/engine/session/test_miriad.py."""

from __future__ import annotations

from typing import Any

import pytest

from parley.protocol.base import Message, Refused
from parley.protocol.blocks import Text, ToolResult, ToolUse
from parley.protocol.blocks import read as block
from parley.protocol.dialects.miriad import Miriad
from parley.protocol.messages.control import ControlRequest, ControlResponse, Failure, Success
from parley.protocol.messages.conversation import Assistant, AssistantContent, StreamEvent, User, UserContent
from parley.protocol.messages.dialects import (
    AnswerComplete,
    Consolidation,
    Injected,
    Provisions,
    Queued,
    SessionOpened,
    SystemFault,
)
from parley.protocol.messages.notices import CommandLifecycle
from parley.protocol.messages.panel_requests import McpSetServers
from parley.protocol.messages.requests import Interrupt
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry, Informational, Init, PermissionDenied
from tests.helpers.dialect_reading import read_miriad
from tests.helpers.dialects import NOW, Json, heard, replies, said, world
from tests.helpers.golden import SEEDS, Sample, each

IN = [sample for sample in SEEDS if sample.name.startswith("002") and sample.json["type"] in ("user", "control")]
OUT = [sample for sample in SEEDS if sample.name.startswith("002") and sample not in IN]
STATUS = {"type": "control", "action": "status"}
INTERRUPT = {"type": "control", "action": "interrupt"}
NO_TURN = {"type": "system", "subtype": "error", "message": "No turn is currently running"}


def opened() -> Miriad:
    dialect = Miriad(world())
    assert said(dialect, SessionOpened(session_id="own")) == []
    return dialect


def prompt(**fields: Any) -> Json:
    return {"type": "user", "message": {"role": "user", "content": "Hi"}, **fields}


def life(uuid: str, state: str) -> CommandLifecycle:
    return CommandLifecycle(command_uuid=uuid, state=state)


def answer(*content: Any, id: str = "msg_1", **fields: Any) -> Assistant:
    return Assistant(message=AssistantContent(id=id, model="m", content=list(content)), **fields)


def tool_output(text: str, **fields: Any) -> User:
    return User(message=UserContent(content=[ToolResult.of("call_1", text)]), **fields)


def result(**fields: Any) -> Result:
    return Result(**{"subtype": "success", "is_error": False, "duration_ms": 5, "session_id": "own", **fields})


@each(IN)
def test_a_line_of_a_client_in_the_document_is_understood(sample: Sample) -> None:
    messages = heard(opened(), sample.line)

    assert [type(message) for message in messages if not replies([message])] in ([User], [])
    assert messages


@each(OUT)
def test_a_line_of_the_document_is_encoded_identically(sample: Sample) -> None:
    """What its engine says is read in our words, and what we say of that is the line again."""
    line, dialect = sample.json, Miriad(world())
    said(dialect, SessionOpened(session_id=line.get("session_id", "default")))
    said(dialect, *[tool_output("")] * line.get("num_turns", 0))
    if line.get("subtype") == "status":
        assert replies(heard(dialect, STATUS)) == [line]
        return

    message = read_miriad(sample.line, lambda: "u1")

    assert said(dialect, message, AnswerComplete(message_id="")) == [line]


# In.


def test_a_prompt_gets_an_id_and_keeps_the_one_it_has() -> None:
    first, second = heard(opened(), prompt(session_id="s1"), prompt(uuid="mine"))

    assert isinstance(first, User)
    assert isinstance(second, User)
    assert (first.uuid, second.uuid) == ("u1", "mine")


def test_texts_that_follow_each_other_in_a_prompt_are_lines_of_one() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    texts = [{"type": "text", "text": word} for word in ("one", "two", "three")]
    line = {"type": "user", "message": {"role": "user", "content": [*texts[:2], picture, texts[2]]}}

    (message,) = heard(opened(), line)

    assert isinstance(message, User)
    assert message.message.content == [Text.of("one\ntwo"), block(picture), Text.of("three")]


def test_what_a_prompt_brings_along_goes_before_it() -> None:
    line = prompt(system_prompt="Be kind.", environment={"A": "1"}, mcp_servers={"s": {"command": "x"}})

    brought, servers, said_by_user = heard(opened(), line)

    assert brought == Provisions(system_prompt="Be kind.", environment={"A": "1"})
    assert servers == ControlRequest(request_id="u1", request=McpSetServers(servers={"s": {"command": "x"}}))
    assert isinstance(said_by_user, User)


@pytest.mark.parametrize("wrong", [{"environment": {"A": 1}}, {"environment": "A=1"}, {"mcp_servers": ["s"]}])
def test_a_prompt_that_brings_something_wrong_is_refused_as_a_prompt(wrong: Json) -> None:
    (refused,) = heard(opened(), prompt(**wrong))

    assert isinstance(refused, Refused)
    assert refused.kind == "user"


def test_status_is_answered_from_what_was_seen() -> None:
    dialect = opened()
    idle = {"type": "system", "subtype": "status", "running": False, "session_id": "own", "queued_messages": 0}
    assert replies(heard(dialect, STATUS)) == [idle]

    heard(dialect, prompt(), prompt(), prompt())
    said(dialect, life("u1", "queued"), life("u1", "started"), life("u2", "queued"))
    said(dialect, Queued(position=1, user_message_uuid="u2"), life("u3", "queued"))
    said(dialect, Queued(position=2, user_message_uuid="u3"))
    assert replies(heard(dialect, STATUS)) == [{**idle, "running": True, "queued_messages": 2}]

    said(dialect, life("u2", "started"), life("u3", "cancelled"), result(user_message_uuids=["u1", "u2"]))
    said(dialect, life("u1", "completed"), life("u2", "completed"))
    assert replies(heard(dialect, STATUS)) == [idle]


def test_a_turn_that_no_one_asked_for_runs_as_well() -> None:
    dialect = opened()
    said(dialect, Init())

    assert [line["running"] for line in replies(heard(dialect, STATUS))] == [True]
    assert said(dialect, result())[0]["session_id"] == "own"
    assert [line["running"] for line in replies(heard(dialect, STATUS))] == [False]


def test_a_heartbeat_is_answered_with_the_time() -> None:
    beat = replies(heard(opened(), {"type": "control", "action": "heartbeat"}))

    assert beat == [{"type": "system", "subtype": "heartbeat_ack", "timestamp": NOW, "session_id": "own"}]


def test_an_interrupt_without_a_turn_is_answered_as_such() -> None:
    assert replies(heard(opened(), INTERRUPT)) == [NO_TURN]


def test_an_interrupt_becomes_a_request_and_its_answer_an_acknowledgement() -> None:
    dialect = opened()
    heard(dialect, prompt())
    said(dialect, life("u1", "queued"))

    (asked,) = heard(dialect, INTERRUPT)
    answered = said(dialect, ControlResponse(response=Success(request_id="u2", response={"still_queued": []})))

    assert asked == ControlRequest(request_id="u2", request=Interrupt())
    assert answered == [{"type": "system", "subtype": "interrupted", "session_id": "own"}]


def test_servers_that_cannot_be_had_are_reported() -> None:
    dialect = opened()
    heard(dialect, prompt(mcp_servers={"s": {}}))
    payload = {"added": [], "removed": [], "errors": {"s": "no command"}}

    assert said(dialect, ControlResponse(response=Success(request_id="u1", response=payload))) == [
        {"type": "system", "subtype": "error", "message": "MCP server 's': no command"}
    ]
    heard(dialect, prompt(mcp_servers={"s": {}}))
    assert said(dialect, ControlResponse(response=Failure(request_id="u3", error="not now"))) == [
        {"type": "system", "subtype": "error", "message": "not now"}
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "not JSON"),
        (b"\xff\xff", "UTF-8"),
        (b"[]", "JSON object"),
        (b"{}", "type"),
        (b'{"type":"dance"}', "Unknown message type: dance"),
        (b'{"type":"control"}', "action"),
        (b'{"type":"control","action":"dance"}', "Unknown control action: dance"),
        (b'{"jsonrpc":"2.0","id":1,"method":"run"}', "JSON-RPC"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "nested"),
    ],
)
def test_bad_input_of_every_kind_is_answered(line: bytes, words: str) -> None:
    (reply,) = replies(heard(opened(), line))

    assert (reply["type"], reply["subtype"]) == ("system", "error")
    assert words in reply["message"]


def test_a_prompt_that_cannot_be_read_is_left_for_a_result() -> None:
    (refused,) = heard(opened(), b'{"type":"user","message":{"role":"user","content":5}}')

    assert isinstance(refused, Refused)
    assert refused.kind == "user"


# Out.


def test_an_answer_is_one_line_however_many_blocks_it_has() -> None:
    dialect = opened()
    call = ToolUse({"type": "tool_use", "id": "call_1", "name": "Read", "input": {"file_path": "/a"}})

    before = said(dialect, answer(Text.of("Let me look.")), answer(call))
    (line,) = said(dialect, AnswerComplete(message_id="msg_1"))

    assert before == []
    assert line == {
        "type": "assistant",
        "message": {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "call_1", "name": "read", "input": {"filePath": "/a"}},
            ],
            "model": "m",
        },
    }


def test_an_answer_that_was_cut_off_is_reported_before_what_follows() -> None:
    dialect = opened()
    said(dialect, answer(Text.of("Let me")))

    kinds = [line["type"] for line in said(dialect, result(terminal_reason="aborted_streaming"))]

    assert kinds == ["assistant", "result"]


def test_an_answer_is_reported_when_another_begins() -> None:
    dialect = opened()
    said(dialect, answer(Text.of("one")))

    assert [line["message"]["content"][0]["text"] for line in said(dialect, answer(Text.of("two"), id="msg_2"))] == [
        "one"
    ]


@pytest.mark.parametrize(
    "quiet",
    [
        answer(block({"type": "thinking", "thinking": "Hm.", "signature": "s"})),
        answer(Text.of("of a helper"), parent_tool_use_id="toolu_1"),
        tool_output("of a helper", parent_tool_use_id="toolu_1"),
        User(message=UserContent(content="[Request interrupted by user]")),
        StreamEvent(event=b"{}"),  # type: ignore[arg-type]  # it is never looked into
        Init(),
        PermissionDenied(tool_name="Bash", tool_use_id="t", message="no"),
        Informational(content="by the way", level="info"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_the_dialect_cannot_express_is_not_sent(quiet: Message) -> None:
    assert said(opened(), quiet, AnswerComplete(message_id="msg_1")) == []


def test_a_failing_tool_says_so_and_a_good_one_does_not() -> None:
    dialect = opened()
    good = User(message=UserContent(content=[ToolResult.of("c", "fine", is_error=False)]))
    bad = User(message=UserContent(content=[ToolResult.of("c", "no", is_error=True)]))

    first, second = (line["tool_result"] for line in said(dialect, good, bad))

    assert first == {"type": "tool_result", "tool_use_id": "c", "content": "fine"}
    assert second == {"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        ({"result": "Done!"}, {"subtype": "success", "is_error": False, "result": "Done!"}),
        (
            {"subtype": "error_max_turns", "is_error": True, "errors": ["Reached maximum number of turns (1)"]},
            {"subtype": "error", "is_error": True, "result": "Reached maximum number of turns (1)"},
        ),
        (
            {"subtype": "error_max_budget_usd", "is_error": True, "errors": ["spent"]},
            {"subtype": "error", "is_error": True, "result": "spent"},
        ),
        (
            {"is_error": True, "result": "API Error: 500 no"},
            {"subtype": "error", "is_error": True, "result": "API Error: 500 no"},
        ),
        (
            {
                "subtype": "error_during_execution",
                "is_error": True,
                "terminal_reason": "aborted_tools",
                "errors": ["The turn was interrupted."],
            },
            {"subtype": "cancelled", "is_error": False},
        ),
    ],
)
def test_a_turn_ends_in_one_of_three_ways(ended: Json, expected: Json) -> None:
    (line,) = said(opened(), result(**ended))

    assert line == {"type": "result", "duration_ms": 5, "num_turns": 0, "session_id": "own", **expected}


def test_a_result_counts_tool_results_and_the_turn_has_its_own_count() -> None:
    dialect = opened()

    lines = said(dialect, tool_output("a"), tool_output("b"), result(), result())

    assert [line["num_turns"] for line in lines if line["type"] == "result"] == [2, 0]


def test_the_clients_own_session_id_comes_back_in_queued_and_result() -> None:
    dialect = opened()
    heard(dialect, prompt(session_id="s1"), prompt(session_id="s2"), prompt())
    waiting = [Queued(position=1, user_message_uuid="u2"), Queued(position=2, user_message_uuid="u3")]

    assert [line["session_id"] for line in said(dialect, *waiting)] == ["s2", "own"]
    assert [line["session_id"] for line in said(dialect, result(user_message_uuids=["u1"]))] == ["s1"]
    assert [line["session_id"] for line in said(dialect, result())] == ["own"]


def test_a_queued_prompt_that_is_never_run_is_reported() -> None:
    dialect = opened()
    heard(dialect, prompt(), prompt(), prompt())
    said(dialect, life("u1", "queued"), life("u1", "started"))
    said(dialect, Queued(position=1, user_message_uuid="u2"), Queued(position=2, user_message_uuid="u3"))

    assert [line["message"] for line in said(dialect, life("u3", "cancelled"), life("u2", "cancelled"))] == [
        "The queued message at position 2 was cancelled: it did not run",
        "The queued message at position 1 was cancelled: it did not run",
    ]
    assert said(dialect, result(user_message_uuids=["u1"]))[0]["type"] == "result"
    assert said(dialect, life("u1", "cancelled")) == []


def test_a_prompt_that_is_refused_has_a_result_under_the_clients_own_session_id() -> None:
    dialect = opened()
    bad = {"type": "user", "message": {"role": "user", "content": 5}, "session_id": "s1"}
    [refused] = heard(dialect, bad)

    assert isinstance(refused, Refused)
    answer = result(user_message_uuids=[refused.uuid])
    assert [line["session_id"] for line in said(dialect, answer)] == ["s1"]
    assert [line["session_id"] for line in said(dialect, answer)] == ["own"], "it is over with its result"


def test_soft_errors_are_reported_as_text() -> None:
    retry = ApiRetry(attempt=1, max_retries=8, retry_delay_ms=1500, error_status=529, error="overloaded")
    failed = answer(Text.of("API Error: 500 no"), is_api_error_message=True)

    lines = said(opened(), SystemFault(message="a"), retry, Informational(content="b", level="warning"), failed)

    assert {line["subtype"] for line in lines} == {"error"}
    assert [line["message"] for line in lines] == [
        "a",
        "The model call failed (overloaded); attempt 1 of 8 follows in 1.5 s",
        "b",
        "API Error: 500 no",
    ]


def test_the_memory_reports_what_it_did() -> None:
    lines = said(
        opened(),
        Consolidation(entries_created=2, entries_updated=1),
        Consolidation(entries_created=0, entries_updated=0, entries_archived=3, summary="tidied"),
        Injected(message_count=2, content_length=150),
    )

    assert lines == [
        {"type": "system", "subtype": "consolidation", "entries_created": 2, "entries_updated": 1},
        {
            "type": "system",
            "subtype": "consolidation",
            "entries_created": 0,
            "entries_updated": 0,
            "entries_archived": 3,
            "summary": "tidied",
        },
        {"type": "system", "subtype": "injected", "message_count": 2, "content_length": 150},
    ]
