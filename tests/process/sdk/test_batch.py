"""Many prompts: outcomes as they finish, other attempts, an end for all, a record, a bar."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley import (
    Budget,
    BudgetExceeded,
    HookMatcher,
    Options,
    OptionsError,
    ResultError,
    RunProgress,
    Script,
    ScriptedError,
    ScriptedTurn,
    run_many,
    run_many_sync,
)
from parley.testing import call
from tests.helpers.environment import base_environment
from tests.helpers.patience import wait_until
from tests.helpers.sdk import LOOPS, ClientHarness, children, run
from tests.helpers.tty import Terminal

ECHO = Script([ScriptedTurn(when=f"prompt {n}.", text=f"answer {n}", delay_ms=20 * (9 - n)) for n in range(9)])
FAULT = "CLAUDE_CODE_MAX_RETRIES"


def prompts(*numbers: int) -> list[str]:
    return [f"prompt {n}." for n in numbers]


@pytest.mark.parametrize("loop", LOOPS)
def test_outcomes_come_as_they_finish(harness: ClientHarness, engine: str, loop: str) -> None:
    gate = Script(
        [
            ScriptedTurn(when="slow", tools=[call("Bash", command="while ! test -e go; do sleep 0.02; done")]),
            ScriptedTurn(when="fast", text="Fast."),
            ScriptedTurn(text="Slow."),
        ]
    )
    options = harness.options(engine, model=gate, permission_mode="bypassPermissions")

    async def play() -> list[tuple[int, str]]:
        seen = []
        async for outcome in run_many(["slow", "fast"], options):
            seen.append((outcome.index, outcome.unwrap().text))
            Path(str(options.cwd), "go").touch()
        return seen

    assert run(loop, play) == [(1, "Fast."), (0, "Slow.")]


@pytest.mark.parametrize("loop", LOOPS)
def test_who_stops_reading_ends_all_engines(harness: ClientHarness, loop: str) -> None:
    script = Script([ScriptedTurn(when="fast", text="Fast."), ScriptedTurn(text="Never.", delay_ms=600_000)])
    before = children()

    async def play(options: Options[Any]) -> None:
        async with aclosing(run_many(["slow", "fast", "slow"], options).__aiter__()) as outcomes:
            async for outcome in outcomes:
                assert outcome.unwrap().text == "Fast."
                break

    run(loop, play, harness.options("process", model=script))
    assert children() == before


def test_a_batch_is_a_coroutine_too(harness: ClientHarness) -> None:
    outcomes = asyncio.run(run_many(prompts(1, 2), harness.options("local", model=ECHO)))
    assert [outcome.unwrap().text for outcome in outcomes] == ["answer 1", "answer 2"]


def test_a_temporary_error_is_tried_again_and_counted(harness: ClientHarness, engine: str) -> None:
    seen: list[RunProgress[Any]] = []
    overloaded = ScriptedTurn(error=ScriptedError(status=529, message="overloaded"))
    options = harness.options(engine, model=Script([overloaded, "Done."]), env={FAULT: "0"})

    [outcome] = run_many_sync(["go"], options, on_progress=seen.append)
    assert isinstance(outcome.error, ResultError)
    assert (outcome.attempts, seen[-1].retries) == (1, 0)

    # Each session has a script of its own, so the same fault comes again: the last attempt has the outcome.
    [outcome] = run_many_sync(["go"], options, retries=2, on_progress=seen.append)
    assert (outcome.attempts, seen[-1].retries, seen[-1].failed) == (3, 2, 1)

    [outcome] = run_many_sync(["go"], replace(options, env={**options.env, FAULT: "3"}), on_progress=seen.append)
    assert (outcome.unwrap().text, outcome.attempts, seen[-1].retries) == ("Done.", 1, 1)


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"model": "sonnet", "env": {"ANTHROPIC_API_KEY": ""}}, ResultError, "No API key"),
        (
            {"model": Script([ScriptedTurn(error=ScriptedError(status=404, message="no such model"))])},
            ResultError,
            "no such model",
        ),
        (
            {"model": "openai:x", "budget": Budget(usd=1), "env": {"OPENAI_API_KEY": "x"}},
            OptionsError,
            r"limit tokens with Budget\(tokens=\.\.\.\)",
        ),
    ],
)
def test_an_error_that_all_prompts_have_ends_the_batch(
    harness: ClientHarness, given: Any, kind: Any, says: str
) -> None:
    seen: list[RunProgress[Any]] = []
    with pytest.raises(kind, match=says):
        run_many_sync(["go"] * 200, harness.options("local", **given), concurrency=4, on_progress=seen.append)
    assert seen == []


def test_a_prompt_that_cannot_be_sent_ends_no_other(harness: ClientHarness, tmp_path: Path) -> None:
    bad: list[Any] = ["x\ud800", 5, [{"type": "text"}], ["x"], {"a": object()}, [{"type": "new", "x": object()}]]
    seen: list[RunProgress[Any]] = []
    options, record = harness.options("local", model=ECHO), tmp_path / "answers.jsonl"

    found = run_many_sync(["prompt 1.", *bad, "prompt 2."], options, record=record, on_progress=seen.append)
    assert [one.unwrap().text for one in (found[0], found[-1])] == ["answer 1", "answer 2"]
    assert [type(one.error) for one in found[1:-1]] == [
        *(UnicodeEncodeError, TypeError, msgspec.ValidationError, TypeError, TypeError, NotImplementedError)
    ]
    assert {one.attempts for one in found[1:-1]} == {0}
    assert (len(seen), seen[-1].done, seen[-1].failed) == (len(found), len(found), len(bad))

    again = run_many_sync([*bad, "prompt 2."], options, record=record)
    assert again[-1].attempts == 0
    assert len(record.read_text().splitlines()) == 3


def test_an_answer_that_arrives_after_the_end_of_the_batch_is_recorded(harness: ClientHarness, tmp_path: Path) -> None:
    sent: list[str] = []

    async def note(given: Any, tool_use_id: Any, context: Any) -> Any:
        sent.append(given["prompt"])
        return {}

    script = Script(
        [
            ScriptedTurn(when="first", text="First."),
            ScriptedTurn(when="hopeless", error=ScriptedError(status=404, message="no such model")),
            ScriptedTurn(when="slow", tools=[call("Bash", command="while ! test -e go; do sleep 0.02; done")]),
            ScriptedTurn(text="Slow."),
        ]
    )
    options = harness.options(
        "process",
        model=script,
        permission_mode="bypassPermissions",
        hooks={"UserPromptSubmit": [HookMatcher(hooks=[note])]},
    )
    record, before = tmp_path / "answers.jsonl", children()

    async def play() -> None:
        outcomes = run_many(["slow", "first", "hopeless"], options, concurrency=2, record=record).__aiter__()
        assert (await anext(outcomes)).index == 1
        await asyncio.to_thread(
            wait_until, lambda: "hopeless" in sent and len(children()) <= len(before) + 1, "the end of two engines"
        )
        Path(str(options.cwd), "go").touch()
        await asyncio.to_thread(wait_until, lambda: len(record.read_text().splitlines()) == 3, "the second answer")
        with pytest.raises(ResultError, match="no such model"):
            await anext(outcomes)

    run("asyncio", play)


@dataclass
class City:
    name: str


def test_a_record_is_continued_where_it_ended(harness: ClientHarness, tmp_path: Path) -> None:
    record, budget = tmp_path / "answers.jsonl", Budget(tokens=100)
    usage = {"input_tokens": 30, "output_tokens": 10}
    script = Script([ScriptedTurn(tools=[call("StructuredOutput", name="Ulm")], usage=usage), "Done."])
    options: Options[City] = harness.options("local", model=script, output_type=City, budget=budget)
    first = run_many_sync(["a", "b", "b", "c"], options, concurrency=1, record=record)
    assert isinstance(first[-1].error, BudgetExceeded)
    answered = [outcome for outcome in first if outcome.result]
    with record.open("a") as file:
        file.write('{"n":99,"at_m')  # killed while it wrote

    options.budget = more = Budget(tokens=10_000)
    again = run_many_sync(["c", "b", "a", "b"], options, record=record)
    assert [outcome.unwrap().output for outcome in again] == [City("Ulm")] * 4
    assert sum(outcome.attempts == 0 for outcome in again) == len(answered)
    assert more.spent_tokens > budget.spent_tokens  # what was spent before counts
    assert again[0].unwrap().model is not None

    third = run_many_sync(["a", "b", "b", "c"], options, record=record)
    assert [outcome.attempts for outcome in third] == [0] * 4
    assert "Done" not in json.loads(record.read_text().splitlines()[1])["prompt"]


def test_a_file_that_is_no_record_is_left_alone(harness: ClientHarness, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine\n")
    with pytest.raises(ValueError, match="is not a record of run_many"):
        run_many_sync(["a"], harness.options("local"), record=tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine\n"


def test_a_terminal_has_a_bar(tmp_path: Path) -> None:
    program = (
        "from parley import *\n"
        "outcomes = run_many_sync(['say One.'] * 3 + ['fail 400 no'], Options(model='offline', engine='local'))\n"
        "print(len(outcomes), 'outcomes')"
    )
    environment = {**base_environment(), "HOME": str(tmp_path), "TERM": "xterm"}
    with Terminal([sys.executable, "-c", program], environment, tmp_path) as terminal:
        terminal.read_until("4 outcomes")
        assert "##] 4/4: 1 failed, 0 retries" in terminal.output
