"""Tests of `cleaner.py`, without a model and without a network: `pytest test_cleaner.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cleaner import clean

from parley import Options
from parley.testing import ScriptedTurn, call, expect, run_in_virtual_time

pytest_plugins = ["parley.testing.plugin"]

SCENARIOS = Path(__file__).parent.parent / "scenarios"
Played = tuple[str, list[Any]]


@pytest.fixture
def play(fake_claude: Callable[[Path], str], tmp_path: Path) -> Callable[[str], Played]:
    """Run the application with a fake `claude` that plays a scenario."""

    def run(name: str) -> Played:
        return asyncio.run(clean(Options(cli_path=fake_claude(SCENARIOS / f"{name}.toml"), cwd=tmp_path)))

    return run


def test_the_build_directory_may_be_deleted(play: Callable[[str], Played]) -> None:
    answer, messages = play("clean")

    assert answer == "Cleaned."
    expect(messages).tool("Bash", command="rm -r build").allowed().turn_ended(text="Cleaned.")


def test_nothing_else_may_be_deleted(play: Callable[[str], Played]) -> None:
    _, messages = play("dangerous")

    expect(messages).tool("Bash").denied("only the build directory").turn_ended(text="I may not")


def test_a_rough_connection_is_survived(play: Callable[[str], Played]) -> None:
    assert play("rough")[0] == "Done."


def test_a_crash_is_reported(play: Callable[[str], Played]) -> None:
    answer, messages = play("crash")

    assert "exit code: 3" in answer
    expect(messages).said("I begin.")


def test_a_real_engine_deletes_the_directory(scripted: Callable[..., Options[Any]], tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    answer, messages = asyncio.run(clean(scripted(call("Bash", command="rm -r build"), "Cleaned.")))

    assert (answer, (tmp_path / "build").exists()) == ("Cleaned.", False)
    expect(messages).tool("Bash").allowed().turn_ended()


def test_minutes_of_waiting_pass_at_once(scripted: Callable[..., Options[Any]]) -> None:
    slow = ScriptedTurn(text="Cleaned.", delay_ms=200_000)
    seconds, (answer, _) = run_in_virtual_time(clean(scripted(slow)))

    assert (answer, round(seconds)) == ("Cleaned.", 200)
