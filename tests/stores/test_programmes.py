"""Short runs of tests/programmes/damaged_logs.py and lease_races.py, which go as far as you like."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "programmes"))

import damaged_logs  # programmes are no package: their folder must be on the path first
import lease_races


def test_a_damaged_log_is_a_beginning_or_a_refusal(tmp_path: Path) -> None:
    outcomes = damaged_logs.run(tmp_path, logs=600, seed=1)

    assert {outcome.split(": ")[1] for outcome in outcomes} == {"whole", "beginning", "refused"}


def test_a_race_for_a_session_has_one_winner(tmp_path: Path) -> None:
    outcomes = lease_races.run(tmp_path, races=30, seed=1)

    assert outcomes["won"] > 10
