"""Short runs of the stress tests in this folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import paths
from tests.helpers.small_process import run_in_small_process
from tests.stress.stores import (
    concurrent_sessions,
    crash_points,
    damaged_databases,
    damaged_logs,
    engine_kills,
    failing_disk,
    lease_races,
)


def test_a_damaged_log_is_a_beginning_or_a_refusal(tmp_path: Path) -> None:
    outcomes = damaged_logs.run(tmp_path, logs=600, seed=1)

    assert {outcome.split(": ")[1] for outcome in outcomes} == {"whole", "beginning", "refused"}


def test_a_damaged_database_is_a_beginning_or_a_refusal(tmp_path: Path) -> None:
    outcomes = damaged_databases.run(tmp_path, files=60, seed=1)

    assert {outcome.split(": ")[1] for outcome in outcomes} >= {"whole", "repaired", "refused"}


def test_a_race_for_a_session_has_one_winner(tmp_path: Path) -> None:
    outcomes = run_in_small_process(lease_races.run, tmp_path, races=30, seed=1)

    assert outcomes["won"] > 10


def test_a_holder_that_lets_go_never_removes_the_lease_of_a_thief(tmp_path: Path) -> None:
    outcomes = run_in_small_process(lease_races.run_thefts, tmp_path, races=60, seed=1)

    assert outcomes == {"stolen": 60}


async def test_a_killed_engine_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    seen = await engine_kills.storm(tmp_path, kills=20, parallel=6, seed=1, each=5)

    assert (seen.problems, seen.kills) == ([], 20)
    assert len(seen.resume_seconds) > 5


def test_an_engine_that_dies_at_any_record_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    assert crash_points.run(tmp_path, points=60, seed=1) > 10


def test_a_disk_that_fails_costs_no_result_and_nothing_that_was_reported(tmp_path: Path) -> None:
    failed = failing_disk.run(tmp_path, most=120, every=4)

    assert failed["write"] > 10
    assert failed["fdatasync"] > 0


def test_sessions_can_be_measured() -> None:
    programme = paths.ROOT / "bench" / "long_sessions.py"
    words = [sys.executable, str(programme), "--messages", "200", "--sessions", "5", "--runs", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "open a locked session" in done.stdout
    assert "list 5 sessions" in done.stdout


@pytest.mark.parametrize(("store", "engines"), [("claude", 8), ("sqlite", 5)])
async def test_engines_side_by_side_lose_and_mix_up_nothing(tmp_path: Path, store: str, engines: int) -> None:
    outcomes = await concurrent_sessions.run(tmp_path, engines=engines, rounds=1, parallel=engines, store=store)

    assert (outcomes["own"], outcomes["shared"] + outcomes["refused"]) == (engines, engines)
    assert outcomes["shared"] > 0
