"""Short forms of the programs in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.gateway import cut_sockets, one_decision

pytestmark = pytest.mark.parametrize("isolation", ["task", "process"])


async def test_every_viewer_sees_every_line_once(tmp_path: Path, isolation: str) -> None:
    assert await cut_sockets.run(tmp_path, cuts=60, kills=3, sessions=2, seed=5, isolation=isolation) == []


async def test_one_of_three_answers_counts(tmp_path: Path, isolation: str) -> None:
    assert await one_decision.run(tmp_path, rounds=12, kills=2, sessions=3, seed=5, isolation=isolation) == []
