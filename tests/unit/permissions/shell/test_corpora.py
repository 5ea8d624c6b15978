"""Everyday commands that must not ask, and hostile ones that must never pass."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.permissions.shell import Line, allowed_by, finds, is_read_only, read, unresolved
from tests.helpers import paths

FOLDER = paths.DATA / "permissions"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(row) for row in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def is_allowed(row: dict[str, Any]) -> bool:
    line = read(row["command"])
    return isinstance(line, Line) and (is_read_only(line) or allowed_by(line, row["allow"]))


def test_nine_of_ten_everyday_commands_are_decided_without_asking() -> None:
    everyday = rows("everyday.jsonl")
    asked = [row["command"] for row in everyday if not is_allowed(row)]

    assert len(everyday) >= 120
    assert len(asked) <= len(everyday) / 10, asked


@pytest.mark.parametrize(
    "row", [row for row in rows("everyday.jsonl") if not row["allow"]], ids=lambda row: row["command"]
)
def test_an_everyday_command_that_only_reads_needs_no_rule(row: dict[str, Any]) -> None:
    line = read(row["command"])

    assert isinstance(line, Line)
    assert is_read_only(line)


@pytest.mark.parametrize(
    "row", [row for row in rows("hostile.jsonl") if row["expect"] == "not allowed"], ids=lambda row: row["id"]
)
def test_a_hostile_command_is_not_allowed(row: dict[str, Any]) -> None:
    assert not is_allowed(row), row["why"]


@pytest.mark.parametrize(
    "row", [row for row in rows("hostile.jsonl") if row["expect"] == "found"], ids=lambda row: row["id"]
)
def test_a_denied_command_is_found_wherever_it_hides(row: dict[str, Any]) -> None:
    assert finds(row["command"], row["deny"]) is not None, row["why"]


@pytest.mark.parametrize(
    "row", [row for row in rows("hostile.jsonl") if row["expect"] == "unresolved"], ids=lambda row: row["id"]
)
def test_a_command_only_known_when_it_runs_is_unresolved(row: dict[str, Any]) -> None:
    assert unresolved(row["command"]), row["why"]


@pytest.mark.parametrize("row", rows("everyday.jsonl"), ids=lambda row: row["command"])
def test_a_rule_about_something_else_finds_nothing_in_an_everyday_command(row: dict[str, Any]) -> None:
    assert finds(row["command"], ["shutdown:*", "git push --force*", "dd *"]) is None
