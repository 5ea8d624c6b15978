"""How long hooks may run."""

from __future__ import annotations

from typing import Any

import pytest

from parley.hooks.timeouts import DEFAULT_SECONDS, MAX_SECONDS, parse_timeout


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(5, 5.0), (0.5, 0.5), (None, DEFAULT_SECONDS), (0, DEFAULT_SECONDS), (10**400, MAX_SECONDS)],
)
def test_an_invalid_timeout_is_the_default(asked: Any, expected: float) -> None:
    assert (parse_timeout(asked), parse_timeout(True), parse_timeout("9")) == (
        expected,
        DEFAULT_SECONDS,
        DEFAULT_SECONDS,
    )
