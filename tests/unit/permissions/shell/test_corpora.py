"""Everyday commands that must not ask, and hostile ones that must never pass."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from parley.compose.setup.permission_check import PermissionChecker
from parley.permissions.shell.command_rules import is_allowed_by
from parley.permissions.shell.deny_search import find_denied, is_unresolved
from parley.permissions.shell.readers import is_read_only
from parley.permissions.shell.strict_parser import CommandLine, parse_strict
from parley.protocol.options import CliOptions
from tests.helpers import paths

FOLDER = paths.DATA / "permissions"
HOME = "/home/me"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(row) for row in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def is_allowed(row: dict[str, Any]) -> bool:
    line = parse_strict(row["command"], HOME)
    return isinstance(line, CommandLine) and (is_read_only(line) or is_allowed_by(line, row["allow"]))


def test_nineteen_of_twenty_everyday_commands_are_decided_without_asking(tmp_path: Path) -> None:
    """Uses the full decision, in a fresh repository, with only the rules of each row."""
    everyday = rows("everyday.jsonl")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    judges: dict[tuple[str, ...], PermissionChecker] = {}
    asked: list[str] = []
    for row in everyday:
        rules = tuple(f"Bash({pattern})" for pattern in row["allow"])
        if rules not in judges:
            options = CliOptions(permission_mode="default", allowed_tools=rules, setting_sources=())
            judges[rules] = PermissionChecker(options, str(tmp_path), lambda text: None)
        if judges[rules].check("Bash", {"command": row["command"]}).decision != "allow":
            asked.append(row["command"])

    assert len(everyday) >= 150
    assert len(asked) <= len(everyday) / 20, asked


def test_of_150_commands_of_a_developer_at_most_ten_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rules for git, npm, pytest and make only. Each row that asks has the reason."""
    commands = rows("developer.jsonl")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    for name in (
        "README.md",
        "src/app.py",
        "src/util.py",
        "tests/test_app.py",
        "package.json",
        "names.txt",
        "data.csv",
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("TODO\n")
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    rules = tuple(f"Bash({name}:*)" for name in ("git", "npm", "pytest", "make"))
    options = CliOptions(permission_mode="default", allowed_tools=rules, setting_sources=())
    judge = PermissionChecker(options, str(project), lambda text: None)

    found = [(row["command"], judge.check("Bash", {"command": row["command"]}).decision) for row in commands]

    assert found == [(row["command"], row["expect"]) for row in commands]
    assert len(commands) == 150
    assert sum("why" in row for row in commands) == sum(row["expect"] == "ask" for row in commands) <= 10


@pytest.mark.parametrize(
    "row", [row for row in rows("everyday.jsonl") if not row["allow"]], ids=lambda row: row["command"]
)
def test_an_everyday_command_that_only_reads_needs_no_rule(row: dict[str, Any]) -> None:
    line = parse_strict(row["command"])

    assert isinstance(line, CommandLine)
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
    assert find_denied(row["command"], row["deny"]) is not None, row["why"]


@pytest.mark.parametrize(
    "row", [row for row in rows("hostile.jsonl") if row["expect"] == "unresolved"], ids=lambda row: row["id"]
)
def test_a_command_only_known_when_it_runs_is_unresolved(row: dict[str, Any]) -> None:
    assert is_unresolved(row["command"]), row["why"]


@pytest.mark.parametrize("row", rows("everyday.jsonl"), ids=lambda row: row["command"])
def test_a_rule_about_something_else_finds_nothing_in_an_everyday_command(row: dict[str, Any]) -> None:
    assert find_denied(row["command"], ["shutdown:*", "git push --force*", "dd *"]) is None
