"""Which names a matcher matches."""

from __future__ import annotations

import pytest

from parley.hooks.matcher import Matcher


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
