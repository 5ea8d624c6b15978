"""A short run of tests/stress/engine/miriad_queue.py, which goes as far as you like, and what its laws catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.session import prompts
from parley.engine.session.prompts import PromptQueue, join_content
from parley.engine.session.session import Session
from tests.stress.engine import miriad_queue
from tests.stress.engine.schedules import Broken


def test_no_message_is_lost_or_doubled_and_every_turn_has_one_result(tmp_path: Path) -> None:
    ends = miriad_queue.run(tmp_path, schedules=120, seed=7)

    assert {"success", "cancelled", "injected"} == ends.keys()


def test_the_laws_catch_a_queue_that_loses_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PromptQueue.take_prompts
    monkeypatch.setattr(PromptQueue, "take_prompts", lambda queue, priority=1: whole(queue, priority)[:1])
    with pytest.raises(Broken, match="times in the conversation"):
        miriad_queue.run(tmp_path, schedules=200, seed=7)


def test_the_laws_catch_messages_that_are_joined_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "join_content", lambda several, joint: join_content(several))
    with pytest.raises(Broken, match="have not"):
        miriad_queue.run(tmp_path, schedules=200, seed=7)


def test_the_laws_catch_an_interrupt_that_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "abort", lambda session: None)
    with pytest.raises(Broken, match="interrupted: True"):
        miriad_queue.run(tmp_path, schedules=200, seed=7)
