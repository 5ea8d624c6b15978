"""What is known of each tool without importing it."""

from __future__ import annotations

from parley.tools.catalog import canonical_name


def test_other_names_are_understood() -> None:
    assert [canonical_name(name) for name in ("Agent", "Task", "KillShell", "Read")] == [
        "Task",
        "Task",
        "TaskStop",
        "Read",
    ]
