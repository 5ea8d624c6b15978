"""Text that is safe on a terminal, and its width."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.terminal.rendering.text import cell_width, mask_hidden, reveal_line, reveal_text, shorten, wrap

HARMFUL = ("Cc", "Cs", "Zl", "Zp")
OVERRIDES = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
anything = st.text(st.characters(exclude_categories=[]) | st.sampled_from("\x1b[]\x9b\u202e\u2066\r\n\t\x07;m"))


def is_harmless(char: str) -> bool:
    return char in "\n\t" or not (unicodedata.category(char) in HARMFUL or char in OVERRIDES)


@given(anything)
def test_no_control_character_is_left(text: str) -> None:
    assert all(map(is_harmless, reveal_text(text)))
    assert "\n" not in reveal_line(text)


@given(anything)
def test_masked_text_has_no_control_character_and_keeps_its_length(text: str) -> None:
    masked = mask_hidden(text)
    assert all(map(is_harmless, masked))
    assert len(masked) == len(text)
    assert mask_hidden("👩\u200d👧 ❤️ é 你好") == "👩\u200d👧 ❤️ é 你好"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb", "a\\rb"),
        ("a\r\nb", "a\nb"),
        ("user\u202egnp.exe", "user\\u202egnp.exe"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("a\u2028b", "a\\u2028b"),
        ("\ud800", "\\ud800"),
        ("tab\tstays", "tab\tstays"),
        ("👩\u200d👧 ❤️ é 你好", "👩\u200d👧 ❤️ é 你好"),
    ],
)
def test_what_has_an_effect_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert reveal_text(text) == shown


@given(st.text(st.characters(codec="latin-1", categories=["L", "N", "P", "S"])))
def test_printable_text_is_unchanged(text: str) -> None:
    assert reveal_text(text) == text


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("abc", 3),
        ("你好", 4),
        ("e\u0301", 1),
        ("👩\u200d👩\u200d👧", 2),
        ("❤️", 2),
        ("👍🏽", 2),
        ("🇩🇪", 2),
        ("ｶ", 1),
        ("", 0),
    ],
)
def test_the_width_is_that_of_the_glyphs(text: str, cells: int) -> None:
    assert cell_width(text) == cells


@given(st.text(), st.integers(0, 30))
def test_a_shortened_line_fits(text: str, cells: int) -> None:
    assert cell_width(shorten(text, cells)) <= cells
    if cell_width(text) <= cells:
        assert shorten(text, cells) == text


@given(st.text(st.sampled_from("ab你 \n👍")), st.integers(2, 12))
def test_wrapped_lines_fit_and_keep_every_word(text: str, cells: int) -> None:
    lines = wrap(text, cells)

    assert all(cell_width(line) <= cells for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
