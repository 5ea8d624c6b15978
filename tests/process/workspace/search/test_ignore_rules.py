"""The rules of ignore files, one by one and against git itself."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from parley.workspace.search.walk import LONGEST_RULE, MOST_RULES, IgnoreRules


def verdict(lines: list[str], path: str) -> bool | None:
    is_folder = path.endswith("/")
    path = path.rstrip("/")
    return IgnoreRules(lines).verdict(path, path.rpartition("/")[2], is_folder)


@pytest.mark.parametrize(
    ("lines", "path", "expected"),
    [
        (["*.log"], "a/b.log", True),
        (["*.log"], "b.txt", None),
        (["*.tar.gz"], "x.y.tar.gz", True),
        (["*.log", "!keep.log"], "keep.log", False),
        (["!keep.log", "*.log"], "keep.log", True),
        (["node_modules"], "a/node_modules/", True),
        (["node_modules/"], "a/node_modules/", True),
        (["node_modules/"], "a/node_modules", None),
        (["/build"], "build", True),
        (["/build"], "a/build", None),
        (["docs/_build"], "docs/_build/", True),
        (["docs/_build"], "x/docs/_build/", None),
        (["**/tmp"], "a/b/tmp", True),
        (["a/**/z"], "a/b/c/z", True),
        (["a/**"], "a/b", True),
        (["a/**"], "a/", None),
        (["a/***"], "a/b/c", True),
        (["/***/z"], "a/b/z", True),
        (["a***"], "ab", True),
        (["*.py[cod]"], "m.pyc", True),
        (["#note"], "#note", None),
        (["\\#note"], "#note", True),
        (["\\!bang"], "!bang", True),
        (["name  "], "name", True),
        (["name\\ "], "name ", True),
        (["a.txt\r"], "a.txt", True),
        (["", "   ", "/"], "a", None),
        (["{a,b}"], "{a,b}", True),
        (["{a,b}"], "a", None),
        (["foo\\bar"], "foobar", True),
        (["*", "!*/", "!*.c"], "a.c", False),
        (["*", "!*/", "!*.c"], "a.h", True),
        (["/*", "!/src"], "src/", False),
    ],
)
def test_the_last_rule_that_matches_decides(lines: list[str], path: str, expected: bool | None) -> None:
    assert verdict(lines, path) is expected


def test_rules_no_one_would_write_are_passed_over() -> None:
    assert verdict(["x" * (LONGEST_RULE + 1)], "x" * (LONGEST_RULE + 1)) is None
    assert verdict([*(f"n{number}" for number in range(MOST_RULES)), "late"], "late") is None


NAMES = ("a", "b", "ab", "a.c", "b.log")
PATHS = [f"{folder}/{name}" for folder in ("d", "d/e", "f") for name in NAMES] + list(NAMES)
rules = some.lists(
    some.builds(
        "".join,
        some.tuples(
            some.sampled_from(["", "", "!"]),
            some.sampled_from(["", "", "/", "**/", "d/", "d/**/", "*/", "***/"]),
            some.sampled_from(["a", "b", "*.c", "*.log", "a*", "?", "[ab]", "*", "d", "e", "**", "[!a]*"]),
            some.sampled_from(["", "", "/", "/**"]),
        ),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the one we compare with")
@settings(max_examples=40, deadline=None)
@given(rules)
def test_files_are_ignored_as_git_ignores_them(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
        (folder / ".gitignore").write_text("\n".join(lines) + "\n")
        for path in PATHS:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("x")

        asked = ["git", "-c", "core.excludesFile=", "ls-files", "--others", "--exclude-standard"]
        told = subprocess.run(asked, cwd=folder, check=True, capture_output=True, text=True).stdout.splitlines()

        assert sorted(set(told) - {".gitignore"}) == sorted(path for path in PATHS if not hidden(lines, path))


def hidden(lines: list[str], path: str) -> bool:
    """Whether a rule hides a file, or a folder above it."""
    pieces = path.split("/")
    folders = ["/".join(pieces[:count]) + "/" for count in range(1, len(pieces))]
    return any(verdict(lines, folder) for folder in folders) or bool(verdict(lines, path))
