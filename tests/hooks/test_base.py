"""The events, and how answers are read."""

from __future__ import annotations

from typing import Any

import pytest

from parley.hooks.base import (
    DEFAULT_SECONDS,
    EVENTS,
    MOST_CONTEXT_CHARS,
    MOST_SECONDS,
    HookFailed,
    Output,
    context_text,
    failure_policy,
    read_output,
    seconds,
)
from parley.protocol.base import UNSET


@pytest.mark.parametrize("answer", [None, UNSET, {}, {"from the future": 1}, {"hookSpecificOutput": None}])
def test_an_empty_answer_is_no_opinion(answer: Any) -> None:
    assert read_output(answer) == Output()


@pytest.mark.parametrize(
    "answer",
    ["yes", [], 1, {"continue": "no"}, {"hookSpecificOutput": []}, {"hookSpecificOutput": {"updatedInput": 1}}],
)
def test_an_answer_that_cannot_be_understood_is_a_failure(answer: Any) -> None:
    with pytest.raises(HookFailed):
        read_output(answer)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(5, 5.0), (0.5, 0.5), (None, DEFAULT_SECONDS), (0, DEFAULT_SECONDS), (10**400, MOST_SECONDS)],
)
def test_a_time_that_is_none_is_not_heeded(asked: Any, expected: float) -> None:
    assert (seconds(asked), seconds(True), seconds("9")) == (expected, DEFAULT_SECONDS, DEFAULT_SECONDS)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(None, "continue"), (UNSET, "continue"), ("continue", "continue"), ("block", "block"), ("x", "block")],
)
def test_an_unknown_policy_is_the_careful_one(asked: Any, expected: str) -> None:
    assert failure_policy(asked) == expected


def test_what_is_matched_is_part_of_the_input() -> None:
    assert [event.name for event in EVENTS.values() if event.matched and event.matched not in event.fields] == []


def test_what_a_hook_says_to_the_model_has_its_measure() -> None:
    assert context_text("Stop", "x" * (MOST_CONTEXT_CHARS + 5)).endswith(
        "xx\n[cut here: 5 more characters]\n</hook-context>"
    )
