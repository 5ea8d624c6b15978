"""Terminal output becomes an SVG that looks like it."""

from __future__ import annotations

from xml.etree import ElementTree

import pictures
import pytest
from pictures import BACKGROUND, COLORS, FOREGROUND, Run, Style, split_runs

SVG = "{http://www.w3.org/2000/svg}"


def test_a_style_lasts_until_the_next_sequence_also_across_lines() -> None:
    lines = ["plain \x1b[1;32mbold", "still\x1b[0m not"]

    assert list(split_runs(lines)) == [
        [Run(0, "plain ", Style()), Run(6, "bold", Style(color=COLORS[2], bold=True))],
        [Run(0, "still", Style(color=COLORS[2], bold=True)), Run(5, " not", Style())],
    ]


@pytest.mark.parametrize(
    ("sequence", "style"),
    [
        ("91", Style(color=COLORS[9])),
        ("38;5;196", Style(color="#ff0000")),
        ("38;5;244", Style(color="#808080")),
        ("38;2;1;2;3", Style(color="#010203")),
        ("48;5;4", Style(background=COLORS[4])),
        ("1;31;39;22", Style()),
        ("7", Style(inverse=True)),
        ("", Style()),
    ],
)
def test_a_sequence_sets_the_style(sequence: str, style: Style) -> None:
    assert pictures.restyle(Style(), sequence) == style


def test_spaces_and_markup_characters_are_kept() -> None:
    root = ElementTree.fromstring(pictures.draw(["a  <b> & c"], "title"))
    [text] = root.iter(f"{SVG}text")

    assert text.text == "a  <b> & c".replace(" ", "\N{NO-BREAK SPACE}")
    assert text.get("fill") == FOREGROUND


def test_inverse_text_swaps_the_colours() -> None:
    root = ElementTree.fromstring(pictures.draw(["\x1b[7mx"], "title"))
    [text] = root.iter(f"{SVG}text")

    assert text.get("fill") == BACKGROUND
    assert list(root.iter(f"{SVG}rect"))[-1].get("fill") == FOREGROUND
