"""What the pinned official packages declare has a row, and every row is right."""

from __future__ import annotations

from dataclasses import replace

import drift
import pytest
from parity.declared import SECTIONS, Declarations
from parity.rows import Table

from tests.compat.harness import installed
from tests.compat.install import CURRENT_PYTHON, TYPESCRIPT


@pytest.fixture(scope="module")
def declarations() -> Declarations:
    installed(CURRENT_PYTHON)
    installed(TYPESCRIPT)
    return drift.load_installed()


def test_every_declared_name_has_a_row_and_every_row_is_right(declarations: Declarations) -> None:
    assert list(drift.find_problems(declarations, drift.load_tables())) == []


def test_a_name_that_loses_its_row_is_reported(declarations: Declarations) -> None:
    tables = drift.load_tables()
    whole = tables["hook-events"]
    tables["hook-events"] = Table(tuple(row for row in whole.rows if row.name != "Stop"), whole.problems)

    assert list(drift.find_problems(declarations, tables)) == ["hook-events: 'Stop' is declared and has no row"]


def test_a_name_without_effect_is_reported(declarations: Declarations) -> None:
    tables = drift.load_tables()
    whole = tables["hook-events"]
    rows = tuple(replace(row, status="silent") if row.name == "Stop" else row for row in whole.rows)
    tables["hook-events"] = Table(rows, whole.problems)

    assert list(drift.find_problems(declarations, tables)) == ["hook-events: 'Stop' is silent"]


def test_what_is_read_is_what_the_packages_have(declarations: Declarations) -> None:
    names = {section.key: section.names(declarations) for section in SECTIONS}

    assert {"PreToolUse", "Stop"} <= names["hook-events"].keys()
    assert {"Bash", "Bash.command", "AskUserQuestion.questions[].options[].label"} <= names["tools"].keys()
    assert {"system/init.tools", "result/success.usage", "user.message"} <= names["messages"].keys()
    assert {"initialize.hooks", "initialize -> commands"} <= names["control-requests"].keys()
    assert {"permissions.allow", "sandbox.network.allowedDomains"} <= names["settings"].keys()
    assert {"agents.*.prompt", "mcpServers.*.command"} <= names["options-typescript"].keys()
    assert {"cwd", "can_use_tool"} <= names["options-python"].keys()
    assert "ClaudeSDKClient.connect" in names["names-python"]
