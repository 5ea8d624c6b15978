"""What a subagent may use: its tools, its model and its mode, as its kind says and its caller allows."""

from __future__ import annotations

import pytest

from parley.engine.agents.setup import choose_mode, choose_model, is_offered, matches_tool
from parley.models.catalog import resolve


@pytest.mark.parametrize(
    ("pattern", "name", "is_it"),
    [
        ("Read", "Read", True),
        ("Read", "Write", False),
        ("*", "Write", True),
        ("Bash(git *)", "Bash", True),
        ("Agent", "Task", True),
        ("Task", "Task", True),
        ("mcp__zoo", "mcp__zoo__feed", True),
        ("mcp__zoo__*", "mcp__zoo__feed", True),
        ("mcp__zoo__feed", "mcp__zoo__feed", True),
        ("mcp__zoo__feed", "mcp__zoo__count", False),
        ("mcp__zoo", "mcp__zoology__feed", False),
    ],
)
def test_what_a_pattern_means(pattern: str, name: str, is_it: bool) -> None:
    server = name.split("__")[1] if name.startswith("mcp__") else ""
    assert matches_tool(name, pattern, server) is is_it


@pytest.mark.parametrize("wanted", ["mcp__zoo", "mcp__zoo__*", "mcp__zoo__evil"])
def test_a_server_is_not_meant_by_the_beginning_of_its_name(wanted: str) -> None:
    assert not is_offered("mcp__zoo__evil__feed", [wanted], [], [], "zoo__evil")
    assert not is_offered("mcp__zoo__evil__feed", [], [], ["zoo"], "zoo__evil")
    assert is_offered("mcp__zoo__evil__feed", ["mcp__zoo__evil__feed"], [], [], "zoo__evil")


def test_what_is_denied_is_not_offered_whatever_is_wanted() -> None:
    assert is_offered("Read", None, [], [])
    assert not is_offered("Read", None, ["Read"], [])
    assert not is_offered("Read", ["Read"], ["Read"], [])
    assert not is_offered("Write", ["Read"], [], [])


def test_servers_that_are_named_come_with_their_tools() -> None:
    assert is_offered("mcp__zoo__feed", ["Read"], [], ["zoo"], "zoo")
    assert is_offered("mcp__my_zoo__feed", ["Read"], [], ["my zoo"], "my_zoo")
    assert not is_offered("mcp__ape__feed", ["Read"], [], ["zoo"], "ape")


@pytest.mark.parametrize(
    ("wanted", "above", "may_bypass", "mode"),
    [
        (None, "acceptEdits", False, "acceptEdits"),
        ("plan", "bypassPermissions", True, "plan"),
        ("dontAsk", "default", False, "dontAsk"),
        ("acceptEdits", "default", False, "acceptEdits"),
        ("acceptEdits", "plan", False, "plan"),
        ("acceptEdits", "dontAsk", False, "dontAsk"),
        ("bypassPermissions", "default", False, "default"),
        ("bypassPermissions", "default", True, "bypassPermissions"),
        ("bypassPermissions", "plan", True, "plan"),
        ("default", "bypassPermissions", True, "bypassPermissions"),
        ("nonsense", "default", True, "default"),
    ],
)
def test_a_mode_is_never_wider_than_the_callers_unless_it_was_let_in(
    wanted: str | None, above: str, may_bypass: bool, mode: str
) -> None:
    assert choose_mode(wanted, above, may_bypass=may_bypass) == mode


def test_a_short_name_does_not_lead_to_another_backend() -> None:
    api, local = resolve("sonnet"), resolve("openai:llama")

    assert choose_model("haiku", api) == resolve("haiku")
    assert choose_model("inherit", api) == choose_model(None, api) == api
    assert choose_model("haiku", local) == local
    assert choose_model("scripted:x.toml", local) == resolve("scripted:x.toml")
