"""Twenty thousand broken lines; tests/stress/protocol/mutated_lines.py feeds as many as you like."""

from __future__ import annotations

from tests.stress.protocol import mutated_lines


def test_broken_lines_never_raise_and_each_gives_one_message() -> None:
    summary = mutated_lines.run(count=20_000, seed=1)

    assert summary.lines == 20_000
    assert summary.outcomes.keys() == {"known", "unknown", "refused", "blank"}


def test_the_seed_decides_every_line() -> None:
    assert mutated_lines.run(count=500, seed=7).outcomes == mutated_lines.run(count=500, seed=7).outcomes
