"""When a failed call is tried again, and after how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.turn.retry import delay_seconds
from parley.errors import ModelError

PASSING = ModelError("busy", retryable=True)
DICE = st.floats(0, 1, exclude_max=True)


def wishing(seconds: float) -> ModelError:
    return ModelError("busy", retryable=True, retry_after_seconds=seconds)


def test_the_delay_doubles_up_to_its_limit() -> None:
    assert [delay_seconds(PASSING, attempt, 8, 0) for attempt in range(1, 10)] == [
        0.5, 1, 2, 4, 8, 16, 30, 30, None,
    ]  # fmt: skip


@pytest.mark.parametrize(("dice", "delay"), [(0.0, 2.0), (0.5, 2.25), (0.999, 2.4995)])
def test_the_dice_add_up_to_a_quarter(dice: float, delay: float) -> None:
    assert delay_seconds(PASSING, 3, 8, dice) == pytest.approx(delay)


@pytest.mark.parametrize(("wish", "delay"), [(0, 0), (7, 7), (60, 60), (3600, 60), (float("inf"), 60)])
def test_retry_after_is_respected_up_to_a_minute(wish: float, delay: float) -> None:
    assert delay_seconds(wishing(wish), 1, 8, 0.9) == delay


@pytest.mark.parametrize(
    ("error", "attempt", "max_retries"),
    [
        (ModelError("no"), 1, 8),
        (ModelError("no", retry_after_seconds=1), 1, 8),
        (PASSING, 9, 8),
        (wishing(1), 9, 8),
        (PASSING, 1, 0),
    ],
)
def test_a_lasting_failure_and_the_last_attempt_are_final(error: ModelError, attempt: int, max_retries: int) -> None:
    assert delay_seconds(error, attempt, max_retries, 0) is None


@pytest.mark.parametrize(("trouble", "delay"), [(0.0, 60.0), (240.0, 60.0), (240.1, None), (1e9, None)])
def test_trouble_that_would_last_longer_than_five_minutes_is_final(trouble: float, delay: float | None) -> None:
    assert delay_seconds(wishing(60), 2, 8, 0.5, trouble) == delay


@given(st.integers(1, 10**6), DICE)
def test_every_delay_is_bounded(attempt: int, dice: float) -> None:
    delay = delay_seconds(PASSING, attempt, 10**6, dice)

    assert delay is not None
    assert 0.5 <= delay <= 37.5
