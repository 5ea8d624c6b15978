"""What the text in the parentheses of a Bash rule matches."""

from __future__ import annotations

import pytest

from parley.permissions.shell import matches
from parley.permissions.shell.rule_patterns import is_exact, is_open_ended


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("git status", "git status"),
        ("git status", "  git status "),
        ("npm run test:*", "npm run test"),
        ("npm run test:*", "npm run test --all"),
        ("npm run test *", "npm run test"),
        ("git * main", "git push origin main"),
        ("git * main", "git checkout main"),
        ("* --version", "node --version"),
        ("ls*", "lsof"),
        ("ls*", "ls"),
        ("a *b* c *", "a xbx c"),
        ("a *b* c *", "a b c d"),
        ("*", "anything at all"),
        ("", "anything at all"),
        ("echo \\*", "echo *"),
        ("x **", "x y"),
    ],
)
def test_a_pattern_matches(pattern: str, command: str) -> None:
    assert matches(pattern, command)


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("git status", "git status -s"),
        ("git status", "git  status"),
        ("npm run test:*", "npm run testing"),
        ("npm run test *", "npm run tes"),
        ("git * main", "git main"),
        ("git * main", "git push origin main2"),
        ("ls *", "lsof"),
        ("ab*bc", "abc"),
        ("a*b*c", "acb"),
        ("echo \\*", "echo x"),
        ("rm 'a b'", "rm 'a\tb'"),
    ],
)
def test_a_pattern_does_not_match(pattern: str, command: str) -> None:
    assert not matches(pattern, command)


@pytest.mark.parametrize(
    ("pattern", "exact", "opened"),
    [("ls", True, False), ("ls:*", False, True), ("ls*", False, True), ("* x", False, False), ("", False, True)],
)
def test_a_pattern_knows_whether_it_has_a_star_and_whether_one_at_its_end(
    pattern: str, exact: bool, opened: bool
) -> None:
    assert (is_exact(pattern), is_open_ended(pattern)) == (exact, opened)
