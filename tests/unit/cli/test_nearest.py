"""Mistyped words."""

from __future__ import annotations

import pytest

from parley.cli.main import SUBCOMMANDS
from parley.cli.nearest import count_typos, find_mistyped, find_nearest
from parley.protocol.options import BY_FLAG


@pytest.mark.parametrize(
    ("one", "other", "typos"),
    [
        ("", "", 0),
        ("abc", "abc", 0),
        ("abc", "", 3),
        ("sesions", "sessions", 1),
        ("hlep", "help", 1),
        ("modle", "model", 1),
        ("ca", "abc", 3),
        ("kitten", "sitting", 3),
    ],
)
def test_typos_are_letters_inserted_removed_replaced_or_swapped(one: str, other: str, typos: int) -> None:
    assert (count_typos(one, other), count_typos(other, one)) == (typos, typos)


@pytest.mark.parametrize(
    "word", ["hello", "fix", "explain", "lint", "unit", "test", "map", "main", "plan", "hell", "commit"]
)
def test_ordinary_words_are_not_taken_for_subcommands(word: str) -> None:
    assert find_mistyped(word, SUBCOMMANDS) is None


@pytest.mark.parametrize("name", sorted(SUBCOMMANDS))
def test_two_swapped_letters_are_recognised_in_every_subcommand(name: str) -> None:
    swapped = name[0] + name[2] + name[1] + name[3:]

    assert find_mistyped(swapped, SUBCOMMANDS) == name


def test_nothing_is_near_if_nothing_is_known() -> None:
    assert (find_mistyped("x", []), find_nearest("x", [])) == (None, "")


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--modle", " (did you mean --model?)"),
        ("--permision-mode", " (did you mean --permission-mode?)"),
        ("--maxturns", " (did you mean --max-turns?)"),
        ("--json", ""),
        ("--zzz", ""),
    ],
)
def test_a_flag_is_hinted_at_only_if_it_is_similar(flag: str, hint: str) -> None:
    assert find_nearest(flag, BY_FLAG) == hint
