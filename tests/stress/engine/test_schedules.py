"""Short runs of tests/stress/engine/schedules.py and interrupts.py, which go as far as you like."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from parley.engine.session.prompts import PromptQueue
from tests.helpers import simulation
from tests.stress.engine import interrupts, schedules


def test_no_schedule_loses_doubles_or_reorders_a_prompt(tmp_path: Path) -> None:
    ends = schedules.run(tmp_path, schedules=200, seed=7)

    assert {"completed", "aborted_streaming", "aborted_tools", "None"} <= ends.keys()
    assert {"prompt completed", "prompt cancelled"} <= ends.keys()


def test_every_interrupt_ends_its_turn_once_and_nothing_of_it_is_in_the_next(tmp_path: Path) -> None:
    ends = interrupts.play(tmp_path, interrupts=300, seed=3)

    assert ends.total() == 300
    assert {"aborted_streaming", "aborted_tools", "completed"} == ends.keys()


CUT: dict[str, Any] = {"type": "result", "terminal_reason": "aborted_streaming"}
OWN: dict[str, Any] = {"type": "assistant", "message": {"content": [{"type": "text", "text": "<n1><n1>"}]}}
OTHER: dict[str, Any] = {"type": "assistant", "message": {"content": [{"type": "text", "text": "<n2>"}]}}


def test_the_laws_catch_a_turn_that_reports_another() -> None:
    interrupts.check([OWN, CUT], CUT, "n1")
    for lines in ([OWN, OTHER, CUT], [OWN, CUT, CUT]):
        with pytest.raises(schedules.Broken):
            interrupts.check(lines, lines[-1], "n1")
    with pytest.raises(schedules.Broken, match="not cut"):
        interrupts.check([OWN, OWN], {"type": "result", "terminal_reason": "completed"}, "n1")


def test_the_real_executable_is_interrupted_while_it_streams_and_while_a_command_runs(tmp_path: Path) -> None:
    answers, results = interrupts.run_real(tmp_path, 6, 1, [str(Path(sys.executable).with_name("parley"))])

    assert (len(answers), len(results)) == (6, 6)


def test_the_laws_catch_a_queue_that_forgets_priorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PromptQueue, "put", lambda inbox, item: (inbox._waiting.append(item), inbox._arrived.set()))
    with pytest.raises(schedules.Broken, match="started before"):
        schedules.run(tmp_path, schedules=200, seed=7)


def test_the_laws_catch_a_queue_that_loses_a_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PromptQueue.take_prompts
    monkeypatch.setattr(PromptQueue, "take_prompts", lambda queue, priority=1: whole(queue, priority)[:1])
    with pytest.raises(schedules.Broken, match="life of"):
        schedules.run(tmp_path, schedules=200, seed=7)


def test_a_play_that_no_one_continues_with_ends(tmp_path: Path) -> None:
    async def wait_for_ever(stage: simulation.SimulatedSession) -> None:
        await stage.loop.create_future()

    with simulation.SimulatedSession(tmp_path, Random(1)) as played, pytest.raises(TimeoutError):
        played.play(wait_for_ever)
