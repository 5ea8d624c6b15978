"""Dialect D by itself."""

from __future__ import annotations

from typing import Any

import pytest

from parley.protocol.blocks import Text, ToolResult
from parley.protocol.dialects.jsonrpc import JsonRpcDialect
from parley.protocol.messages.control import ControlRequest, ControlResponse, Success
from parley.protocol.messages.conversation import Assistant, AssistantContent, User, UserContent
from parley.protocol.messages.dialects import (
    AnswerComplete,
    Consolidation,
    Injected,
    Queued,
    SessionOpened,
    SystemFault,
    Withdrawal,
)
from parley.protocol.messages.notices import CommandLifecycle
from parley.protocol.messages.requests import Interrupt
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Init
from tests.helpers.dialect_reading import read_jsonrpc
from tests.helpers.dialects import Json, heard, replies, said, world
from tests.helpers.golden import SEEDS, Sample, each

RPC = [sample for sample in SEEDS if sample.name.startswith("000 JSON-RPC")]
INNER = [sample for sample in RPC if "result" in sample.json]


def opened() -> JsonRpcDialect:
    dialect = JsonRpcDialect(world())
    assert said(dialect, SessionOpened(session_id="own")) == []
    return dialect


def call(method: str, id: Any = 1, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def running(id: Any = "r1") -> JsonRpcDialect:
    dialect = opened()
    heard(dialect, call("run", id, prompt="Hi"))
    said(dialect, CommandLifecycle(command_uuid="u1", state="queued"))
    return dialect


def result(**fields: Any) -> Result:
    return Result(**{"subtype": "success", "is_error": False, "duration_ms": 5, "session_id": "own", **fields})


ENDED = result(user_message_uuids=["u1"], result="Done.")


BY_THE_WAY = Assistant(message=AssistantContent(id="m", model="x", content=[Text.of("By the way.")]))


def beside() -> JsonRpcDialect:
    """The run has ended, and the turn of a background task runs."""
    dialect = running()
    said(dialect, ENDED, Init())
    return dialect


def status(running: bool, **more: Any) -> Json:
    return {"type": "system", "subtype": "status", "running": running, **more, "session_id": "own"}


@each(INNER)
def test_a_response_of_the_document_is_encoded_identically(sample: Sample) -> None:
    line, dialect = sample.json, running("1")
    said(dialect, SessionOpened(session_id="default"))
    output = User(message=UserContent(content=[ToolResult.of("c", "")]))
    said(dialect, *[output] * line["result"].get("num_turns", 0))

    message = read_jsonrpc(sample.line, lambda: "u1")
    if isinstance(message, Result):
        message = result(**{**plain(message), "user_message_uuids": ["u1"]})

    assert said(dialect, message, AnswerComplete(message_id="")) == [line]


def plain(message: Result) -> Json:
    return {"duration_ms": message.duration_ms, "result": message.result}


def test_the_request_of_the_document_is_a_prompt() -> None:
    (sample,) = (sample for sample in RPC if "method" in sample.json)

    (prompt,) = heard(opened(), sample.line)

    assert isinstance(prompt, User)
    assert (prompt.message.content, prompt.session_id, prompt.uuid) == ("Hello", "default", "u1")


def test_a_second_run_is_refused_with_the_id_of_the_first() -> None:
    (sample,) = (sample for sample in RPC if "error" in sample.json)

    (refused,) = replies(heard(running("1"), call("run", 2, prompt="Hi")))

    assert refused["error"].pop("message")
    sample.json["error"].pop("message")
    assert refused == sample.json


def test_the_run_has_the_id_of_its_request_on_every_line_and_the_last_is_the_result() -> None:
    dialect = running()
    answer = Assistant(message=AssistantContent(id="m", model="x", content=[Text.of("Hello.")]))
    output = User(message=UserContent(content=[ToolResult.of("c", "hi")]))

    lines = said(dialect, answer, AnswerComplete(message_id="m"), output, ENDED)

    assert [line["id"] for line in lines] == ["r1", "r1", "r1"]
    assert [line["result"]["type"] for line in lines] == ["assistant", "system", "result"]
    assert lines[-1]["result"]["session_id"] == "own"


def test_the_next_run_may_begin_when_the_result_was_reported() -> None:
    dialect = running()
    said(dialect, ENDED)

    (prompt,) = heard(dialect, call("run", "r2", prompt=[{"type": "text", "text": "Hi"}], session_id="s"))

    assert isinstance(prompt, User)
    assert said(dialect, result(user_message_uuids=[prompt.uuid]))[0]["id"] == "r2"


def test_what_happens_between_runs_has_the_id_of_the_last() -> None:
    dialect = running()
    said(dialect, ENDED)
    answer = Assistant(message=AssistantContent(id="m", model="x", content=[Text.of("By the way.")]))

    assert [line["id"] for line in said(dialect, answer, result())] == ["r1", "r1"]


def test_the_end_of_a_turn_that_no_one_asked_for_does_not_end_the_run() -> None:
    dialect = running()
    said(dialect, ENDED)
    heard(dialect, call("run", "r2", prompt="Hi"))
    said(dialect, CommandLifecycle(command_uuid="u2", state="queued"))

    assert [line["id"] for line in said(dialect, result())] == ["r1"]
    assert replies(heard(dialect, call("status", 9)))[0]["result"]["request_id"] == "r2"


def test_status_names_the_run() -> None:
    idle, busy = opened(), running()

    assert replies(heard(idle, call("status", 7))) == [{"jsonrpc": "2.0", "id": 7, "result": status(False)}]
    assert replies(heard(busy, call("status", 7)))[0]["result"] == status(True, request_id="r1")


def test_a_cancel_withdraws_the_run_and_is_answered_after_the_result_of_the_run() -> None:
    dialect = running()

    (asked,) = heard(dialect, call("cancel", "c1"))
    again = heard(dialect, call("cancel", "c2"))
    quiet = said(dialect, ControlResponse(response=Success(request_id="u2", response={"still_queued": []})))
    lines = said(dialect, result(user_message_uuids=["u1"], terminal_reason="aborted_streaming", is_error=True))

    assert asked == Withdrawal(user_message_uuid="u1")
    assert (again, quiet) == ([], [])
    assert [line["id"] for line in lines] == ["r1", "c1", "c2"]
    assert lines[0]["result"]["subtype"] == "cancelled"
    assert [line["result"] for line in lines[1:]] == [status(False)] * 2


def test_a_turn_that_no_run_asked_for_has_one_id_to_its_end_and_the_run_after_it_none_of_its_lines() -> None:
    dialect = beside()
    heard(dialect, call("run", "r2", prompt="Hi"))
    said(dialect, CommandLifecycle(command_uuid="u2", state="queued"), Queued(position=1, user_message_uuid="u2"))

    aside = said(dialect, BY_THE_WAY, AnswerComplete(message_id="m"), result())
    own = said(
        dialect, CommandLifecycle(command_uuid="u2", state="started"), BY_THE_WAY, AnswerComplete(message_id="m")
    )
    own += said(dialect, result(user_message_uuids=["u2"]))

    assert [line["id"] for line in aside] == ["r1", "r1"]
    assert [line["id"] for line in own] == ["r2", "r2"]


def test_a_turn_that_no_run_asked_for_is_shown_and_can_be_cancelled() -> None:
    dialect = beside()

    (shown,) = replies(heard(dialect, call("status", "s")))
    (asked,) = heard(dialect, call("cancel", "c1"))
    lines = said(dialect, result(terminal_reason="aborted_streaming", is_error=True))

    assert shown["result"] == status(True, request_id="r1")
    assert isinstance(asked, ControlRequest)
    assert isinstance(asked.request, Interrupt)
    assert [(line["id"], line["result"]["subtype"]) for line in lines] == [("r1", "cancelled"), ("c1", "status")]
    assert lines[-1]["result"] == status(False)


def test_a_run_that_was_taken_back_leaves_the_turn_before_it_its_id() -> None:
    dialect = beside()
    heard(dialect, call("run", "r2", prompt="Hi"))
    said(dialect, CommandLifecycle(command_uuid="u2", state="queued"), Queued(position=1, user_message_uuid="u2"))
    heard(dialect, call("cancel", "c1"))

    ended, answered = said(dialect, CommandLifecycle(command_uuid="u2", state="cancelled"))

    assert (ended["id"], ended["error"]["code"]) == ("r2", -32003)
    assert (answered["id"], answered["result"]) == ("c1", status(True, request_id="r1"))
    assert [line["id"] for line in said(dialect, BY_THE_WAY, result())] == ["r1", "r1"]


def test_a_cancel_without_a_run_is_refused() -> None:
    (refused,) = replies(heard(opened(), call("cancel", "c1")))

    assert (refused["id"], refused["error"]["code"]) == ("c1", -32002)


def test_a_run_that_never_began_is_reported_as_cancelled() -> None:
    (line,) = said(running(), CommandLifecycle(command_uuid="u1", state="cancelled"))

    assert (line["id"], line["error"]["code"]) == ("r1", -32003)


@pytest.mark.parametrize(("fault", "code"), [("system_error", -32603), ("validation_error", -32602)])
def test_a_fault_of_the_engine_is_an_internal_error(fault: str, code: int) -> None:
    failed = {"subtype": "error_during_execution", "is_error": True, "errors": ["no"], "fault_type": fault}

    (line,) = said(running(), result(**failed, user_message_uuids=["u1"]))

    assert (line["id"], line["error"]) == ("r1", {"code": code, "message": "no"})


def test_every_other_bad_end_is_a_result() -> None:
    failed = {"subtype": "error_max_turns", "is_error": True, "errors": ["too many"]}

    (line,) = said(running(), result(**failed, user_message_uuids=["u1"]))

    assert (line["id"], line["result"]["subtype"], line["result"]["result"]) == ("r1", "error", "too many")


def test_a_session_that_cannot_be_opened_is_reported_as_wrong_parameters() -> None:
    dialect = JsonRpcDialect(world())
    heard(dialect, call("run", "r1", prompt="Hi"))

    (line,) = said(dialect, result(subtype="error_during_execution", is_error=True, errors=["it is in use"]))

    assert line == {"jsonrpc": "2.0", "id": "r1", "error": {"code": -32602, "message": "it is in use"}}


@pytest.mark.parametrize(
    ("line", "id", "code"),
    [
        (b"{", None, -32700),
        (b"\xff\xff", None, -32700),
        (b"[" * 300 + b"]" * 300, None, -32700),
        (b"[]", None, -32600),
        (b"5", None, -32600),
        (b'{"type":"user"}', None, -32600),
        (b'{"jsonrpc":"1.0","id":3,"method":"run"}', 3, -32600),
        (b'{"jsonrpc":"2.0","method":"run","params":{"prompt":"x"}}', None, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"run"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"run"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":[1],"method":"run"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":3}', 3, -32600),
        (b'{"jsonrpc":"2.0","id":3,"method":5}', 3, -32600),
        (b'{"jsonrpc":"2.0","id":"x","method":"dance"}', "x", -32601),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"run","params":["x"]}', 1.5, -32602),
        (b'{"jsonrpc":"2.0","id":3,"method":"run"}', 3, -32602),
        (b'{"jsonrpc":"2.0","id":3,"method":"run","params":{"prompt":""}}', 3, -32602),
        (b'{"jsonrpc":"2.0","id":3,"method":"run","params":{"prompt":5}}', 3, -32602),
        (b'{"jsonrpc":"2.0","id":3,"method":"run","params":{"prompt":"x","session_id":5}}', 3, -32602),
        (b'{"jsonrpc":"2.0","id":3,"method":"run","params":{"prompt":"x","environment":5}}', 3, -32602),
        (b'{"jsonrpc":"2.0","id":3,"method":"cancel"}', 3, -32002),
    ],
)
def test_bad_input_of_every_kind_has_its_code(line: bytes, id: Any, code: int) -> None:
    (refused,) = replies(heard(opened(), line))

    assert (refused["jsonrpc"], refused["id"], refused["error"]["code"]) == ("2.0", id, code)
    assert refused["error"]["message"]


def test_half_a_character_is_mended() -> None:
    (prompt,) = heard(opened(), b'{"jsonrpc":"2.0","id":1,"method":"run","params":{"prompt":"\\ud800!"}}')

    assert isinstance(prompt, User)
    assert prompt.message.content == "\ufffd!"


def test_a_line_that_was_too_long_is_an_invalid_request() -> None:
    problem = {"type": "validation_error", "message": "too long"}

    lines = said(running(), SystemFault(message="too long", error=problem), SystemFault(message="by the way"))

    assert lines[0] == {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "too long"}}
    assert lines[1]["id"] == "r1"


def test_what_the_memory_did_is_reported_in_the_envelope() -> None:
    frame = {"type": "system", "subtype": "consolidation", "entries_created": 2, "entries_updated": 1}

    (line,) = said(running(), Consolidation(entries_created=2, entries_updated=1))

    assert line == {"jsonrpc": "2.0", "id": "r1", "result": frame}


def test_nothing_is_said_of_a_queue() -> None:
    notes = [Queued(position=1, user_message_uuid="u1"), Injected(message_count=1, content_length=1)]

    assert said(running(), *notes) == []
