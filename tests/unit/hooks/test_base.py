"""Hook events and failure policies."""

from __future__ import annotations

from typing import Any

import pytest

from parley.hooks.base import (
    DEFAULT_SECONDS,
    MAX_CONTEXT_CHARS,
    MAX_SECONDS,
    Matcher,
    format_context,
    parse_failure_policy,
    parse_timeout,
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


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("", ["Bash"], True),
        ("*", ["Bash"], True),
        ("Bash", ["Bash"], True),
        ("Bash", ["BashOutput"], False),
        ("bash", ["Bash"], False),
        ("Edit|Write", ["Write"], True),
        ("Edit | Write", ["Write"], True),
        ("Edit, Write", ["Write"], True),
        ("Edit|Write", ["NotebookEdit"], False),
        ("Task", ["Agent", "Task"], True),
        ("mcp__brave-search__web", ["mcp__brave-search__web"], True),
        ("mcp__brave-search__web", ["mcp__brave-search__web2"], False),
        ("mcp__.*", ["mcp__a__b"], True),
        ("mcp__.*", ["Bash"], False),
        ("^Note", ["NotebookEdit"], True),
        ("Edit.*", ["NotebookEdit"], True),
        ("^(Edit|Write)$", ["Edit"], True),
        ("Bash", [], True),
        ("Bash", [""], True),
        ("(", ["Bash"], True),
    ],
)
def test_a_matcher_fits_everything_names_or_a_pattern(text: str, names: list[str], expected: bool) -> None:
    assert Matcher(text).matches(names) is expected


@pytest.mark.parametrize(("text", "flawed"), [("(", True), ("Bash", False), ("a.*b", False), ("", False), ("*", False)])
def test_a_pattern_that_cannot_be_read_is_reported(text: str, flawed: bool) -> None:
    assert (Matcher(text).problem is not None) is flawed


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
