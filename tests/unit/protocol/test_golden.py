"""Every message class has a golden line, and every golden line is decoded and encoded without loss."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from parley.protocol import blocks
from parley.protocol.base import UNSET, Struct, Unknown, catalogue, convert, decode, encode, encode_json, to_builtins
from parley.protocol.messages.control import ControlRequest, ControlResponse, Success
from parley.protocol.messages.conversation import Assistant, StreamEvent, User
from parley.protocol.messages.notices import KeepAlive
from parley.protocol.messages.requests import Request, UnknownRequest, list_requests
from tests.helpers.golden import BLOCKS, CATALOGUE, EVENTS, LINES, Sample, canonical, each


def answered(sample: Sample) -> type[Struct] | None:
    """The answer class of a sample, whose name says which request it answers."""
    asked = re.search(r"(\w+) answer", sample.name)
    if asked is None or asked[1] not in list_requests() or "response" not in sample.json["response"]:
        return None
    return list_requests()[asked[1]].answer


REQUESTS = [sample for sample in LINES if sample.json.get("type") == "control_request"]
ANSWERS = [sample for sample in LINES if answered(sample)]


@each(LINES)
def test_a_golden_line_is_a_known_message_and_comes_back_without_loss(sample: Sample) -> None:
    message = decode(sample.line)

    assert type(message) in catalogue().values()
    assert canonical(json.loads(encode_json(message))) == canonical(sample.json)


@each(REQUESTS)
def test_a_golden_request_has_a_known_type(sample: Sample) -> None:
    message = decode(sample.line)

    assert isinstance(message, ControlRequest)
    assert isinstance(message.request, Request)


@each(ANSWERS)
def test_a_golden_answer_has_the_shape_its_question_declares(sample: Sample) -> None:
    shape = answered(sample)
    payload = sample.json["response"]["response"]

    assert shape is not None
    assert canonical(to_builtins(convert(payload, shape))) == canonical(payload)


@each(BLOCKS)
def test_a_golden_block_has_a_known_type_and_keeps_its_object(sample: Sample) -> None:
    block = blocks.read(sample.json)

    assert type(block) in blocks.KINDS.values()
    assert canonical(block.json) == canonical(sample.json)


@each(EVENTS)
def test_a_golden_event_passes_through_a_stream_event_byte_for_byte(sample: Sample) -> None:
    message = decode(encode_json(StreamEvent(event=msgspec.Raw(sample.line))))

    assert isinstance(message, StreamEvent)
    assert bytes(message.event) == sample.line


def test_every_message_of_the_catalogue_has_a_golden_line() -> None:
    assert {type(decode(sample.line)) for sample in CATALOGUE} == set(catalogue().values())


def test_every_control_request_has_a_golden_line() -> None:
    assert {sample.json["request"]["subtype"] for sample in REQUESTS} == set(list_requests())


def test_every_declared_answer_has_a_golden_line() -> None:
    assert {answered(sample) for sample in ANSWERS} == {cls.answer for cls in list_requests().values() if cls.answer}


def test_every_kind_of_block_has_a_golden_sample_bare_and_on_a_line() -> None:
    messages = [decode(sample.line) for sample in CATALOGUE]
    contents = [message.message.content for message in messages if isinstance(message, User | Assistant)]
    on_a_line = {block.type for content in contents for block in content if isinstance(block, blocks.Block)}

    assert {sample.json["type"] for sample in BLOCKS} == set(blocks.KINDS)
    assert on_a_line == set(blocks.KINDS)


def structs_in(value: Any) -> Iterator[Struct]:
    """The structs in a value, including nested ones."""
    if isinstance(value, Struct):
        yield value
        value = [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from structs_in(item)


def test_every_declared_field_is_on_some_golden_line() -> None:
    samples: list[Any] = [decode(sample.line) for sample in LINES]
    samples += [convert(sample.json["response"]["response"], answered(sample) or dict) for sample in ANSWERS]
    said: defaultdict[type[Struct], set[str]] = defaultdict(set)
    for struct in structs_in(samples):
        said[type(struct)] |= {name for name in struct.__struct_fields__ if getattr(struct, name) is not UNSET}

    silent = {cls.__name__: set(cls.__struct_fields__) - names for cls, names in said.items()}

    assert {name: fields for name, fields in silent.items() if fields} == {}


@each(CATALOGUE)
def test_a_field_we_do_not_know_survives_a_relay(sample: Sample) -> None:
    newer = Sample(sample.name, {**sample.json, "from_a_newer_peer": {"deep": [1, 2.0, None]}})
    message = decode(newer.line)

    assert type(message) in catalogue().values()
    assert encode(message) == newer.line


def test_a_type_we_do_not_know_is_kept() -> None:
    line = b'{"type":"telepathy","subtype":"loud","thought":"hm"}'
    message = decode(line)

    assert message == Unknown(kind="telepathy", subkind="loud")
    assert encode(message) == line


def test_a_system_subtype_we_do_not_know_is_kept() -> None:
    line = b'{"type":"system","subtype":"telepathy","thought":"hm"}'
    message = decode(line)

    assert message == Unknown(kind="system", subkind="telepathy")
    assert encode(message) == line


def test_a_control_request_we_do_not_know_keeps_its_question() -> None:
    question = {"subtype": "telepathy", "thought": "hm"}
    message = decode(Sample("", {"type": "control_request", "request_id": "r1", "request": question}).line)

    assert message == ControlRequest(request_id="r1", request=UnknownRequest(question))
    assert json.loads(encode_json(message)) == {"type": "control_request", "request_id": "r1", "request": question}


def test_a_block_we_do_not_know_is_kept_in_its_message() -> None:
    block = {"type": "hologram", "depth": 3}
    sample = Sample("", {"type": "user", "message": {"role": "user", "content": [block]}})
    message = decode(sample.line)

    assert isinstance(message, User)
    assert message.message.content == [blocks.UnknownBlock(block)]
    assert json.loads(encode_json(message)) == sample.json


def test_a_subtype_on_a_type_without_subtypes_is_only_a_field_we_do_not_know() -> None:
    assert decode(b'{"type":"keep_alive","subtype":"loud"}') == KeepAlive()


def test_an_answer_without_a_payload_is_an_answer() -> None:
    message = decode(b'{"type":"control_response","response":{"subtype":"success","request_id":"r1"}}')

    assert message == ControlResponse(response=Success(request_id="r1"))
