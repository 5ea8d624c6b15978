"""The names of what MCP servers offer."""

from __future__ import annotations

import pytest

from parley.mcp.naming import is_denied, qualified, title


def test_whatever_a_model_api_does_not_take_in_a_name_becomes_an_underscore() -> None:
    assert qualified("my server.io", "läuft/gut") == "mcp__my_server_io__l_uft_gut"


def test_a_name_for_people_is_made_from_words() -> None:
    assert [title("add"), title("send_mail"), title("get-x")] == ["Add", "Send mail", "Get x"]


@pytest.mark.parametrize("pattern", ["mcp__git__push", "mcp__git", "mcp__git__*", "mcp__*__push"])
def test_a_tool_is_denied_by_its_name_its_server_or_a_glob(pattern: str) -> None:
    assert is_denied("mcp__git__push", [pattern])
    assert not is_denied("mcp__github__pull", [pattern])
