"""What the text in the parentheses of a Bash rule matches, and which proven lines rules allow."""

from __future__ import annotations

import pytest

from parley.permissions.shell.command_rules import is_allowed_by, is_exact, is_open_ended, matches
from parley.permissions.shell.strict_parser import CommandLine, parse_strict


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


def allowed(text: str, *patterns: str, cwd: str = "", writes: bool = False) -> bool:
    line = parse_strict(text)
    assert isinstance(line, CommandLine), line
    return is_allowed_by(line, patterns, cwd=cwd, writes=writes)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("npm test", "npm test"),
        ("npm test -- -x", "npm test:*"),
        ("npm test && ls | head", "npm test:*"),
        ("timeout 60 npm test", "npm test:*"),
        ("nohup nice npm test", "npm test:*"),
        ("CI=1 npm test 2>&1", "npm test"),
        ("npm   test", "npm test"),
        ("rm *.tmp", "rm *"),
        ("rm src/*.tmp", "rm:*"),
        ("ls | xargs rm", "rm *"),
        ("ls | xargs -- rm -f", "rm -f *"),
        ("cd sub && npm test", "npm test"),
        ("sleep 1.5; touch zz", "sleep 1.5; touch zz"),
        ("echo x > a", "echo x > a"),
        ("ls && echo x > a", "echo x > a"),
        ("export A=1", "export A=1"),
        ("sudo ls", "sudo ls"),
        ("timeout 5 sudo ls", "sudo ls"),
        ("FOO=1 x", "FOO=1 x"),
        ("/opt/tool run", "/opt/tool *"),
        ("tee a <<'E'\nx\nE", "tee:*"),
        ("cat <<'E' | tee a\nx\nE", "tee a"),
        ("cat <<'E' && npm test\nx\nE", "npm test"),
        ("sh <<'E'\nx\nE", "sh <<'E'\nx\nE"),
        ("cat <<'E' | sh\nx\nE", "cat <<'E' | sh\nx\nE"),
    ],
)
def test_a_line_is_allowed(text: str, pattern: str) -> None:
    assert allowed(text, pattern)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("npm test", "npm tes"),
        ("npm test; rm x", "npm test:*"),
        ("FOO=1 npm test", "npm test:*"),
        ("npm test > out", "npm test:*"),
        ("A=1", "*"),
        ("export A=1", "*"),
        ("sudo ls", "*"),
        ("timeout 5 sudo ls", "sudo *"),
        ("timeout x rm", "*"),
        ("rm *.tmp", "rm * x"),
        ("rm * x", "rm * x"),
        ("rm *", "r*m"),
        ("ls | xargs rm", "rm"),
        ("find . -delete", "find *"),
        ("/usr/bin/env rm", "/usr/bin/env *"),
        ("/usr/bin/timeout 5 rm", "/usr/bin/timeout *"),
        ("cd sub && ./run", "./run"),
        ("cd sub && git push", "git push"),
        ("cd sub; A=1", "A=1"),
    ],
)
def test_a_line_is_not_allowed(text: str, pattern: str) -> None:
    assert not allowed(text, pattern)


def test_nothing_is_allowed_by_no_rule_but_reading() -> None:
    assert allowed("ls")
    assert not allowed("npm test")


def test_a_redirection_into_a_file_needs_a_judgement_of_its_own() -> None:
    assert not allowed("echo x > a")
    assert allowed("echo x > a", writes=True)
    assert not allowed("rm x > a", writes=True)


def test_going_where_we_are_is_not_a_move() -> None:
    assert allowed("cd /w && git push", "git push", cwd="/w")
    assert not allowed("cd /v && git push", "git push", cwd="/w")
