"""Names and arguments that models get wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example
from hypothesis import given as forall
from hypothesis import strategies as st

from parley.engine.repair.arguments import find_name, fit_arguments
from parley.protocol.base import Json

TOOLS = ("Read", "Write", "Edit", "NotebookEdit", "Bash", "mcp__a__create_issue", "mcp__a__get_x", "mcp__b__get_x")


@pytest.mark.parametrize(
    ("called", "meant"),
    [
        ("create_issue", "mcp__a__create_issue"),
        ("a__create_issue", "mcp__a__create_issue"),
        ("mcp_a_create_issue", "mcp__a__create_issue"),
        ("create_issues", None),
        ("get_x", None),
        ("set_x", None),
        ("Exit", None),
        ("notebook_edit", "NotebookEdit"),
        ("bash_command", "Bash"),
        ("Wrte", "Write"),
        ("read_write", None),
        ("", None),
        ("<|x|>", None),
    ],
)
def test_a_name_means_a_tool_only_if_it_can_mean_no_other(called: str, meant: str | None) -> None:
    assert find_name(called, {name: name for name in TOOLS}) == meant


@pytest.mark.parametrize("server", ["mcp__fs__read_file", "mcp__fs__readFile"])
def test_a_name_that_means_a_tool_of_a_server_and_a_built_in_one_means_neither(server: str) -> None:
    assert find_name("read_file", {"Read": "Read", server: server}) is None


SCHEMA: Json = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string"},
        "old_string": {"type": "string"},
        "new_string": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "all": {"type": "boolean"},
        "mode": {"enum": ["Fast", "Slow"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"$ref": "#/$defs/Place"},
        "either": {"type": ["string", "integer"]},
    },
    "required": ["file_path", "old_string", "new_string"],
    "$defs": {"Place": {"type": "object", "properties": {"line_number": {"type": "integer"}}}},
}


@pytest.mark.parametrize(
    ("given", "fitted"),
    [
        (
            {"filePath": "a", "old-string": "b", "NewString": "c"},
            {"file_path": "a", "old_string": "b", "new_string": "c"},
        ),
        ({"path": "a"}, None),
        ({"exclude_file_path": "a"}, None),
        ({"file_paths": "a"}, None),
        ({"string_old": "a"}, None),
        ({"count": "007"}, None),
        ({"count": "5"}, {"count": 5}),
        ({"count": "five"}, None),
        ({"count": 2.5}, None),
        ({"ratio": "2.5"}, {"ratio": 2.5}),
        ({"ratio": None}, None),
        ({"all": "True"}, {"all": True}),
        ({"all": 1}, None),
        ({"mode": "fast"}, {"mode": "Fast"}),
        ({"tags": '["a"]'}, {"tags": ["a"]}),
        ({"tags": [1]}, {"tags": ["1"]}),
        ({"place": {"lineNumber": "3"}}, {"place": {"line_number": 3}}),
        ({"either": "3"}, None),
        ({"count": None}, {}),
        ({"path": "a", "file": "b"}, None),
        ({"string": "a"}, None),
        ({"file_path": {"a": 1}}, None),
        ({"ratio": "1e999"}, None),
    ],
)
def test_arguments_are_changed_only_if_nothing_is_lost(given: Json, fitted: Any) -> None:
    value, changes = fit_arguments(given, SCHEMA)

    assert value == (given if fitted is None else fitted)
    assert bool(changes) == (fitted is not None)


@pytest.mark.parametrize(
    ("given", "fitted"),
    [
        ({"path": "a", "old_str": "b", "new_str": "c"}, {"file_path": "a", "old_string": "b", "new_string": "c"}),
        ({"path": "a", "file": "b"}, None),
        ({"content_path": "a"}, None),
        ({"new": "a"}, None),
    ],
)
def test_built_in_tools_know_other_words_for_their_parameters(given: Json, fitted: Any) -> None:
    assert fit_arguments(given, SCHEMA, is_built_in=True)[0] == (given if fitted is None else fitted)


WORDS = st.sampled_from(
    ["a", "A", "b", "object", "array", "string", "integer", "number", "null", "#/$defs/a", "#/$defs/b"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
KEYWORDS = (
    "type",
    "properties",
    "required",
    "$defs",
    "definitions",
    "$ref",
    "anyOf",
    "oneOf",
    "items",
    "enum",
    "const",
)


def odd_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas in which any keyword may have a value that it must not have."""
    named = st.dictionaries(WORDS, inner, max_size=3)
    return st.dictionaries(st.sampled_from(KEYWORDS), inner | named | st.lists(inner, max_size=3), max_size=4)


@forall(
    st.dictionaries(WORDS, VALUES, max_size=4),
    st.dictionaries(WORDS, st.recursive(VALUES, odd_schemas, max_leaves=8), min_size=1, max_size=3),
    st.recursive(VALUES, odd_schemas, max_leaves=8).map(
        lambda odd: odd if isinstance(odd, dict) else {"required": odd}
    ),
)
@example({"a": 1}, {"a": {"$ref": "#/$defs/a"}}, {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}})
@example({"a": 1}, {"a": {"$ref": "#/$defs/a"}}, {"$defs": [1]})
@example({"b": None}, {"a": {"type": "integer"}, "b": {"type": "string"}}, {"required": True})
def test_no_schema_of_a_server_breaks_a_call(given: Json, properties: Json, odd: Json) -> None:
    schema = {**odd, "properties": properties}
    value, changes = fit_arguments(given, schema)

    assert changes or value is given


def test_a_value_is_fitted_however_deep_its_schema_leads() -> None:
    value: Any = {"a": None}
    for _ in range(900):
        value = {"a": value}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}

    assert fit_arguments(value, {**schema, "$defs": {"a": schema}})[0] is value
