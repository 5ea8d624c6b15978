"""A short run of the comparison with h11."""

from __future__ import annotations

from tests.stress.models import http_responses


def test_random_responses_are_read_as_h11_reads_them() -> None:
    assert sum(http_responses.compare(3000, seed=5).values()) < 300
