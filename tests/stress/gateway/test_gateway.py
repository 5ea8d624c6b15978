"""Short forms of the stress programs of the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.gateway import connects, cut_sockets, fuzz, hostile_load, one_decision, only_the_logs


async def test_a_flood_of_connections(tmp_path: Path) -> None:
    assert await connects.run(tmp_path, rate=1000, seconds=2) == []


async def test_random_requests_and_frames(tmp_path: Path) -> None:
    assert await fuzz.run(tmp_path, count=400, seed=2) == []


@pytest.mark.parametrize("isolation", ["task", "process"])
async def test_every_viewer_sees_every_line_once(tmp_path: Path, isolation: str) -> None:
    assert await cut_sockets.run(tmp_path, cuts=60, kills=3, sessions=2, seed=5, isolation=isolation) == []


@pytest.mark.parametrize("isolation", ["task", "process"])
async def test_one_of_three_answers_counts(tmp_path: Path, isolation: str) -> None:
    assert await one_decision.run(tmp_path, rounds=12, kills=2, sessions=3, seed=5, isolation=isolation) == []


async def test_every_answer_follows_from_the_logs(tmp_path: Path) -> None:
    assert await only_the_logs.run(tmp_path, sessions=5, kills=3, steps=3, seed=5, cursors=10) == []


@pytest.mark.parametrize("case", hostile_load.CASES)
async def test_one_client_does_not_take_all(tmp_path: Path, case: str) -> None:
    assert await hostile_load.run(tmp_path, 0.05, (case,)) == []
