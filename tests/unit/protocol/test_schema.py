"""The schema and the reference page in docs/ match the classes."""

from __future__ import annotations

import json
from typing import Any

from parley.protocol.base import catalogue, decode
from parley.protocol.blocks import KINDS
from parley.protocol.messages.requests import list_requests
from parley.protocol.schema import build_schema
from tests.helpers.golden import LINES, Sample, each

SCHEMA = build_schema()


def test_every_message_request_and_block_is_defined() -> None:
    classes = {*catalogue().values(), *list_requests().values()}
    named = {cls.__name__ for cls in classes} | {f"{cls.__name__}Block" for cls in KINDS.values()}

    assert named <= set(SCHEMA["$defs"])
    assert len(SCHEMA["anyOf"]) == len(catalogue())


def refs_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(refs_in, value.values()))
    return set().union(*map(refs_in, value)) if isinstance(value, list) else set()


def test_every_reference_leads_to_a_definition() -> None:
    assert refs_in(SCHEMA) <= {f"#/$defs/{name}" for name in SCHEMA["$defs"]}


@each(LINES)
def test_the_schema_of_a_golden_line_lists_its_fields(sample: Sample) -> None:
    defined = SCHEMA["$defs"][type(decode(sample.line)).__name__]

    assert set(defined["required"]) <= set(sample.json) <= set(defined["properties"])


def test_a_system_line_needs_its_subtype() -> None:
    assert SCHEMA["$defs"]["Init"]["required"] == ["type", "subtype"]


def test_a_question_names_its_answer() -> None:
    assert SCHEMA["$defs"]["SetModel"]["x-answer"] == {"$ref": "#/$defs/SetModelAnswer"}


def test_an_open_union_takes_what_none_of_its_members_is() -> None:
    *known, other = SCHEMA["$defs"]["Payload"]["anyOf"]

    assert len(known) == len(list_requests())
    assert other["properties"]["subtype"]["not"] == {"enum": sorted(list_requests())}


def test_the_schema_is_the_same_every_time() -> None:
    assert json.dumps(build_schema()) == json.dumps(SCHEMA)
