"""The names in the arguments of a command."""

from __future__ import annotations

import pytest

from parley.permissions.shell.arguments import UnwrappedCommand
from parley.permissions.shell.prefix_rules import file_words


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        ("dd if=x of=./.mcp.json", ["if=x", "if", "x", "of=./.mcp.json", "of", "./.mcp.json"]),
        ("cp -S.b -S.a x", ["-S.b.b", "-S.a.b", "x.b", "-S.b.a", "-S.a.a", "x.a", ".b", "b", ".a", "a", "x"]),
    ],
)
def test_names_come_in_the_order_of_the_words_because_the_first_problem_is_reported(
    argv: str, names: list[str]
) -> None:
    words = tuple(argv.split())

    assert [name for _, name in file_words(UnwrappedCommand(words, words, ()))] == names
