"""The schema of a tool's input, from every form in which a program can describe it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict, Union

import anyio
import pytest
from pydantic import BaseModel

from parley import SdkMcpTool, ToolAnnotations, create_sdk_mcp_server, tool
from parley.sdk.runtime.mcp_servers import SdkMcpServer
from parley.sdk.schema import schema_of_input, type_schema


class Sought(TypedDict):
    words: Annotated[str, "what is sought"]
    limit: NotRequired[int]


@dataclass
class Place:
    x: float
    y: float = 0.0


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object"}),
        (Optional[int], {"type": "integer"}),  # noqa: UP045  # the old spelling is meant
        (int | None, {"type": "integer"}),
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007  # the old spelling is meant
        (Annotated[str, "a name"], {"type": "string", "description": "a name"}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Any, {}),
        (object, {"type": "string"}),
    ],
)
def test_a_type_has_the_schema_that_the_official_sdk_gives_it(kind: Any, schema: Any) -> None:
    assert type_schema(kind) == schema


@pytest.mark.parametrize(
    ("tools", "problem", "words"),
    [
        ([3], TypeError, "must be a function or the result of @tool, not int"),
        ("add", TypeError, "must be a list, not str"),
        ([lambda: 1], TypeError, "has no name"),
        ([tool("one")(lambda: 1), tool("one")(lambda: 2)], ValueError, "more than one tool named 'one'"),
    ],
    ids=["number", "text", "lambda", "twice"],
)
def test_a_server_says_what_can_be_none_of_its_tools(tools: Any, problem: type[Exception], words: str) -> None:
    with pytest.raises(problem, match=words):
        create_sdk_mcp_server("mine", tools=tools)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def test_what_the_schema_of_a_function_shows_is_what_it_takes() -> None:
    @tool
    def paint(
        day: date, at: datetime | None, colour: Colour = Colour.RED, spots: list[int | None] | None = None
    ) -> str:
        return f"{day.year} {at} {colour.name} {spots}"

    async def answers(*given: Any) -> list[Any]:
        server = SdkMcpServer("mine", "1", [paint])
        return [(await server.call({"name": "paint", "arguments": one}, 1))["content"][0]["text"] for one in given]

    null, whole = {"type": "null"}, {"type": "integer"}
    assert paint.listed()["inputSchema"] == {
        "type": "object",
        "properties": {
            "day": {"type": "string", "format": "date"},
            "at": {"anyOf": [{"type": "string", "format": "date-time"}, null]},
            "colour": {"enum": ["red", "blue"], "default": "red"},
            "spots": {"anyOf": [{"type": "array", "items": {"anyOf": [whole, null]}}, null]},
        },
        "required": ["day", "at"],
    }
    first = {"day": "2026-01-02", "at": None, "spots": None}
    second = {"day": "2026-01-02", "at": None, "colour": "blue", "spots": [1, None]}
    assert anyio.run(answers, first, second) == ["2026 None RED None", "2026 None BLUE [1, None]"]


def test_names_with_types_are_all_required() -> None:
    assert schema_of_input({"a": int, "b": str}) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }


def test_a_typed_dict_declares_its_required_keys() -> None:
    assert schema_of_input(Sought) == {
        "type": "object",
        "properties": {"words": {"type": "string", "description": "what is sought"}, "limit": {"type": "integer"}},
        "required": ["words"],
    }


@pytest.mark.parametrize(
    "given",
    [
        {"type": "object", "properties": {"n": {"type": "number", "minimum": 0}}, "required": ["n"]},
        {"type": "object"},
        {"type": "object", "additionalProperties": True},
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object"}}},
    ],
    ids=["properties", "anything", "open", "reference"],
)
def test_a_schema_stays_as_it_is(given: Any) -> None:
    assert schema_of_input(given) == given


def test_a_name_may_have_a_schema_for_its_type() -> None:
    assert schema_of_input({"n": {"type": "number"}})["properties"] == {"n": {"type": "number"}}


@dataclass
class Way:
    start: Place
    more: list[Way]


class Named(BaseModel):
    place: Place


class Pair(NamedTuple):
    name: str
    amount: int


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (Way, {"start": {"x": 1}, "more": []}, Way(Place(1), [])),
        (list[Way], [{"start": {"x": 1}, "more": []}], [Way(Place(1), [])]),
        (Named, {"place": {"x": 1}}, Named(place=Place(1))),
        (Path, "a/b", Path("a/b")),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
        (Sequence[int], [1, 2], [1, 2]),
        (Pair, ["a", 2], Pair("a", 2)),
    ],
    ids=["nested", "list of nested", "pydantic", "path", "tuple", "long tuple", "sequence", "named tuple"],
)
def test_a_plain_function_can_be_given_what_its_hints_say(kind: Any, given: Any, value: Any) -> None:
    taken = []

    def take(it: Any) -> None:
        taken.append(it)

    take.__annotations__["it"] = kind
    server = SdkMcpServer("s", "1", [tool(take)])
    call = {"id": 1, "method": "tools/call", "params": {"name": "take", "arguments": {"it": given}}}

    assert anyio.run(server.handle, call)["result"]["isError"] is False
    assert taken == [value]
    assert anyio.run(server.handle, {**call, "params": {"name": "take", "arguments": {"it": 5}}})["result"]["isError"]


def test_two_types_of_one_name_are_reported_where_the_tool_is_made() -> None:
    first, other = (make_dataclass("Same", [("place", Place), (name, int)]) for name in "ab")
    with pytest.raises(TypeError, match="named 'Same'"):
        tool("both", "Both.", {"one": first, "two": other})


def test_a_dataclass_is_an_object_with_its_defaults() -> None:
    schema = schema_of_input(Place)

    assert (schema["type"], schema["required"], schema["properties"]["y"]["default"]) == ("object", ["x"], 0.0)


def test_what_is_not_a_schema_is_refused_where_the_tool_is_made() -> None:
    with pytest.raises(TypeError, match="input_schema"):
        tool("bad", "Bad.", 3)


@pytest.mark.parametrize("spelling", ["readOnlyHint", "read_only_hint"])
def test_hints_are_sent_with_their_wire_names(spelling: str) -> None:
    @tool("look", "Look.", {"at": str}, annotations=ToolAnnotations(**{spelling: True}, maxResultSizeChars=9))
    async def look(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": []}

    assert isinstance(look, SdkMcpTool)
    listed = look.listed()
    assert listed["annotations"] == {"readOnlyHint": True}
    assert listed["_meta"] == {"anthropic/maxResultSizeChars": 9}


def test_a_server_is_a_configuration_with_an_instance() -> None:
    server = create_sdk_mcp_server("mine", "2.0.0", [])

    assert (server["type"], server["name"]) == ("sdk", "mine")
    assert isinstance(server["instance"], SdkMcpServer)
    assert server["instance"].version == "2.0.0"
