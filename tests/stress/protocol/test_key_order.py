"""A few lines over each way; tests/stress/protocol/key_order.py sends as many as you like."""

from __future__ import annotations

import pytest

from tests.stress.protocol import key_order


@pytest.mark.parametrize("way", key_order.WAYS)
async def test_a_line_with_shuffled_keys_is_routed_and_answered_the_same(way: str) -> None:
    assert await key_order.run(way, count=12, seed=1) == []
