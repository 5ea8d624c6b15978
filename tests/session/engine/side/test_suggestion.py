"""Suggestions of the next prompt: sent after the result to a client that wants them, without delaying anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.session import Json, SessionHarness

ANSWER = "[[turn]]\nwhen = 'go'\ntext = 'I mended it.'\n"
NEXT = "[[turn]]\nwhen = 'type next'\ntext = '{}'\n"


async def visit(folder: Path, script: str, hear: str, **options: Any) -> SessionHarness:
    async with SessionHarness(folder, script, **options) as harness:
        harness.prompt("go")
        await harness.receive(hear)
    return harness


def suggestions(harness: SessionHarness) -> list[Json]:
    return list(harness.messages("prompt_suggestion"))


async def test_a_suggestion_comes_after_the_result_and_is_on_the_bill(tmp_path: Path) -> None:
    harness = await visit(
        tmp_path, ANSWER + NEXT.format('"run the tests"'), "prompt_suggestion", prompt_suggestions=True
    )

    [told] = suggestions(harness)
    assert told["suggestion"] == "run the tests"
    assert harness.lines.index(told) > [line["type"] for line in harness.lines].index("result")
    assert harness.session.ledger.spent().calls == 2
    assert len(harness.session.journal.history.render()) == 2


async def test_no_one_is_asked_unless_it_is_wanted(tmp_path: Path) -> None:
    for wanted in ({}, {"prompt_suggestions": False}):
        harness = await visit(tmp_path, ANSWER + NEXT.format("x"), "result", **wanted)

        assert suggestions(harness) == []


async def test_the_handshake_may_ask_for_it(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ANSWER + NEXT.format("run it")) as harness:
        await harness.request("initialize", promptSuggestions=True)
        harness.prompt("go")
        result = await harness.receive("prompt_suggestion")

    assert result["suggestion"] == "run it"


@pytest.mark.parametrize("answer", ["NONE", "None.", "x" * 500])
async def test_what_is_not_a_suggestion_is_not_reported(tmp_path: Path, answer: str) -> None:
    async with SessionHarness(tmp_path, ANSWER + NEXT.format(answer), prompt_suggestions=True) as harness:
        harness.prompt("go")
        await harness.receive("result")
        assert harness.session.suggester is not None
        await harness.session.suggester.wait()

    assert suggestions(harness) == []


async def test_a_model_that_cannot_answer_costs_the_suggestion_only(tmp_path: Path) -> None:
    failing = "[[turn]]\nwhen = 'type next'\nerror = { status = 529 }\n"

    async with SessionHarness(tmp_path, ANSWER + failing, prompt_suggestions=True) as harness:
        harness.prompt("go")
        await harness.receive("result")
        assert harness.session.suggester is not None
        await harness.session.suggester.wait()

    assert suggestions(harness) == []
    assert any("no prompt can be suggested" in warning for warning in harness.warnings)
    [result] = harness.messages("result")
    assert result["is_error"] is False


async def test_a_prompt_ends_the_search_for_one(tmp_path: Path) -> None:
    slow = "[[turn]]\nwhen = 'type next'\ntext = 'never'\ndelay_ms = 600000\n"
    second = "[[turn]]\nwhen = 'more'\nerror = { status = 400 }\n"

    async with SessionHarness(tmp_path, ANSWER + slow + second, prompt_suggestions=True) as harness:
        harness.prompt("go")
        await harness.receive("result")
        harness.prompt("more")
        assert (await harness.receive("result"))["is_error"] is True  # a bad end suggests nothing

    assert suggestions(harness) == []
