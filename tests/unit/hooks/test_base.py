"""Hook events and failure policies."""

from __future__ import annotations

from typing import Any

import pytest

from parley.hooks.base import (
    MAX_CONTEXT_CHARS,
    format_context,
    parse_failure_policy,
)
from parley.hooks.events import EVENTS
from parley.protocol.base import UNSET


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(None, "continue"), (UNSET, "continue"), ("continue", "continue"), ("block", "block"), ("x", "block")],
)
def test_an_unknown_policy_is_the_careful_one(asked: Any, expected: str) -> None:
    assert parse_failure_policy(asked, "PostToolUse") == expected


def test_a_hook_before_a_call_blocks_when_it_fails_unless_it_says_otherwise() -> None:
    assert [name for name, event in EVENTS.items() if event.on_failure == "block"] == ["PreToolUse", "PreModelSwitch"]
    given = (None, UNSET, "continue")
    assert [parse_failure_policy(asked, "PreToolUse") for asked in given] == ["block", "block", "continue"]


def test_what_is_matched_is_part_of_the_input() -> None:
    assert [event.name for event in EVENTS.values() if event.matched and event.matched not in event.fields] == []


def test_what_a_hook_says_to_the_model_has_its_measure() -> None:
    assert format_context("Stop", "x" * (MAX_CONTEXT_CHARS + 5)).endswith(
        "xx\n[truncated: 5 more characters]\n</hook-context>"
    )
