"""A shelf makes a tool when it is taken, once."""

from __future__ import annotations

import pytest

from parley.tools.base import Tool
from parley.tools.planning.todo import TodoWrite
from parley.tools.registry import ToolRegistry


def test_a_tool_is_made_when_it_is_taken_and_once() -> None:
    made: list[str] = []

    def make(name: str) -> Tool:
        made.append(name)
        return TodoWrite()

    shelf = ToolRegistry(["b", "a"], make)
    assert (list(shelf), len(shelf), "a" in shelf, "c" in shelf, made) == (["b", "a"], 2, True, False, [])
    assert shelf["a"] is shelf["a"]
    assert made == ["a"]
    assert shelf.get("c") is None
    with pytest.raises(KeyError):
        shelf["c"]
    assert len(list(shelf.values())) == 2
    assert made == ["a", "b"]
