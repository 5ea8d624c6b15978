"""Which proven lines rules allow."""

from __future__ import annotations

import pytest

from parley.permissions.shell import CommandLine, is_allowed_by, parse_strict


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
