from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from parley.inspector.schema_check import SchemaCheck
from parley.protocol.schema import build_schema
from tests.helpers import paths

CATALOGUE = paths.GOLDEN / "catalogue.jsonl"


@cache
def check() -> SchemaCheck:
    return SchemaCheck(build_schema())


def assistant(*content: Any) -> Any:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": list(content), "usage": {}}
    return {"type": "assistant", "message": message}


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ({"type": "hologram", "a": 1}, ['type="hologram"']),
        ({"type": "system", "subtype": "hologram"}, ['subtype="hologram"']),
        ({"type": "keep_alive", "mood": {}, "type ": 1}, ["mood", "type "]),
        ({"type": "control_request", "request_id": "a", "request": {"subtype": "x", "b": 1}}, ['request.subtype="x"']),
        (
            {"type": "control_request", "request_id": "a", "request": {"subtype": "interrupt", "b": 1}},
            ["request.b"],
        ),
        (assistant({"type": "text", "text": "a"}, {"type": "text", "text": "a", "b": 1}), ["message.content[1].b"]),
        (assistant({"type": "dance"}), ['message.content[0].type="dance"']),
        ({}, ["type"]),
        ([], []),
        ("text", []),
    ],
)
def test_what_the_schema_does_not_name_is_found(line: Any, unknown: list[str]) -> None:
    assert check().find_unknown(line) == unknown


def test_the_body_of_an_answer_is_checked_by_its_request() -> None:
    request = {"type": "control_request", "request_id": "a", "request": {"subtype": "initialize"}}
    body = {"commands": [], "mood": 1}
    line = {"type": "control_response", "response": {"subtype": "success", "request_id": "a", "response": body}}

    assert check().find_unknown(line, request) == ["response.response.mood"]
    assert check().find_unknown(line) == []


def test_every_golden_line_is_in_the_schema() -> None:
    lines = [json.loads(line)["line"] for line in CATALOGUE.read_text().splitlines()]

    assert {json.dumps(line): found for line in lines if (found := check().find_unknown(line))} == {}


def test_a_line_that_is_nested_deeply_is_no_trouble() -> None:
    line: Any = {}
    for _ in range(500):
        line = {"type": "user", "message": line, "parts": [line]}

    assert check().find_unknown(line)
