"""The frontmatter of Markdown files."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.settings.files.frontmatter import FrontmatterError, parse_names, split_frontmatter


def head(*lines: str) -> dict[str, object]:
    return split_frontmatter("\n".join(["---", *lines, "---", "Body."]))[0]


def test_a_file_without_a_head_is_all_body() -> None:
    assert split_frontmatter("# Title\n---\nmore") == ({}, "# Title\n---\nmore")


def test_the_body_is_what_stands_after_the_head() -> None:
    assert split_frontmatter("\ufeff---\nname: a\n---\n\nYou help.\n\n---\nmore\n") == (
        {"name": "a"},
        "You help.\n\n---\nmore",
    )


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("k: plain words", "plain words"),
        ("k: Use when: it breaks", "Use when: it breaks"),
        ("k: 12", 12),
        ("k: 1.5", 1.5),
        ("k: true", True),
        ("k:", None),
        ("k: a # said aside", "a"),
        ("k: C# is a language", "C# is a language"),
        ('k: "a \\"b\\" # c\\n"', 'a "b" # c\n'),
        ("k: 'it''s'  # so", "it's"),
        ('k: [Read, "a, b", Bash(git log, x)]', ["Read", "a, b", "Bash(git log, x)"]),
        ("k: []", []),
    ],
)
def test_values(line: str, value: object) -> None:
    assert head(line) == {"k": value}


def test_lists_and_maps_are_nested_by_indentation() -> None:
    found = head(
        "tools:", "  - Read", "  - Bash(ls *)", "hooks:", "  Stop:", "  - command: ls", "    timeout: 3", "n: 1"
    )
    assert found == {
        "tools": ["Read", "Bash(ls *)"],
        "hooks": {"Stop": [{"command": "ls", "timeout": 3}]},
        "n": 1,
    }


def test_longer_texts() -> None:
    found = head("a: |", "  one", "    two", "", "  three", "b: >-", "  one", "  two", "c: one", "  two", "d: x")
    assert found == {"a": "one\n  two\n\nthree", "b": "one two", "c": "one two", "d": "x"}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("name",), "line 2.*key: value"),
        (("a: 1", "a: 2"), "line 3.*duplicate key"),
        (("k: [a, b",), "line 2.*no closing bracket"),
        (('k: "a',), "line 2.*not closed"),
        (("k: {a: 1}",), "braces"),
        (("k:", "\t- a"), "tabs"),
        (("  a: 1", "b: 2"), "line 3.*unexpected indentation"),
    ],
)
def test_what_cannot_be_read_is_reported_with_its_line(lines: tuple[str, ...], words: str) -> None:
    with pytest.raises(FrontmatterError, match=words):
        head(*lines)


def test_a_head_without_an_end_is_broken() -> None:
    with pytest.raises(FrontmatterError, match="no closing ---"):
        split_frontmatter("---\nname: a\n")


@given(st.text(alphabet="ab-:|>[]'\"#{}, \n\t~1", max_size=60))
def test_any_text_is_read_or_broken(text: str) -> None:
    with contextlib.suppress(FrontmatterError):
        split_frontmatter(f"---\n{text}\n---\n")


def test_names_come_as_a_list_or_with_commas() -> None:
    assert parse_names("Read, Bash(a, b), Grep") == ["Read", "Bash(a, b)", "Grep"]
    assert parse_names(["Read"]) == ["Read"]
    assert parse_names(None) == []


def test_a_line_of_blanks_is_refused_without_backtracking() -> None:
    with pytest.raises(FrontmatterError, match="expected `key: value`"):
        split_frontmatter(f"---\na{' ' * 190_000}x\n---\n")


def test_blanks_before_the_colon_are_not_part_of_a_key() -> None:
    assert split_frontmatter("---\na b\t : 1\n'c' : 2\n---\n")[0] == {"a b": 1, "c": 2}
