"""Decoding and encoding messages. An invalid line is refused, never raised."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.protocol.base import (
    NESTING_CAP,
    UNSET,
    Message,
    Refused,
    Unknown,
    catalogue,
    decode,
    encode,
    encode_json,
    is_too_deep,
    replace_lone_surrogates,
)
from parley.protocol.messages.control import ControlCancelRequest, ControlRequest
from parley.protocol.messages.conversation import Assistant, User, UserContent
from parley.protocol.messages.notices import KeepAlive, TranscriptMirror
from parley.protocol.messages.occasional import LocalCommandOutput
from parley.protocol.messages.requests import Interrupt, SetModel
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import Status
from tests.helpers.golden import LINES, Sample, canonical, each

NOT_JSON = [
    b"hello",
    b"{",
    b'{"type":"keep_alive"',
    b'{"type":"keep_alive"} {"type":"keep_alive"}',
    b"{'type':'keep_alive'}",
    b'{"type":"keep_alive",}',
    b'{"type":"keep_alive","tab":"\t"}',
    b'{"type":"keep_alive","n":NaN}',
    b'{"type":"keep_alive","n":Infinity}',
    b'{"type":"keep_alive","n":-Infinity}',
    b'{"type":"keep_alive","n":01}',
    b'{"type":"telepathy","n":NaN}',
    b'{"type":"telepathy","x":"\\q"}',
]


def test_a_message_made_here_has_no_line() -> None:
    assert KeepAlive().line is None
    assert encode(KeepAlive()) == b'{"type":"keep_alive"}'


def test_a_decoded_message_gives_back_its_own_line() -> None:
    line = b'{ "type" : "keep_alive", "since": 1.50 }'
    message = decode(line)

    assert message == KeepAlive()
    assert encode(message) == line


def test_spelling_a_decoded_message_leaves_out_what_we_do_not_know() -> None:
    assert encode_json(decode(b'{"type":"keep_alive","since":1.5}')) == b'{"type":"keep_alive"}'


def test_an_absent_field_is_unset_and_null_is_none() -> None:
    assert decode(b'{"type":"system","subtype":"status"}') == Status(status=UNSET)
    assert decode(b'{"type":"system","subtype":"status","status":null}') == Status(status=None)
    assert encode_json(Status()) == b'{"type":"system","subtype":"status"}'
    assert encode_json(Status(status=None)) == b'{"type":"system","subtype":"status","status":null}'


def test_a_whole_number_stays_whole() -> None:
    assert encode_json(decode(b'{"type":"result","subtype":"success","duration_ms":5}')) == (
        b'{"type":"result","subtype":"success","duration_ms":5}'
    )
    assert encode_json(Result(subtype="success", duration_ms=5.0)) == (
        b'{"type":"result","subtype":"success","duration_ms":5.0}'
    )


def test_the_last_of_two_equal_keys_counts() -> None:
    line = b'{"type":"control_cancel_request","request_id":"r1","request_id":"r2"}'

    assert decode(line) == ControlCancelRequest(request_id="r2")


def test_a_line_of_two_types_is_refused() -> None:
    assert decode(b'{"type":"user","type":"keep_alive"}') == Refused(
        reason="keep_alive: Invalid value 'user' - at `$.type`", kind="keep_alive"
    )


def test_whitespace_inside_a_line_means_nothing() -> None:
    assert decode(b' {\t"type" : "keep_alive" }\r') == KeepAlive()


@pytest.mark.parametrize("line", NOT_JSON)
def test_what_is_not_json_is_refused(line: bytes) -> None:
    refused = decode(line)

    assert isinstance(refused, Refused)
    assert refused.reason.startswith("the line is not JSON: ")
    assert (refused.kind, refused.request_id, refused.line) == (None, None, None)


@pytest.mark.parametrize("line", [b"null", b"5", b"1.5", b"true", b'"text"', b"[]", b'[{"type":"keep_alive"}]'])
def test_a_json_value_that_is_not_an_object_is_refused(line: bytes) -> None:
    assert decode(line) == Refused(reason="a line must be a JSON object")


@pytest.mark.parametrize("line", [b"{}", b'{"subtype":"init"}', b'{"Type":"user"}'])
def test_an_object_without_a_type_is_refused(line: bytes) -> None:
    assert decode(line) == Refused(reason="the line has no `type`")


@pytest.mark.parametrize("value", [b"null", b"5", b"true", b"[]", b"{}"])
def test_a_type_that_is_not_a_string_is_refused(value: bytes) -> None:
    assert decode(b'{"type":' + value + b"}") == Refused(reason="`type` must be a string")


def test_a_known_kind_with_a_wrong_field_is_refused_and_says_where() -> None:
    named = decode(b'{"type":"user","message":{"role":"user","content":5},"uuid":"u1","session_id":"s1"}')
    assert isinstance(named, Refused)
    assert (named.uuid, named.session_id) == ("u1", "s1")
    assert decode(b'{"type":"user","message":{"role":"user","content":5}}') == Refused(
        reason="user: Expected `str | array`, got `int` - at `$.message.content`", kind="user"
    )


def test_a_known_kind_with_a_missing_field_is_refused() -> None:
    assert decode(b'{"type":"conversation_reset"}') == Refused(
        reason="conversation_reset: Object missing required field `new_conversation_id`", kind="conversation_reset"
    )


def test_a_user_line_with_the_wrong_role_is_refused() -> None:
    assert decode(b'{"type":"user","message":{"role":"system","content":"hi"}}') == Refused(
        reason="user: Invalid enum value 'system' - at `$.message.role`", kind="user"
    )


def test_a_block_with_a_missing_field_refuses_its_message() -> None:
    assert decode(b'{"type":"user","message":{"role":"user","content":[{"type":"text"}]}}') == Refused(
        reason="user: a `text` block needs `text`", kind="user"
    )


@pytest.mark.parametrize(("spelled", "asked"), [(b'"r1"', "r1"), (b"7", 7)])
def test_a_wrong_control_request_is_refused_under_its_id(spelled: bytes, asked: str | int) -> None:
    line = b'{"type":"control_request","request_id":' + spelled + b',"request":{"subtype":"set_model","model":5}}'

    assert decode(line) == Refused(
        reason="control_request: Expected `str | null`, got `int` - at `$.model`",
        kind="control_request",
        request_id=asked,
    )


@pytest.mark.parametrize("id", [b"", b'"request_id":null,', b'"request_id":true,', b'"request_id":1.5,'])
def test_a_control_request_without_a_usable_id_is_refused_under_none(id: bytes) -> None:
    refused = decode(b'{"type":"control_request",' + id + b'"request":{"subtype":"interrupt"}}')

    assert isinstance(refused, Refused)
    assert (refused.kind, refused.request_id) == ("control_request", None)


def test_a_numeric_request_id_stays_a_number() -> None:
    message = decode(b'{"type":"control_request","request_id":7,"request":{"subtype":"interrupt"}}')

    assert message == ControlRequest(request_id=7, request=Interrupt())


def test_no_one_waits_for_an_answer_to_a_refused_line_that_asks_nothing() -> None:
    """An assistant line has a `request_id` too, that of the model API."""
    refused = decode(b'{"type":"assistant","request_id":"req_01","message":5}')

    assert isinstance(refused, Refused)
    assert (refused.kind, refused.request_id) == ("assistant", None)


@pytest.mark.parametrize("payload", [b"null", b"[]", b'"interrupt"', b"{}", b'{"subtype":5}'])
def test_a_control_request_must_say_what_it_asks(payload: bytes) -> None:
    refused = decode(b'{"type":"control_request","request_id":"r1","request":' + payload + b"}")

    assert isinstance(refused, Refused)
    assert (refused.kind, refused.request_id) == ("control_request", "r1")


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"system","subtype":"local_command_output","content":"\xff"}',
        b'{"type":"keep_alive","unknown":"\xff"}',
        b'{"type":"telepathy","unknown":"\xff"}',
        b'{"type":"stream_event","event":{"text":"\xff"}}',
        b'{"type":"keep_alive","half a character":"\xed\xa0\x80"}',
    ],
)
def test_a_line_that_is_not_utf8_is_refused_wherever_the_error_is(line: bytes) -> None:
    refused = decode(line)

    assert isinstance(refused, Refused)
    assert refused.reason.startswith("the line is not UTF-8: ")


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (rb"a\ud800b", "a\ufffdb"),
        (rb"\uDBFF", "\ufffd"),
        (rb"\udc00\ud800", "\ufffd\ufffd"),
        (rb"\ud83d\ude00 \ud83d", "\U0001f600 \ufffd"),
        (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\\ud800 \ud800", "\\ud800 \ufffd"),
        (rb"\ud83d\\ude00", "\ufffd\\ude00"),
    ],
)
def test_half_a_character_becomes_the_replacement_character(sent: bytes, read: str) -> None:
    message = decode(b'{"type":"system","subtype":"local_command_output","content":"' + sent + b'"}')

    assert message == LocalCommandOutput(content=read)


def test_a_mended_message_is_passed_on_mended() -> None:
    assert encode(decode(rb'{"type":"keep_alive","unknown":"\ud800"}')) == rb'{"type":"keep_alive","unknown":"\ufffd"}'


def test_there_is_nothing_to_mend_in_whole_characters() -> None:
    assert replace_lone_surrogates(rb'{"text":"\ud83d\ude00 \\ud800 \n"}') is None


def test_separators_that_some_readers_split_at_are_escaped() -> None:
    message = LocalCommandOutput(content="a\u2028b\u2029c")

    assert encode_json(message) == rb'{"type":"system","subtype":"local_command_output","content":"a\u2028b\u2029c"}'
    assert decode(encode_json(message)) == message


def nested(depth: int) -> bytes:
    """A line of this depth: its object, the array `entries` and what is inside."""
    return b'{"type":"transcript_mirror","filePath":"f","entries":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_a_line_may_nest_up_to_the_cap() -> None:
    assert isinstance(decode(nested(NESTING_CAP).replace(b"mirror", b"echo")), Unknown)
    assert decode(nested(2)) == TranscriptMirror(filePath="f", entries=[])


@pytest.mark.parametrize("depth", [NESTING_CAP + 1, 100_000])
def test_a_line_nested_deeper_than_the_cap_is_refused(depth: int) -> None:
    assert decode(nested(depth)) == Refused(reason="the line is nested deeper than 256 levels")


def test_brackets_in_strings_and_side_by_side_are_not_nesting() -> None:
    assert not is_too_deep(b'{"text":"' + b"[" * 1000 + rb"\"" + b"{" * 1000 + b'"}')
    assert not is_too_deep(b"[" + b"[]," * 1000 + b"[]]")


def test_a_line_of_unclosed_strings_is_judged_in_linear_time() -> None:
    """Retrying at each quote would take hours, and this test would not end."""
    line = b"{" * (NESTING_CAP + 1) + rb"\"" * 1_000_000

    assert decode(line) == Refused(reason="the line is nested deeper than 256 levels")


def test_a_number_too_large_for_anybody_is_refused_not_rounded() -> None:
    assert isinstance(decode(b'{"type":"error","error":{"n":1e999}}'), Refused)
    assert isinstance(decode(b'{"type":"error","error":{"n":' + b"9" * 5000 + b"}}"), Refused)


def test_a_number_over_64_bits_comes_back_as_it_was() -> None:
    line = b'{"type":"error","error":{"n":123456789012345678901234567890}}'

    assert encode_json(decode(line)) == line


def test_messages_are_equal_by_what_they_say_not_by_their_line() -> None:
    assert decode(b'{"type":"keep_alive"}') == decode(b'{"type":"keep_alive","since":1}') == KeepAlive()
    assert decode(b'{"type":"keep_alive"}') != ControlCancelRequest(request_id="r1")


def test_the_catalogue_is_filed_by_type_and_subtype() -> None:
    assert catalogue()["user", None] is User
    assert catalogue()["system", "status"] is Status


def test_a_caller_cannot_change_the_catalogue() -> None:
    catalogue().clear()

    assert decode(b'{"type":"keep_alive"}') == KeepAlive()


def test_a_struct_is_frozen() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        KeepAlive().line = b""  # type: ignore[misc]  # that is the point
    with pytest.raises(AttributeError, match="immutable"):
        User(message=UserContent(content="hi")).session_id = "s"  # type: ignore[misc]  # that is the point


def test_set_model_distinguishes_null_from_absent() -> None:
    ask = b'{"type":"control_request","request_id":"r1","request":{"subtype":"set_model"%s}}'

    assert decode(ask % b"") == ControlRequest(request_id="r1", request=SetModel())
    assert decode(ask % b',"model":null') == ControlRequest(request_id="r1", request=SetModel(model=None))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.sampled_from(["type", "subtype", "request_id", "message", "jsonrpc"]) | st.text(), JSON)


@settings(deadline=None)
@given(OBJECTS.map(lambda json: Sample("", json)))
def test_any_object_is_decoded_and_what_is_not_refused_comes_back(sample: Sample) -> None:
    message = decode(sample.line)

    assert isinstance(message, Message)
    if not isinstance(message, Refused):
        assert canonical(json.loads(encode(message))) == canonical(sample.json)


@settings(deadline=None)
@given(OBJECTS, st.sampled_from(LINES))
def test_a_golden_line_with_any_other_fields_is_decoded(fields: dict[str, Any], sample: Sample) -> None:
    assert isinstance(decode(encode_json({**sample.json, **fields})), Message)


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_are_decoded(line: bytes) -> None:
    assert isinstance(decode(line), Message)


@st.composite
def altered(draw: st.DrawFn) -> Message:
    """A message derived from a golden one: some optional fields dropped, some texts and numbers changed."""
    message = decode(draw(st.sampled_from(LINES)).line)
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(type(message)):
        said = getattr(message, field.name)
        if field.default is UNSET and draw(st.booleans()):
            changes[field.name] = UNSET
        elif isinstance(said, str) and field.name != "subtype" and field.name != "jsonrpc":
            changes[field.name] = draw(st.text(st.characters(codec="utf-8"), max_size=20))
        elif type(said) is int:
            changes[field.name] = draw(st.integers(0, 2**63))
    return msgspec.structs.replace(message, **changes)


@settings(deadline=None)
@given(altered())
def test_a_message_made_here_comes_back_from_its_line(message: Message) -> None:
    assert message.line is None
    assert decode(encode(message)) == message


@each(LINES)
def test_a_golden_message_comes_back_from_its_spelling(sample: Sample) -> None:
    message = decode(sample.line)

    assert decode(encode_json(message)) == message


def test_an_assistant_line_without_a_model_is_read() -> None:
    """The spec001 dialect leaves it out."""
    assert isinstance(decode(b'{"type":"assistant","message":{"role":"assistant","content":[]}}'), Assistant)
