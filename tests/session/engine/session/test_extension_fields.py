"""What an editor shows beside an answer: only if it asked for it, and as it stands when the line is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.engine.session.dialect_fields import thinking_level
from tests.helpers.session import Json, SessionHarness

TODO = (
    "[[turn]]\ntools = [{ name = 'TodoWrite', id = 't1', input = { todos = ["
    "{ content = 'Look', status = 'completed', activeForm = 'Looking' },"
    "{ content = 'Mend', status = 'in_progress', activeForm = 'Mending' }] } }]\n"
    "[[turn]]\nthinking = 'Hm.'\ntext = 'Half done.'\n"
)


async def answers(folder: Path, **options: Any) -> list[Json]:
    async with SessionHarness(folder, TODO, **options) as harness:
        harness.prompt("go")
        await harness.receive("result")
    return list(harness.messages("assistant"))


async def test_an_answer_has_the_thinking_level_and_todos_with_positions_as_ids(tmp_path: Path) -> None:
    calling, *said = await answers(tmp_path, extension_fields=True, max_thinking_tokens=8_000)

    assert calling["thinkingMetadata"] == {"level": "medium", "disabled": False, "triggers": []}
    assert "todos" not in calling
    assert [line["message"]["content"][0]["type"] for line in said] == ["thinking", "text"]
    for line in said:
        assert line["todos"] == [
            {"id": "1", "content": "Look", "status": "completed"},
            {"id": "2", "content": "Mend", "status": "in_progress"},
        ]


async def test_without_the_option_no_line_has_these_fields(tmp_path: Path) -> None:
    assert all({"thinkingMetadata", "todos"}.isdisjoint(line) for line in await answers(tmp_path))


@pytest.mark.parametrize("off", [{"max_thinking_tokens": 0}, {"thinking": "disabled"}])
async def test_a_model_that_may_not_think_is_said_to_be_disabled(tmp_path: Path, off: Json) -> None:
    first, *_ = await answers(tmp_path, extension_fields=True, **off)

    assert first["thinkingMetadata"] == {"level": "auto", "disabled": True, "triggers": []}


@pytest.mark.parametrize(
    ("tokens", "name"), [(None, "auto"), (1_024, "low"), (4_000, "low"), (4_001, "medium"), (31_999, "high")]
)
def test_the_level_follows_from_the_budget(tokens: int | None, name: str) -> None:
    assert thinking_level(tokens) == name
