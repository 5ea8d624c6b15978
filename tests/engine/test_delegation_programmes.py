"""Short runs of tests/programmes/delegation.py and endings.py, which go as far as you like and measure time, too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "programmes"))

import delegation  # programmes are no package: their folder must be on the path first
import endings

ANY_TIME = 60.0


def test_limits_hold_across_trees_of_agents_and_each_turn_has_its_result() -> None:
    assert delegation.purses(12, seed=1) == []


def test_an_interrupt_of_three_working_agents_leaves_no_process() -> None:
    _, broken = delegation.interrupts(1, seed=1, within_seconds=ANY_TIME)
    assert broken == []


def test_each_task_that_ends_is_told_once_and_in_order_also_after_a_kill_and_a_resume() -> None:
    broken, counts = endings.run(rounds=2, tasks=20, seed=1, late_seconds=ANY_TIME)
    assert broken == []
    assert counts["tasks"] == 40
