"""An option reaches the engine and its tools from the flag, the variable or the settings, without further code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from parley.engine.session.config import SessionConfig
from parley.tools.base import Context, Tool, ToolOutput, ToolRegistry
from parley.workspace.base import Scope
from tests.helpers.session import SessionHarness

CALL = "[[turn]]\n[[turn.tools]]\nname = 'Work'\ninput = {}\n[[turn]]\ntext = 'Done.'"


class Nothing(Struct):
    pass


class Work(Tool):
    """A tool that reports options of the session."""

    name = "Work"
    description = "Reports options."
    reads_only = True
    input = Nothing

    async def run(self, call: Nothing, context: Context, reach: Scope) -> ToolOutput:
        options = context.options
        return ToolOutput(content=json.dumps([options.max_turns, options.max_retries, options.effort, options.api_key]))


class ToolHarness(SessionHarness):
    def furnish(self, setup: SessionConfig) -> SessionConfig:
        return msgspec.structs.replace(setup, tools=ToolRegistry(["Work"], lambda name: Work()))


@pytest.mark.parametrize(
    ("options", "environment", "settings", "expected"),
    [
        ({}, {"CLAUDE_CODE_MAX_RETRIES": ""}, {}, [None, 8, None, None]),
        (
            {"max_turns": 5, "effort": "low", "api_key": "sk-secret"},
            {"CLAUDE_CODE_MAX_RETRIES": "3", "CLAUDE_CODE_EFFORT_LEVEL": "high"},
            {"limits": {"maxTurns": 7, "maxRetries": 4}, "effortLevel": "max"},
            [5, 3, "low", None],
        ),
        (
            {},
            {"CLAUDE_CODE_MAX_RETRIES": "", "CLAUDE_CODE_EFFORT_LEVEL": ""},
            {"limits": {"maxTurns": 7, "maxRetries": 4}, "effortLevel": "max"},
            [7, 4, "max", None],
        ),
    ],
)
async def test_a_tool_reads_the_options_of_its_session(
    tmp_path: Path, options: dict[str, Any], environment: dict[str, str], settings: dict[str, Any], expected: list[Any]
) -> None:
    given = {**options, "settings": json.dumps(settings), "skip_permissions": True}
    harness = ToolHarness(tmp_path, CALL, **given)
    harness.environment |= environment
    async with harness:
        harness.prompt("go")
        told = await harness.receive("user")
        await harness.receive("result")

    assert json.loads(told["message"]["content"][0]["content"]) == expected


async def test_the_key_stays_outside_of_the_options_of_a_session(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, CALL, api_key="sk-secret") as harness:
        assert harness.session.config.options.api_key is None
        assert harness.session.config.workspace.options.api_key is None
