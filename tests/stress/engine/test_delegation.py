"""Short runs of tests/stress/engine/delegation.py and endings.py, which go as far as you like and measure time, too."""

from __future__ import annotations

from tests.stress.engine import delegation, task_endings

ANY_TIME = 60.0
LIMITS = task_endings.Limits(late_seconds=ANY_TIME, same_moment_seconds=1.0)
"""The ends of the tasks are spread over 1.5 s."""


def test_limits_hold_across_trees_of_agents_and_each_turn_has_its_result() -> None:
    assert delegation.purses(12, seed=1) == []


def test_an_interrupt_of_three_working_agents_leaves_no_process() -> None:
    _, broken = delegation.interrupts(1, seed=1, within_seconds=ANY_TIME)
    assert broken == []


def test_each_task_that_ends_is_reported_once_and_in_order_also_after_a_kill_and_a_resume() -> None:
    broken, counts = task_endings.run(rounds=2, tasks=20, seed=1, limits=LIMITS)
    assert broken == []
    assert counts["tasks"] == 40
