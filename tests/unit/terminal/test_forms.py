"""Fields of elicitation forms: in their order, and their answers as values."""

from __future__ import annotations

from typing import Any

import pytest

from parley.terminal.questions import Field, read_fields


def read_field(is_required: bool = True, **schema: Any) -> Field:
    whole = {"properties": {"x": schema}, "required": ["x"] if is_required else []}
    fields = read_fields(whole, ["x"])
    assert fields is not None
    return fields[0]


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "abc", "abc"),
        ({"type": "integer", "minimum": 1}, "3", 3),
        ({"type": "number"}, "0.5", 0.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "string", "enum": ["a", "b"]}, "2", "b"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["Alpha", "Beta"]}, "Alpha", "a"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "Alpha"}]}, "1", "a"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}, "1, 3", ["a", "c"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, "1", ["a"]),
        ({"type": "string", "default": "d"}, "", "d"),
    ],
)
def test_an_answer_is_a_value_of_its_type(schema: dict[str, Any], text: str, value: Any) -> None:
    assert read_field(**schema).parse(text) == value


@pytest.mark.parametrize(
    ("schema", "text", "reason"),
    [
        ({"type": "string"}, "", "a value is required"),
        ({"type": "string", "minLength": 3}, "ab", "at least 3 characters"),
        ({"type": "string", "maxLength": 1}, "ab", "at most 1 characters"),
        ({"type": "integer"}, "1.5", "expected a whole number"),
        ({"type": "number"}, "x", "expected a number"),
        ({"type": "integer", "maximum": 5}, "6", "at most 5"),
        ({"type": "boolean"}, "maybe", "answer yes or no"),
        ({"type": "string", "enum": ["a", "b"]}, "3", "choose a number from 1 to 2"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1}, "1 2", "at most 1 choices"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(schema: dict[str, Any], text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_field(**schema).parse(text)


def test_an_optional_field_may_be_left_out() -> None:
    assert read_field(is_required=False, type="string").parse("") is None


def test_fields_are_asked_in_the_order_of_the_server() -> None:
    schema = {"properties": {"b": {"type": "string"}, "a": {"type": "string"}, "c": {"type": "boolean"}}}
    fields = read_fields(schema, ["a", "b"])

    assert fields is not None
    assert [field.name for field in fields] == ["a", "b", "c"]


@pytest.mark.parametrize("entry", [{"type": "object"}, {"type": "array", "items": {"type": "string"}}, "text"])
def test_a_form_with_a_field_that_has_no_line_is_not_asked(entry: Any) -> None:
    assert read_fields({"properties": {"x": entry}}, []) is None


def test_a_field_says_what_it_wants() -> None:
    field = read_field(type="string", title="Colour", description="Of the sky", enum=["red", "blue"], default="blue")

    assert field.describe() == "Colour – Of the sky (required, a number, default: blue)\n  1. red\n  2. blue"
