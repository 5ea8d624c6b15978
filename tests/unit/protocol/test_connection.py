"""Two connected ends: valid messages arrive, invalid ones are refused on either side."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.errors import LocalProtocolError
from parley.protocol.base import Message, Refused, Role, Unknown, encode_json
from parley.protocol.blocks import Text
from parley.protocol.connection import Connection
from parley.protocol.dialects.base import StreamJson
from parley.protocol.messages.control import (
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    Failure,
    RequestId,
    Success,
    UpdateEnvironment,
)
from parley.protocol.messages.conversation import Assistant, AssistantContent, User, UserContent
from parley.protocol.messages.notices import KeepAlive
from parley.protocol.messages.requests import CanUseTool, Initialize, Interrupt, McpMessage, UnknownRequest
from parley.protocol.messages.result import Result
from tests.helpers.golden import LINES, Sample

PROMPT = User(message=UserContent(content="Hello"))
ANSWER = Assistant(message=AssistantContent(content=[Text.of("Hi")]))


def pair(cap_bytes: int = 1_000_000) -> tuple[Connection, Connection]:
    """A host and an engine."""
    return Connection(Role.HOST, StreamJson(), cap_bytes), Connection(Role.ENGINE, StreamJson(), cap_bytes)


def may_i(id: RequestId, tool: str = "Bash") -> ControlRequest:
    return ControlRequest(request_id=id, request=CanUseTool(tool_name=tool, input={"command": "ls"}))


def stop(id: RequestId) -> ControlRequest:
    return ControlRequest(request_id=id, request=Interrupt())


def yes(id: RequestId) -> ControlResponse:
    return ControlResponse(response=Success(request_id=id, response={"behavior": "allow"}))


def no(id: RequestId) -> ControlResponse:
    return ControlResponse(response=Failure(request_id=id, error="no"))


def test_a_conversation_arrives_unchanged() -> None:
    host, engine = pair()

    assert engine.receive(host.send(PROMPT)) == [PROMPT]
    assert host.receive(engine.send(ANSWER)) == [ANSWER]
    assert host.receive(engine.send(Result(subtype="success"))) == [Result(subtype="success")]
    assert engine.receive(host.send(KeepAlive())) == [KeepAlive()]
    assert host.receive(engine.send(KeepAlive())) == [KeepAlive()]


def test_a_message_is_one_line() -> None:
    host, _ = pair()

    assert host.send(User(message=UserContent(content="a\nb\u2028c"))) == (
        b'{"type":"user","message":{"role":"user","content":"a\\nb\\u2028c"}}\n'
    )


def test_several_messages_may_arrive_at_once() -> None:
    host, engine = pair()

    assert host.receive(engine.send(ANSWER) + engine.send(KeepAlive()) + engine.send(ANSWER)[:10]) == [
        ANSWER,
        KeepAlive(),
    ]


def test_the_last_line_is_read_when_the_peer_hangs_up() -> None:
    host, engine = pair()

    assert engine.receive(host.send(PROMPT).removesuffix(b"\n")) == []
    assert engine.end() == [PROMPT]
    assert engine.end() == []


def test_a_cut_last_line_is_refused_when_the_peer_hangs_up() -> None:
    host, engine = pair()
    engine.receive(host.send(PROMPT)[:-5])
    [refused] = engine.end()

    assert isinstance(refused, Refused)
    assert refused.reason.startswith("the line is not JSON: ")


def test_a_question_is_answered() -> None:
    host, engine = pair()

    assert host.receive(engine.send(may_i("r1"))) == [may_i("r1")]
    assert engine.receive(host.send(yes("r1"))) == [yes("r1")]
    assert engine.receive(host.send(stop("r1"))) == [stop("r1")]
    assert host.receive(engine.send(no("r1"))) == [no("r1")]


def test_both_ends_may_use_the_same_id_at_once() -> None:
    host, engine = pair()
    host.receive(engine.send(may_i("r1")))
    engine.receive(host.send(stop("r1")))

    assert host.receive(engine.send(yes("r1"))) == [yes("r1")]
    assert engine.receive(host.send(no("r1"))) == [no("r1")]


def test_open_questions_are_visible() -> None:
    host, engine = pair()
    host.receive(engine.send(may_i("r1")) + engine.send(may_i("r2")))

    assert engine.our_requests == host.peer_requests == {"r1", "r2"}

    engine.receive(host.send(yes("r2")))

    assert engine.our_requests == host.peer_requests == {"r1"}


def test_answers_may_come_in_any_order() -> None:
    host, engine = pair()
    host.receive(engine.send(may_i("r1")) + engine.send(may_i("r2")))

    assert engine.receive(host.send(yes("r2")) + host.send(no("r1"))) == [yes("r2"), no("r1")]


def test_an_answer_no_one_asked_for_is_refused() -> None:
    host, engine = pair()
    host.receive(engine.send(may_i("r1")) + engine.send(may_i("r2")))

    assert engine.receive(encode_json(yes("r3")) + b"\n") == [
        Refused(reason="response to unknown request 'r3' (pending requests: ['r1', 'r2'])", kind="control_response")
    ]


def test_an_answer_without_an_id_is_refused() -> None:
    host, _ = pair()
    [refused] = host.receive(b'{"type":"control_response","response":{"subtype":"success"}}\n')

    assert isinstance(refused, Refused)
    assert refused.kind == "control_response"


def test_an_answer_no_one_asked_for_is_not_sent() -> None:
    host, _ = pair()

    with pytest.raises(LocalProtocolError, match="there is no unanswered request 'r1' of the peer"):
        host.send(yes("r1"))


def test_a_second_answer_to_one_request_is_refused() -> None:
    host, engine = pair()
    host.receive(engine.send(may_i("r1")))
    answer = host.send(yes("r1"))

    assert engine.receive(answer + answer) == [
        yes("r1"),
        Refused(reason="response to unknown request 'r1' (pending requests: [])", kind="control_response"),
    ]


def test_a_second_answer_to_one_request_is_not_sent() -> None:
    host, engine = pair()
    host.receive(engine.send(may_i("r1")))
    engine.receive(host.send(yes("r1")))

    with pytest.raises(LocalProtocolError):
        host.send(no("r1"))


def test_the_id_of_an_open_request_is_not_used_again() -> None:
    host, engine = pair()
    host.receive(engine.send(may_i("r1")))

    with pytest.raises(LocalProtocolError, match="request id 'r1' is already used by an unanswered request"):
        engine.send(may_i("r1"))


def test_a_second_request_under_an_open_id_is_refused_and_the_first_stays_open() -> None:
    host, engine = pair()
    question = engine.send(may_i("r1"))

    assert host.receive(question + question) == [
        may_i("r1"),
        Refused(reason="request id 'r1' is already used by an unanswered request", kind="control_request"),
    ]
    assert engine.receive(host.send(yes("r1"))) == [yes("r1")]


def test_the_id_of_an_answered_request_may_be_used_again() -> None:
    host, engine = pair()
    host.receive(engine.send(may_i("r1")))
    engine.receive(host.send(yes("r1")))

    assert host.receive(engine.send(may_i("r1", tool="Edit"))) == [may_i("r1", tool="Edit")]


def test_a_numeric_id_is_answered_with_a_number() -> None:
    host, engine = pair()
    host.receive(engine.send(may_i(7)))

    with pytest.raises(LocalProtocolError):
        host.send(yes("7"))
    assert engine.receive(host.send(yes(7))) == [yes(7)]


def test_a_withdrawn_question_is_not_answered() -> None:
    host, engine = pair()
    withdrawal = ControlCancelRequest(request_id="r1")
    host.receive(engine.send(may_i("r1")))

    assert host.receive(engine.send(withdrawal)) == [withdrawal]
    with pytest.raises(LocalProtocolError):
        host.send(yes("r1"))


def test_an_answer_that_crosses_a_withdrawal_is_refused() -> None:
    host, engine = pair()
    host.receive(engine.send(may_i("r1")))
    answer = host.send(yes("r1"))
    engine.send(ControlCancelRequest(request_id="r1"))
    [refused] = engine.receive(answer)

    assert isinstance(refused, Refused)
    assert refused.kind == "control_response"


def test_the_id_of_a_withdrawn_request_may_be_used_again() -> None:
    host, engine = pair()
    host.receive(engine.send(may_i("r1")) + engine.send(ControlCancelRequest(request_id="r1")))

    assert host.receive(engine.send(may_i("r1"))) == [may_i("r1")]


def test_a_withdrawal_of_nothing_changes_nothing() -> None:
    host, engine = pair()
    withdrawal = ControlCancelRequest(request_id="r9")

    assert engine.receive(host.send(withdrawal)) == [withdrawal]


@pytest.mark.parametrize("message", [ANSWER, Result(subtype="success")])
def test_the_host_does_not_say_what_is_the_engines_to_say(message: Message) -> None:
    host, engine = pair()
    name = type(message).__name__

    with pytest.raises(LocalProtocolError, match=f"the host must not send {name}"):
        host.send(message)
    assert engine.receive(encode_json(message) + b"\n") == [
        Refused(reason=f"the host must not send {name}", kind=name.lower())
    ]


def test_the_engine_does_not_say_what_is_the_hosts_to_say() -> None:
    host, engine = pair()
    message = UpdateEnvironment(variables={"LANG": "C"})

    with pytest.raises(LocalProtocolError, match="the engine must not send UpdateEnvironment"):
        engine.send(message)
    assert host.receive(encode_json(message) + b"\n") == [
        Refused(reason="the engine must not send UpdateEnvironment", kind="updateenvironment")
    ]


def test_a_question_the_peer_may_not_ask_is_refused_with_an_answer() -> None:
    host, engine = pair()
    question = ControlRequest(request_id="r1", request=Initialize())

    assert host.receive(encode_json(question) + b"\n") == [
        Refused(reason="the engine must not send the request initialize", kind="control_request", request_id="r1")
    ]
    assert host.send(no("r1")) == encode_json(no("r1")) + b"\n"
    with pytest.raises(LocalProtocolError, match="the engine must not send ControlRequest"):
        engine.send(question)


def test_a_question_that_is_not_sent_is_not_open() -> None:
    host, engine = pair()
    with pytest.raises(LocalProtocolError):
        engine.send(stop("r1"))

    assert host.receive(engine.send(may_i("r1"))) == [may_i("r1")]


def test_both_ends_may_carry_mcp_messages() -> None:
    host, engine = pair()
    carried = ControlRequest(request_id="r1", request=McpMessage(server_name="calc", message={"jsonrpc": "2.0"}))

    assert host.receive(engine.send(carried)) == [carried]
    assert engine.receive(host.send(carried)) == [carried]


def test_a_question_we_do_not_know_is_open_until_it_is_answered() -> None:
    host, engine = pair()
    question = ControlRequest(request_id="r1", request=UnknownRequest({"subtype": "telepathy"}))

    assert engine.receive(host.send(question)) == [question]
    assert host.receive(engine.send(no("r1"))) == [no("r1")]


@pytest.mark.parametrize("id", ["r1", 7])
def test_a_malformed_question_can_be_answered_with_an_error(id: RequestId) -> None:
    host, engine = pair()
    host.send(stop(id))
    [refused] = engine.receive(encode_json({"type": "control_request", "request_id": id, "request": 5}) + b"\n")

    assert isinstance(refused, Refused)
    assert refused.request_id == id
    assert host.receive(engine.send(no(id))) == [no(id)]


def test_a_question_without_an_id_is_refused_and_cannot_be_answered() -> None:
    _, engine = pair()

    assert engine.receive(b'{"type":"control_request","request":{"subtype":"interrupt"}}\n') == [
        Refused(reason="control_request: Object missing required field `request_id`", kind="control_request")
    ]
    assert engine.peer_requests == set()


def test_a_line_of_an_unknown_kind_passes_both_ways() -> None:
    host, engine = pair()
    line = b'{"type":"telepathy","thought":"hm"}\n'
    [message] = engine.receive(line)

    assert message == Unknown(kind="telepathy")
    assert engine.send(message) == host.send(message) == line


def test_a_bad_line_does_not_harm_its_neighbours() -> None:
    host, engine = pair()
    received = engine.receive(host.send(PROMPT) + b"\xff\n\n{]\nnull\n" + host.send(PROMPT))

    assert [type(message) for message in received] == [User, Refused, Refused, Refused, User]


@pytest.mark.parametrize(
    ("start", "kind", "request_id"),
    [
        (b'{"type":"user","message":', "user", None),
        (b' { "uuid" : "a\\"b" , "type" : "user", "message": ', "user", None),
        (b'{"type":"control_request","request_id":"r1","request":', "control_request", "r1"),
        (b'{"request_id": 7, "type": "control_request", "request":', "control_request", 7),
        (b'{"type":"control_request","request_id":true,"request":', "control_request", None),
        (b'{"type":"control_request","request":', "control_request", None),
        (b'{"message":{"type":"user"},"x":', None, None),
        (b'{"type":"keep_alive","why":"\\"type\\":\\"user\\","x":', "keep_alive", None),
        (b'{"\xff":1,"type":"user","x":', None, None),
        (b'"type":"user",', None, None),
    ],
)
def test_an_over_long_line_is_refused_to_whom_its_head_names(
    start: bytes, kind: str | None, request_id: RequestId | None
) -> None:
    _, engine = pair(cap_bytes=100)
    reason = "the line is longer than 100 bytes and was dropped"

    assert engine.receive(start + b'"' + b"x" * 200 + b'"}\n') == [
        Refused(reason=reason, kind=kind, request_id=request_id)
    ]
    if request_id is not None:
        assert request_id in engine.peer_requests


def test_an_over_long_line_is_refused_and_the_next_one_is_read() -> None:
    host, engine = pair(cap_bytes=100)
    long = host.send(User(message=UserContent(content="x" * 1000)))

    assert engine.receive(long + host.send(PROMPT)) == [
        Refused(reason="the line is longer than 100 bytes and was dropped", kind="user"),
        PROMPT,
    ]


@settings(deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=5), st.sampled_from(list(Role)), st.data())
def test_the_messages_do_not_depend_on_how_the_bytes_arrive(
    samples: list[Sample], role: Role, data: st.DataObject
) -> None:
    stream = b"\n".join(sample.line for sample in samples)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    whole, pieces = Connection(role, StreamJson()), Connection(role, StreamJson())
    received: list[Message] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += pieces.receive(stream[begin:end])
    received += pieces.end()

    assert received == whole.receive(stream) + whole.end()
    assert len(received) == len(samples)


def test_a_malformed_request_under_an_open_id_does_not_use_up_the_answer() -> None:
    engine = Connection(Role.ENGINE, StreamJson())
    asked = b'{"type":"control_request","request_id":"r1","request":{"subtype":"interrupt"}}\n'
    malformed = b'{"type":"control_request","request_id":"r1","request":{"subtype":"stop_task"}}\n'
    _, refused = engine.receive(asked + malformed)

    assert isinstance(refused, Refused)
    assert refused.request_id is None
    assert engine.send(ControlResponse(response=Success(request_id="r1"))).startswith(b'{"type":"control_response"')


def test_an_over_long_answer_names_the_question_that_stays_without_one() -> None:
    host, engine = pair(cap_bytes=100)
    engine.receive(host.send(ControlRequest(request_id="r1", request=Interrupt())))
    line = b'{"type":"control_response","response":{"subtype":"success","request_id":"r1","response":"' + b"x" * 200

    [refused] = host.receive(line + b'"}}\n')

    assert isinstance(refused, Refused)
    assert (refused.kind, refused.answers, host.our_requests) == ("control_response", "r1", set())
