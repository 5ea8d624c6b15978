"""The definitions in `definitions.json`; `tests/unit/docs/test_docs.py` checks that they are current."""

from __future__ import annotations

import pytest

from parley.compose.tools import find_definition, make_tool
from parley.tools.base import Tool, ToolRegistry, tool_schema
from parley.tools.catalog import BUILT_IN


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_registry_lists_the_schema_of_a_tool_that_it_has_not_made(name: str) -> None:
    made: list[str] = []

    def make(name: str) -> Tool:
        made.append(name)
        return make_tool(name)

    tool = make_tool(name)
    is_fixed = find_definition(name) is not None and isinstance(type(tool).__dict__.get("description"), str)

    assert ToolRegistry([name], make, find_definition).schemas() == [tool_schema(tool)]
    assert made == ([] if is_fixed else [name])
    assert is_fixed or hasattr(tool, "with_options") or hasattr(tool, "with_agents")
