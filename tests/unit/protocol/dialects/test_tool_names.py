from __future__ import annotations

from typing import Any

import pytest

from parley.protocol.dialects.miriad import to_dialect
from tests.helpers.dialect_reading import from_dialect

PAIRS = [
    ("Read", {"file_path": "/a", "offset": 3, "limit": 9}, "read", {"filePath": "/a", "offset": 2, "limit": 9}),
    ("Write", {"file_path": "/a", "content": "x"}, "write", {"filePath": "/a", "content": "x"}),
    (
        "Edit",
        {"file_path": "/a", "old_string": "x", "new_string": "y", "replace_all": True},
        "edit",
        {"filePath": "/a", "oldString": "x", "newString": "y", "replaceAll": True},
    ),
    (
        "Bash",
        {"command": "ls", "timeout": 5, "dangerouslyDisableSandbox": False},
        "bash",
        {"command": "ls", "timeout": 5, "dangerouslyDisableSandbox": False},
    ),
    ("Glob", {"pattern": "*", "path": "/"}, "glob", {"pattern": "*", "path": "/"}),
    (
        "Grep",
        {"pattern": "x", "glob": "*.py", "output_mode": "content", "-n": True},
        "grep",
        {"pattern": "x", "include": "*.py", "outputMode": "content", "-n": True},
    ),
    ("WebFetch", {"url": "https://a", "prompt": "p"}, "web_fetch", {"url": "https://a", "prompt": "p"}),
    ("WebSearch", {"query": "q"}, "web_search", {"query": "q"}),
    (
        "TodoWrite",
        {"todos": [{"activeForm": "Doing"}]},
        "todo_write",
        {"todos": [{"activeForm": "Doing"}]},
    ),
    ("mcp__Git_hub__Make", {"file_path": 1}, "mcp__Git_hub__Make", {"file_path": 1}),
    ("memory_search", {"max_results": 1}, "memory_search", {"max_results": 1}),
    ("ltm_search", {"max_results": 1}, "ltm_search", {"max_results": 1}),
]


def use(name: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": "call_1", "name": name, "input": given}


@pytest.mark.parametrize(("ours", "given", "theirs", "renamed"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_a_call_survives_the_round_trip_unchanged(
    ours: str, given: dict[str, Any], theirs: str, renamed: dict[str, Any]
) -> None:
    assert to_dialect(use(ours, given)) == use(theirs, renamed)
    assert from_dialect(use(theirs, renamed)) == use(ours, given)


def test_a_line_number_that_is_invalid_is_left_for_the_tool_to_refuse() -> None:
    assert to_dialect(use("Read", {"file_path": "/a", "offset": "3"}))["input"]["offset"] == "3"
