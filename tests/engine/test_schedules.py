"""Short runs of tests/programmes/schedules.py, which goes as far as you like."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

sys.path.append(str(Path(__file__).parents[1] / "programmes"))

import schedules  # programmes are no package: their folder must be on the path first
import stage

from parley.engine.inbox import Inbox


def test_no_schedule_loses_doubles_or_reorders_a_prompt(tmp_path: Path) -> None:
    ends = schedules.run(tmp_path, schedules=200, seed=7)

    assert {"completed", "aborted_streaming", "aborted_tools", "None"} <= ends.keys()
    assert {"prompt completed", "prompt cancelled"} <= ends.keys()


def test_the_laws_catch_a_queue_that_forgets_priorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inbox, "put", lambda inbox, item: (inbox._waiting.append(item), inbox._news.set()))
    with pytest.raises(schedules.Broken, match="started before"):
        schedules.run(tmp_path, schedules=200, seed=7)


def test_the_laws_catch_a_queue_that_loses_a_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Inbox.take_prompts
    monkeypatch.setattr(Inbox, "take_prompts", lambda inbox, rank=1: whole(inbox, rank)[:1])
    with pytest.raises(schedules.Broken, match="life of"):
        schedules.run(tmp_path, schedules=200, seed=7)


def test_a_play_that_nobody_goes_on_with_ends(tmp_path: Path) -> None:
    async def wait_for_ever(stage: stage.Stage) -> None:
        await stage.loop.create_future()

    with stage.Stage(tmp_path, Random(1)) as played, pytest.raises(TimeoutError):
        played.play(wait_for_ever)
