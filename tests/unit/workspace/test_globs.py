"""Path patterns, against Python's own matching of names and a plain description of `**`."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as some

from parley.workspace.globs import MOST_ALTERNATIVES, BadGlob, PathGlob, expand_braces, split_prefix

names = some.text("ab.-", min_size=1, max_size=6)
pieces = some.lists(some.sampled_from(["a", "b", ".", "-", "*", "?", "[ab]", "[!a]", "[a-b]"]), min_size=1, max_size=6)


def matches(pattern: str, path: str) -> bool:
    return PathGlob.of(pattern).matches(path)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "sub/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "x/y/a.py", True),
        ("src/**", "src/a/b", True),
        ("src/**", "src", False),
        ("src/**/test_*.py", "src/test_a.py", True),
        ("src/**/test_*.py", "lib/test_a.py", False),
        ("**/a/**/b", "x/a/y/z/b", True),
        ("**/a/**/b", "a/b", True),
        ("**/**/b", "b", True),
        ("./src/a.py", "src/a.py", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("*", ".hidden", True),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("[^a-c]x", "dx", True),
        ("[]]", "]", True),
        ("[c-a]", "b", False),
        ("[!c-a]", "b", True),
        ("[ab", "[ab", True),
        (r"\*.py", "*.py", True),
        (r"\*.py", "a.py", False),
        ("*.{ts,tsx}", "a.tsx", True),
        ("{src,lib}/**/*.{a,{b,c}}", "lib/x/y.c", True),
        ("{a,b", "{a,b", True),
        ("{a}", "a", True),
        ("*\n", "a\n", True),
        ("ä*", "äö", True),
    ],
)
def test_a_pattern_matches_whole_paths(pattern: str, path: str, expected: bool) -> None:
    assert matches(pattern, path) is expected


@given(pieces, names)
def test_names_match_as_python_matches_them(pattern: list[str], name: str) -> None:
    joined = "".join(pattern)
    if joined in (".", "**"):  # these mean something else in a path
        return

    assert matches(joined, name) is fnmatch.fnmatchcase(name, joined)


def described(pattern: list[str], path: list[str]) -> bool:
    if not pattern or not path:
        return not path and not [piece for piece in pattern if piece != "**"]
    first, *rest = pattern
    if first == "**":
        return (described(rest, path) if rest else True) or described(pattern, path[1:])
    return fnmatch.fnmatchcase(path[0], first) and described(rest, path[1:])


@given(
    some.lists(some.sampled_from(["**", "a", "b", "*", "a*"]), min_size=1, max_size=6),
    some.lists(some.sampled_from(["a", "b", "ab"]), min_size=1, max_size=6),
)
def test_two_stars_stand_for_any_number_of_folders(pattern: list[str], path: list[str]) -> None:
    if pattern[-1] != "**":  # at the end they need something to stand for
        assert matches("/".join(pattern), "/".join(path)) is described(pattern, path)


def test_a_folder_in_which_nothing_can_match_is_not_entered() -> None:
    glob = PathGlob.of("src/*/a.py")

    inside = glob.enter(glob.start, "src")

    assert not glob.enter(glob.start, "lib")
    assert glob.enter(inside, "x")
    assert not glob.enter(glob.enter(inside, "x"), "deeper")


def test_a_hostile_pattern_is_matched_in_little_time() -> None:
    # Tried the plain way, either of these would take longer than the universe has.
    assert not matches("*a" * 40 + "b", "a" * 250)
    assert not matches("**/a/" * 12 + "b", "a/" * 150 + "c")


@pytest.mark.parametrize("pattern", ["{a,b}" * 20, "{" * 1000, "{" + ",a" * (MOST_ALTERNATIVES + 1) + "}"])
def test_braces_that_stand_for_too_much_are_refused(pattern: str) -> None:
    with pytest.raises(BadGlob):
        PathGlob.of(pattern)


def test_a_brace_behind_a_backslash_is_a_character() -> None:
    assert expand_braces(r"\{a,b}") == [r"\{a,b}"]
    assert matches(r"\{a,b}", "{a,b}")


@pytest.mark.parametrize(
    ("pattern", "prefix", "rest"),
    [
        ("src/lib/**/*.py", "src/lib", "**/*.py"),
        ("*.py", "", "*.py"),
        ("/etc/*.conf", "/etc", "*.conf"),
        ("/*.conf", "/", "*.conf"),
        ("../up/a?.txt", "../up", "a?.txt"),
        ("src/", "src", ""),
        ("{a,b}/c", "", "{a,b}/c"),
    ],
)
def test_the_folders_a_pattern_names_outright_are_split_off(pattern: str, prefix: str, rest: str) -> None:
    assert split_prefix(pattern) == (prefix, rest)
