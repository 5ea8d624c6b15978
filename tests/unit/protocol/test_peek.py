"""`peek` reads the head of a line, and no end depends on the order of the keys."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.protocol import base
from parley.protocol.base import Role, decode, to_builtins
from parley.protocol.connection import Connection
from parley.protocol.dialects.base import StreamJson
from parley.protocol.messages.conversation import StreamEvent
from parley.protocol.peek import NOTHING, Head, HeadPart, peek
from parley.sdk.launch.network import NetworkWire
from parley.sdk.runtime.message_parser import parse_message
from tests.helpers import paths
from tests.helpers.golden import LINES, write_otherwise

TAPES = sorted((paths.DATA / "streams").glob("*.ndjson"))
CORPUS: list[dict[str, Any]] = [
    *(sample.json for sample in LINES),
    *(json.loads(line) for tape in TAPES for line in tape.read_text(encoding="utf-8").splitlines()),
]
lines = st.sampled_from(CORPUS)
orders = st.integers(0, 2**32).map(random.Random)


def compact(line: Any) -> bytes:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()


@given(lines, orders)
def test_the_head_is_the_same_in_any_order(line: dict[str, Any], order: random.Random) -> None:
    head = peek(write_otherwise(line, order))

    assert head == peek(compact(line))
    assert (head.type, head.uuid) == (line.get("type"), line.get("uuid"))


@given(lines, orders, st.sampled_from(Role))
def test_a_line_is_the_same_message_in_any_order(line: dict[str, Any], order: random.Random, role: Role) -> None:
    first, second = Connection(role, StreamJson()), Connection(role, StreamJson())
    for each in (first, second):
        each.our_requests.update(["r1", line.get("response", {}).get("request_id", "r1")])

    expected = first.receive(compact(line) + b"\n")
    found = second.receive(write_otherwise(line, order) + b"\n")

    assert list(map(comparable, found)) == list(map(comparable, expected))
    assert second.our_requests == first.our_requests
    assert second.peer_requests == first.peer_requests


def comparable(message: base.Message) -> Any:
    if isinstance(message, StreamEvent):
        event = msgspec.json.decode(message.event)
        return event, to_builtins(msgspec.structs.replace(message, event=msgspec.UNSET))
    return type(message), to_builtins(message)


@given(lines, orders)
def test_the_sdk_makes_the_same_message_in_any_order(line: dict[str, Any], order: random.Random) -> None:
    expected, found = parse_message(decode(compact(line))), parse_message(decode(write_otherwise(line, order)))

    assert found == expected
    assert found.raw == expected.raw


@given(lines, orders)
def test_a_client_of_a_gateway_takes_a_line_in_any_order(line: dict[str, Any], order: random.Random) -> None:
    create = ("/v1/sessions", dict[str, Any]())
    wires = [NetworkWire("ws://localhost", None, "s1", create, partial=True) for _ in range(2)]
    written = [compact(line), write_otherwise(line, order)]

    if line.get("type") == "control_response" and "request_id" not in line["response"]:
        for wire, text in zip(wires, written, strict=True):
            with pytest.raises(ValueError, match="without the id"):
                wire._take(f"5\t{text.decode()}")
        return

    taken = [wire._take(f"5\t{text.decode()}") for wire, text in zip(wires, written, strict=True)]

    assert [text is None for text in taken] == [line.get("type") == "gateway"] * 2


def test_the_parts_of_an_exchange_are_read() -> None:
    request = {"request": {"input": {"subtype": "x"}, "subtype": "can_use_tool"}, "request_id": 5}

    assert peek(compact(request)) == Head(request_id=5, request=HeadPart(subtype="can_use_tool"))
    assert peek(b'{"response":{"request_id":"r1"}}').response.request_id == "r1"
    assert peek(b'{"response":[]}').response is NOTHING


def test_a_field_of_a_wrong_type_is_absent() -> None:
    line = b'{"type":5,"subtype":null,"uuid":"u1","request":{"subtype":[],"request_id":"r1"},"request_id":true}'

    assert peek(line) == Head(uuid="u1", request=HeadPart(request_id="r1"))


def test_of_repeated_keys_the_last_one_counts() -> None:
    line = b'{"type":"user","type":"keep_alive"}'

    assert peek(line).type == "keep_alive"
    assert isinstance(decode(line), base.Refused)


@pytest.mark.parametrize("line", [b"", b"[]", b"5", b'{"type":', b'{"type":"\xff"}', b'{"a":' * 100_000])
def test_what_is_not_an_object_is_an_error(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        peek(line)
