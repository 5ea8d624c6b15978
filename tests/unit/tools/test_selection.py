"""Which tools a session offers: by default, by name, without a person, with one list of work or the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.compose.composer import Composer
from parley.compose.registry import TOOLS
from parley.protocol.options import Options
from parley.tools.base import schema
from parley.tools.selection import MODEL_NAMES, NEED_A_PERSON, ONLY_WHEN_ASKED_FOR, TASKS, Wishes, canonical, offered

KNOWN = ("Write", "Read", "Task", "Bash", "TodoWrite", "WebFetch", *TASKS, *NEED_A_PERSON, *ONLY_WHEN_ASKED_FOR)
DEFAULT = ["Task", "Bash", "Read", "TodoWrite", "WebFetch", "Write"]


@pytest.mark.parametrize(
    ("wishes", "names"),
    [
        (Wishes(), DEFAULT),
        (Wishes(asked=("default",)), DEFAULT),
        (Wishes(asked=()), []),
        (Wishes(asked=("Write", "Read", "NoSuchTool")), ["Read", "Write"]),
        (Wishes(asked=("Agent",)), ["Task"]),
        (Wishes(asked=("Task", "Read")), ["Task", "Read"]),
        (Wishes(denied=("Agent", "Bash(rm:*)", "Write")), ["Bash", "Read", "TodoWrite", "WebFetch"]),
        (Wishes(asked=("Read", "Write"), denied=("Write",)), ["Read"]),
        (Wishes(asked=("Read", "AskUserQuestion")), ["Read"]),
        (Wishes(asked=("Read", "AskUserQuestion"), has_person=True), ["AskUserQuestion", "Read"]),
        (Wishes(asked=("default", "ListMcpResources")), ["Task", "Bash", "ListMcpResourcesTool", *DEFAULT[2:]]),
        (Wishes(asked=("ReadMcpResourceTool",)), ["ReadMcpResourceTool"]),
    ],
)
def test_the_list_follows_the_wishes(wishes: Wishes, names: list[str]) -> None:
    assert offered(KNOWN, wishes) == names


def test_with_a_person_there_are_the_tools_that_need_one() -> None:
    assert set(offered(KNOWN, Wishes(has_person=True))) == {*DEFAULT, *NEED_A_PERSON}


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
    names = set(offered(KNOWN, Wishes(asked=asked, tasks=tasks)))
    assert ("TodoWrite" in names, names >= TASKS, bool(names & TASKS)) == (todos, family, family)


def test_other_names_are_understood() -> None:
    assert [canonical(name) for name in ("Agent", "Task", "KillShell", "Read")] == ["Task", "Task", "TaskStop", "Read"]


def composed(folder: Path, environment: dict[str, str] | None = None, **options: Any) -> list[str]:
    composer = Composer(Options(**options), {"HOME": str(folder), **(environment or {})}, str(folder))
    return list(composer.tools())


def test_the_ten_tools_of_seed_001_are_offered_by_default_as_far_as_they_exist(tmp_path: Path) -> None:
    ten = {"Read", "Write", "Edit", "Glob", "Grep", "Bash", "WebFetch", "WebSearch", "Task", "TodoWrite"}
    assert ten & set(TOOLS) <= set(composed(tmp_path))


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
    wanted = Options(tools=tuple(TOOLS), permission_prompt_tool="stdio")
    for tasks in ("0", "1"):
        environment = {"HOME": str(tmp_path), "CLAUDE_CODE_ENABLE_TASKS": tasks}
        for name, tool in Composer(wanted, environment, str(tmp_path)).tools().items():
            listed = schema(tool)
            assert listed["name"] == MODEL_NAMES.get(name, name)
            assert listed["description"]
            assert listed["input_schema"]["type"] == "object"
