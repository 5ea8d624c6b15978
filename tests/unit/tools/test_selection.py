"""Which tools a session offers: by default, by name, without a person, with one list of work or the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.compose.composer import Composer
from parley.protocol.options import CliOptions
from parley.tools.base import tool_schema
from parley.tools.catalog import BUILT_IN, ToolSelection, built_in_with, model_name, select_tools

TASKS = frozenset(built_in_with(work_list="tasks"))
NEED_A_PERSON = frozenset(built_in_with(needs="person"))
ONLY_WHEN_ASKED_FOR = frozenset(built_in_with(only_on_request=True))
KNOWN = ("Write", "Read", "Task", "Bash", "TodoWrite", "WebFetch", *TASKS, *NEED_A_PERSON, *ONLY_WHEN_ASKED_FOR)
DEFAULT = ["Task", "Bash", "Read", "TodoWrite", "WebFetch", "Write"]


@pytest.mark.parametrize(
    ("wishes", "names"),
    [
        (ToolSelection(), DEFAULT),
        (ToolSelection(asked=("default",)), DEFAULT),
        (ToolSelection(asked=()), []),
        (ToolSelection(asked=("Write", "Read", "NoSuchTool")), ["Read", "Write"]),
        (ToolSelection(asked=("Agent",)), ["Task"]),
        (ToolSelection(asked=("Task", "Read")), ["Task", "Read"]),
        (ToolSelection(denied=("Agent", "Bash(rm:*)", "Write")), ["Bash", "Read", "TodoWrite", "WebFetch"]),
        (ToolSelection(asked=("Read", "Write"), denied=("Write",)), ["Read"]),
        (ToolSelection(asked=("Read", "AskUserQuestion")), ["Read"]),
        (ToolSelection(asked=("Read", "AskUserQuestion"), has_person=True), ["AskUserQuestion", "Read"]),
        (ToolSelection(asked=("default", "ListMcpResources")), ["Task", "Bash", "ListMcpResourcesTool", *DEFAULT[2:]]),
        (ToolSelection(asked=("ReadMcpResourceTool",)), ["ReadMcpResourceTool"]),
    ],
)
def test_the_list_follows_the_options(wishes: ToolSelection, names: list[str]) -> None:
    assert select_tools(KNOWN, wishes) == names


def test_with_a_person_there_are_the_tools_that_need_one() -> None:
    assert set(select_tools(KNOWN, ToolSelection(has_person=True))) == {*DEFAULT, *NEED_A_PERSON}


@pytest.mark.parametrize(
    ("asked", "tasks", "todos", "family"),
    [
        (None, None, True, False),
        (None, False, True, False),
        (None, True, False, True),
        (("TodoWrite", "Read"), None, True, False),
        (("TodoWrite", *TASKS), None, False, True),
        (("TodoWrite", *TASKS), False, True, False),
        (("TodoWrite", "Read"), True, False, False),
    ],
)
def test_there_is_one_list_of_work(asked: Any, tasks: bool | None, todos: bool, family: bool) -> None:
    names = set(select_tools(KNOWN, ToolSelection(asked=asked, tasks=tasks)))
    assert ("TodoWrite" in names, names >= TASKS, bool(names & TASKS)) == (todos, family, family)


def composed(folder: Path, environment: dict[str, str] | None = None, **options: Any) -> list[str]:
    composer = Composer(CliOptions(**options), {"HOME": str(folder), **(environment or {})}, str(folder))
    return list(composer.tools())


def test_the_ten_tools_of_seed_001_are_offered_by_default_as_far_as_they_exist(tmp_path: Path) -> None:
    ten = {"Read", "Write", "Edit", "Glob", "Grep", "Bash", "WebFetch", "WebSearch", "Task", "TodoWrite"}
    assert ten & set(BUILT_IN) <= set(composed(tmp_path))


@pytest.mark.parametrize(("value", "todos"), [("0", True), ("false", True), ("", True), ("1", False)])
def test_a_variable_switches_between_the_lists_of_work(tmp_path: Path, value: str, todos: bool) -> None:
    names = composed(tmp_path, {"CLAUDE_CODE_ENABLE_TASKS": value})
    assert ("TodoWrite" in names, "TaskCreate" in names) == (todos, not todos)


@pytest.mark.parametrize(
    ("options", "there"),
    [
        ({}, False),
        ({"permission_prompt_tool": "stdio"}, True),
        ({"permission_prompt_tool": "stdio", "permission_prompts": "none"}, False),
        ({"permission_prompt_tool": "mcp__x__y"}, False),
    ],
)
def test_a_host_that_answers_brings_the_tools_that_need_it(tmp_path: Path, options: Any, there: bool) -> None:
    names = set(composed(tmp_path, **options))
    assert names >= NEED_A_PERSON if there else names.isdisjoint(NEED_A_PERSON)


def test_every_row_is_a_tool_with_its_own_name_and_a_schema(tmp_path: Path) -> None:
    wanted = CliOptions(tools=tuple(BUILT_IN), permission_prompt_tool="stdio")
    for tasks in ("0", "1"):
        environment = {"HOME": str(tmp_path), "CLAUDE_CODE_ENABLE_TASKS": tasks}
        for name, tool in Composer(wanted, environment, str(tmp_path)).tools().items():
            listed = tool_schema(tool)
            assert listed["name"] == model_name(name)
            assert listed["description"]
            assert listed["input_schema"]["type"] == "object"
