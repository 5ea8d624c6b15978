"""What a query finds among deferred tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.tools.base import InvalidInput, read_input
from parley.tools.tool_search import MAX_NAMED, ToolSearch, make_entry, no_match, search, select, split_words
from tests.helpers.tools import ToolHarness


class Described:
    """A tool as far as it is searched."""

    reads_only = True
    input = Struct

    def __init__(self, name: str, description: str = "", hint: str = "") -> None:
        self.name = name
        self.description = description
        self.search_hint = hint
        self.server_name = name.removeprefix("mcp__").partition("__")[0]


TOOLS: dict[str, Any] = {
    tool.name: tool
    for tool in (
        Described("mcp__git__log", "Show the history of commits"),
        Described("mcp__git__createBranch", "Make a branch from a commit"),
        Described("mcp__mail__log", "Read the log of deliveries"),
        Described("mcp__mail__send", "Send a message", hint="email letter"),
        Described("WebFetch", "Read a page of the web"),
    )
}
ENTRIES = [make_entry(name, tool) for name, tool in TOOLS.items()]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("log", ["mcp__git__log", "mcp__mail__log"]),
        ("git log", ["mcp__git__log", "mcp__git__createBranch", "mcp__mail__log"]),
        ("+git log", ["mcp__git__log", "mcp__git__createBranch"]),
        ("+git +branch", ["mcp__git__createBranch"]),
        ("create BRANCH", ["mcp__git__createBranch"]),
        ("history", ["mcp__git__log"]),
        ("letter", ["mcp__mail__send"]),
        ("deliver", ["mcp__mail__log"]),
        ("web page", ["WebFetch"]),
        ("+git page", ["mcp__git__log", "mcp__git__createBranch"]),
        ("+nothing log", []),
        ("zebra", []),
        ("+", []),
    ],
)
def test_keywords_find_the_best_first_and_required_words_must_occur(query: str, found: list[str]) -> None:
    assert search(query, ENTRIES, 5) == found


def test_keywords_find_at_most_so_many() -> None:
    assert search("log", ENTRIES, 1) == ["mcp__git__log"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("mcp__git__log,WebFetch", ["mcp__git__log", "WebFetch"]),
        (" webfetch , WebFetch", ["WebFetch"]),
        ("send,createbranch", ["mcp__mail__send", "mcp__git__createBranch"]),
        ("log", []),
        ("nothing,mcp__mail__log,", ["mcp__mail__log"]),
    ],
)
def test_tools_are_selected_by_name_or_by_a_short_name_that_is_unique(asked: str, found: list[str]) -> None:
    assert select(asked.split(","), list(TOOLS)) == found


def test_names_are_split_into_words() -> None:
    assert split_words("mcp__git-hub__createIssue2") == ["mcp", "git", "hub", "create", "issue2"]


def test_a_search_without_a_match_names_what_exists_and_what_is_still_connecting() -> None:
    text = no_match("zebra", TOOLS, ["slow"])
    assert text.startswith("No deferred tool matches 'zebra'. Deferred tools: mcp__git__log, ")
    assert text.endswith("WebFetch. Still connecting: slow.")
    many = {f"tool{number}": TOOLS["WebFetch"] for number in range(MAX_NAMED + 7)}
    assert no_match("zebra", many, []).endswith("and 7 more.")


@pytest.mark.parametrize("input", [{"query": 5}, {}, {"query": "a", "max_results": 0}, {"query": "a", "other": 1}])
def test_invalid_input_is_refused(input: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="ToolSearch failed due to the following issue"):
        read_input(ToolSearch(), input)


def test_without_deferred_tools_there_is_nothing_to_search(tmp_path: Path) -> None:
    harness = ToolHarness(tmp_path)
    with pytest.raises(ToolError, match="No tools are deferred"):
        harness.call(ToolSearch(), query="log")
