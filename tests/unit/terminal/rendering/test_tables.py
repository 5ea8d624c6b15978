"""Tables and human figures."""

from __future__ import annotations

import pytest

from parley.terminal.rendering.text import cell_width, format_age, format_size, format_table


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (5_249, "5.2 kB"),
        (9_950, "10 kB"),
        (999_400, "999 kB"),
        (999_600, "1.0 MB"),
        (13_000_000, "13 MB"),
        (2_500_000_000, "2.5 GB"),
        (7 * 10**15, "7000 TB"),
    ],
)
def test_a_size_has_two_or_three_digits_and_a_unit(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "just now"), (59, "just now"), (60, "1 min ago"), (7_199, "1 h ago"), (86_400 * 12, "12 d ago")],
)
def test_an_age_has_one_unit(seconds: float, text: str) -> None:
    assert format_age(seconds) == text


def test_the_columns_of_a_table_are_aligned_also_with_wide_letters() -> None:
    rows = [("日本", "5", "x"), ("ab", "1000", "a long text"), ("e\u0301", "7", "")]
    lines = format_table(("NAME", "SIZE", "TITLE"), rows, right=("SIZE",), width=20)

    assert lines == [
        "NAME  SIZE  TITLE",
        "日本     5  x",
        "ab    1000  a long …",
        "e\u0301        7",
    ]
    assert max(map(cell_width, lines)) == 20
