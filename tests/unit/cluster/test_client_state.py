"""What another owner of a session is told of a client, and what the client is not told twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.cluster.bridge.messages import ANSWER, LIVE
from parley.cluster.gateway.client_state import ClientState
from parley.gateway.live_session import is_own_uuid


def line(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()


def prompt(text: str, **fields: Any) -> bytes:
    return line("user", message={"role": "user", "content": text}, **fields)


def request(request_id: str, subtype: str = "set_model") -> bytes:
    return line("control_request", request_id=request_id, request={"subtype": subtype})


def response(request_id: str) -> bytes:
    return line("control_response", response={"subtype": "success", "request_id": request_id})


def again(state: ClientState) -> list[bytes]:
    return state.start_again(is_first=False)[0]


def test_a_prompt_is_sent_again_until_its_result_has_come() -> None:
    state = ClientState(0, numbered=False)
    sent = prompt("Hi", uuid="u1")
    assert state.note_sent(sent + b"\n") == sent
    state.note_taken(1)
    assert again(state) == [sent]
    assert state.select([(1, sent), (2, line("assistant"))]) == [(2, line("assistant"))]  # not its own prompt
    result = line("result", user_message_uuids=["u1"])
    assert state.select([(3, result)]) == [(3, result)]
    assert again(state) == []


def test_a_prompt_without_an_id_gets_one_so_that_it_runs_once() -> None:
    state = ClientState(0, numbered=False)
    uuid = json.loads(state.note_sent(prompt("Hi")))["uuid"]
    assert is_own_uuid(uuid)
    assert [json.loads(each)["uuid"] for each in again(state)] == [uuid]


@pytest.mark.parametrize("value", [b"1e999", b'"\xff"', b"[" * 100_000])
def test_a_line_that_cannot_be_decoded_is_passed_on(value: bytes) -> None:
    state = ClientState(0, numbered=False)
    for sent in (
        b'{"type":"user","message":{"role":"user","content":%b}}' % value,
        b'{"type":"control_request","request_id":"r","request":{"subtype":"initialize","v":%b}}' % value,
    ):
        assert state.note_sent(sent) == sent
    assert len(again(state)) == 2


def test_a_cancelled_prompt_is_not_sent_again() -> None:
    state = ClientState(0, numbered=False)
    state.note_sent(prompt("Hi", uuid="u1"))
    state.select([(1, line("command_lifecycle", command_uuid="u1", state="cancelled"))])
    assert again(state) == []


def test_other_lines_are_sent_again_until_they_are_committed() -> None:
    state = ClientState(0, numbered=False)
    answers = [response("q1"), response("q2")]
    for answer in answers:
        state.note_sent(answer)
    state.note_taken(1)
    assert again(state) == answers[1:]
    state.note_taken(1)
    assert again(state) == []


def test_a_request_is_sent_again_until_it_is_answered_and_in_order() -> None:
    state = ClientState(0, numbered=False)
    lines = [request("r1"), prompt("Hi", uuid="u1"), request("r2", "interrupt")]
    for each in lines:
        state.note_sent(each)
    state.note_taken(3)
    assert again(state) == lines
    assert state.select([(ANSWER, response("r1"))]) == [(0, response("r1"))]
    assert again(state) == lines[1:]


def test_initialize_is_repeated_and_its_second_reply_is_not_passed_on() -> None:
    state = ClientState(0, numbered=False)
    state.note_sent(request("i", "initialize"))
    state.select([(ANSWER, response("i"))])
    (repeated,) = again(state)
    request_id = json.loads(repeated)["request_id"]
    assert (json.loads(repeated)["request"]["subtype"], request_id != "i") == ("initialize", True)
    assert state.select([(ANSWER, response(request_id))]) == []


def test_a_question_is_not_asked_twice_and_a_callback_is_withdrawn() -> None:
    state = ClientState(0, numbered=False)
    question, callback = request("q1", "can_use_tool"), request("c1", "hook_callback")
    assert state.select([(1, question), (ANSWER, callback)]) == [(1, question), (0, callback)]
    messages, withdrawn = state.start_again(is_first=False)
    assert messages == []
    assert [json.loads(each) for _, each in withdrawn] == [{"type": "control_cancel_request", "request_id": "c1"}]
    assert state.select([(2, question)]) == []
    assert state.note_sent(response("c1")) == b""  # its engine is gone
    assert state.note_sent(response("q1")) == response("q1")


def test_a_callback_that_the_next_engine_asks_under_the_same_id_is_answered() -> None:
    state = ClientState(0, numbered=False)
    callback = request("c1", "hook_callback")
    for _ in range(3):
        assert state.select([(ANSWER, callback)]) == [(0, callback)]
        assert state.note_sent(response("c1")) == response("c1")
        assert again(state) == []  # an answer before the question would be refused


def test_stored_lines_come_once_and_others_as_they_are() -> None:
    state = ClientState(3, numbered=True)
    event = line("stream_event")
    found = state.select([(3, line("assistant")), (4, line("assistant")), (LIVE, event), (4, line("assistant"))])
    assert (found, state.cursor) == ([(4, line("assistant")), (None, event)], 4)
