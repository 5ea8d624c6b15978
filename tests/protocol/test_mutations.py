"""Twenty thousand broken lines; tests/programmes/mutate_lines.py feeds as many as you like."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "programmes"))

import mutate_lines  # a programme is no package: its folder must be on the path first


def test_broken_lines_never_raise_and_each_gives_one_message() -> None:
    summary = mutate_lines.run(count=20_000, seed=1)

    assert summary.lines == 20_000
    assert summary.outcomes.keys() == {"known", "unknown", "refused", "blank"}


def test_the_seed_decides_every_line() -> None:
    assert mutate_lines.run(count=500, seed=7).outcomes == mutate_lines.run(count=500, seed=7).outcomes
