"""A short run of tests/stress/sdk/cancellations.py, which goes as far as you like."""

from __future__ import annotations

import pytest

from tests.stress.sdk import cancellations


@pytest.mark.parametrize("engine", cancellations.ENGINES)
async def test_nothing_of_a_cancelled_turn_is_left(engine: str) -> None:
    found = await cancellations.run_engine(engine, 20, seed=1)

    assert found["wrong"] == []
    assert sum(found.get(way, 0) for way in cancellations.WAYS) == 20
