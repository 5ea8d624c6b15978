"""Short forms of the stress programs of the gateway."""

from __future__ import annotations

from pathlib import Path

from tests.stress.gateway import connects, cut_sockets, fuzz, one_decision


async def test_a_flood_of_connections(tmp_path: Path) -> None:
    assert await connects.run(tmp_path, rate=1000, seconds=2) == []


async def test_random_requests_and_frames(tmp_path: Path) -> None:
    assert await fuzz.run(tmp_path, count=400, seed=2) == []


async def test_sockets_are_cut_and_the_server_is_killed(tmp_path: Path) -> None:
    assert await cut_sockets.run(tmp_path, cuts=40, kills=2, sessions=1, seed=2) == []


async def test_three_clients_decide_at_once(tmp_path: Path) -> None:
    assert await one_decision.run(tmp_path, rounds=20, kills=1, seed=2) == []
