"""TodoWrite: the list is replaced as a whole, and older ways of calling it still work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.errors import ToolError
from parley.protocol.base import Json
from parley.tools.base import InvalidInput, ToolOutput, tool_schema
from parley.tools.work_list import TodoWrite
from tests.helpers.tools import ToolHarness


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path)


def write(harness: ToolHarness, **input: Any) -> ToolOutput:
    return harness.call(TodoWrite(), **input)


def todo(content: str, status: str = "pending") -> Json:
    return {"content": content, "status": status, "activeForm": f"Doing {content}"}


def test_the_list_is_replaced_and_both_lists_are_shown(harness: ToolHarness) -> None:
    first, second = [todo("a", "in_progress"), todo("b")], [todo("a", "completed"), todo("b", "in_progress")]
    assert write(harness, todos=first).detail == {"oldTodos": [], "newTodos": first}
    result = write(harness, todos=second)
    assert result == ToolOutput(
        content="The todo list is updated: 1 of 2 done. In progress: b. Continue with the next step.",
        detail={"oldTodos": first, "newTodos": second},
    )


def test_the_list_can_be_emptied(harness: ToolHarness) -> None:
    write(harness, todos=[todo("a")])
    assert write(harness, todos=[]).detail == {"oldTodos": [todo("a")], "newTodos": []}


def test_an_item_of_the_older_form_has_an_id_and_no_active_form(harness: ToolHarness) -> None:
    result = write(harness, todos=[{"id": "1", "content": "a", "status": "pending"}])
    assert result.detail["newTodos"] == [{"content": "a", "status": "pending", "activeForm": "a"}]


def test_a_subject_adds_one_todo_item(harness: ToolHarness) -> None:
    write(harness, todos=[todo("a", "completed")])
    result = write(harness, subject="Run tests", description="all of them")
    words = "Run tests: all of them"
    new = {"content": words, "status": "pending", "activeForm": words}
    assert result.detail["newTodos"] == [todo("a", "completed"), new]
    assert write(harness, subject="More").detail["newTodos"][-1]["content"] == "More"


@pytest.mark.parametrize(
    "input",
    [
        {},
        {"todos": "a"},
        {"todos": ["a"]},
        {"todos": [{"content": "a"}]},
        {"todos": [{"content": "", "status": "pending"}]},
        {"todos": [{"content": "a", "status": "done"}]},
        {"subject": 5},
        {"subject": ""},
    ],
)
def test_what_is_not_a_list_is_refused_and_changes_nothing(harness: ToolHarness, input: Json) -> None:
    write(harness, todos=[todo("a")])
    with pytest.raises((InvalidInput, ToolError)):
        write(harness, **input)
    assert write(harness, todos=[]).detail["oldTodos"] == [todo("a")]


def test_only_the_current_input_form_is_advertised() -> None:
    shown = tool_schema(TodoWrite())["input_schema"]
    assert list(shown["properties"]) == ["todos"]
    assert shown["$defs"]["Todo"]["required"] == ["content", "status", "activeForm"]
