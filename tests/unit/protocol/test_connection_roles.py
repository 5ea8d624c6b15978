"""Which end may send which message."""

from __future__ import annotations

import pytest

from parley.protocol.base import Refused, Role, Unknown, decode
from parley.protocol.connection import may_send
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.requests import Request, UnknownRequest, list_requests
from tests.helpers.golden import CATALOGUE, Sample, each

SAID_BY_BOTH = {"user", "control_request", "control_response", "control_cancel_request", "keep_alive", "jsonrpc"}
SAID_BY_THE_HOST = {"control", "update_environment_variables"}
ASKED_BY_THE_ENGINE = {"can_use_tool", "hook_callback", "elicitation", "request_user_dialog", "sdk_control_interrupt"}
ASKED_BY_BOTH = {"mcp_message"}
QUESTIONS = {
    sample.json["request"]["subtype"]: sample for sample in CATALOGUE if sample.json.get("type") == "control_request"
}


@each([sample for sample in CATALOGUE if sample.json.get("type") != "control_request"])
def test_what_is_not_a_question_is_the_engines_to_say_unless_listed(sample: Sample) -> None:
    kind = sample.json.get("type", "jsonrpc")
    message = decode(sample.line)

    assert may_send(Role.ENGINE, message) == (kind not in SAID_BY_THE_HOST)
    assert may_send(Role.HOST, message) == (kind in SAID_BY_BOTH | SAID_BY_THE_HOST)


@pytest.mark.parametrize("subtype", sorted(list_requests()))
def test_a_question_is_the_hosts_to_ask_unless_listed(subtype: str) -> None:
    message = decode(QUESTIONS[subtype].line)

    assert isinstance(message, ControlRequest)
    assert isinstance(message.request, Request)
    assert may_send(Role.ENGINE, message) == (subtype in ASKED_BY_THE_ENGINE | ASKED_BY_BOTH)
    assert may_send(Role.HOST, message) == (subtype not in ASKED_BY_THE_ENGINE)


@pytest.mark.parametrize("role", list(Role))
def test_both_may_say_what_we_do_not_know(role: Role) -> None:
    assert may_send(role, Unknown(kind="telepathy"))
    assert may_send(role, Refused(reason="no JSON"))
    assert may_send(role, ControlRequest(request_id="r1", request=UnknownRequest({"subtype": "telepathy"})))


def test_the_peer_of_the_host_is_the_engine_and_back() -> None:
    assert (Role.HOST.peer, Role.ENGINE.peer) == (Role.ENGINE, Role.HOST)
