"""Names of MCP tools and prompts."""

from __future__ import annotations

import pytest

from parley.mcp.naming import find_clash, is_denied, qualify, title
from parley.permissions.rules import matches_tool


def test_characters_that_a_model_api_rejects_in_a_name_become_underscores() -> None:
    assert qualify("my server.io", "läuft/gut") == "mcp__my_server_io__l_uft_gut"


def test_a_name_for_people_is_made_from_words() -> None:
    assert [title("add"), title("send_mail"), title("get-x")] == ["Add", "Send mail", "Get x"]


@pytest.mark.parametrize("pattern", ["mcp__git__push", "mcp__git", "mcp__git__*", "mcp__*__push"])
def test_a_tool_is_denied_by_its_name_its_server_or_a_glob(pattern: str) -> None:
    assert is_denied("git", "mcp__git__push", [pattern])
    assert not is_denied("github", "mcp__github__pull", [pattern])


def test_a_tool_is_not_denied_by_the_beginning_of_its_servers_name() -> None:
    assert not is_denied("git__hub", "mcp__git__hub__push", ["mcp__git"])
    assert is_denied("git__hub", "mcp__git__hub__push", ["mcp__git__hub"])


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("a.b", "a_b", True),
        ("a", "a__b", True),
        ("a", "a.", True),
        ("a", "a__", True),
        ("ä", "ö", True),
        ("a", "a_b", False),
        ("a", "A", False),
        ("a", "ab", False),
        ("a_b", "a-b", False),
    ],
)
def test_servers_with_indistinguishable_tools_clash(one: str, other: str, clash: bool) -> None:
    assert (find_clash(one, [other]), find_clash(other, [one])) == ((other, one) if clash else (None, None))


def test_a_denied_server_may_be_named_as_in_its_configuration() -> None:
    assert is_denied("a.b", "mcp__a_b__t", ["mcp__a.b"])
    assert matches_tool("mcp__a.b", "mcp__a_b__t", "deny", "a_b")
    assert not matches_tool("mcp__a.b", "mcp__a_c__t", "deny", "a_c")
