"""What the model is told of the built-in tools."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import msgspec
import pytest

from parley.protocol.base import Json

DEFINITIONS: dict[str, Json] = msgspec.json.decode((files("parley.tools") / "definitions.json").read_bytes())


def list_fields(schema: Json) -> Iterator[tuple[str, Json]]:
    for part in (schema, *schema.get("$defs", {}).values()):
        yield from part.get("properties", {}).items()


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_parameter_is_described_and_says_nothing_of_null(name: str) -> None:
    fields = dict(list_fields(DEFINITIONS[name]["input_schema"]))

    assert [field for field, shape in fields.items() if not shape.get("description")] == []
    assert [field for field, shape in fields.items() if {"type": "null"} in shape.get("anyOf", ())] == []
