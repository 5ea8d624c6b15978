"""Markdown on a terminal: what is printed, whatever the pieces in which it arrives."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from parley.terminal.rendering.markdown import MarkdownAnswer
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import cell_width
from parley.terminal.rendering.transcript import Answer, PlainAnswer
from tests.unit.terminal.rendering.test_blocks import cut_texts

SGR = re.compile("\x1b\\[[0-9;]*m")
PLAIN = Styles(attributes=False)
words = st.text(
    st.characters(categories=["L", "Nd"], exclude_characters="\u115f\u1160\u3164\uffa0"), min_size=1, max_size=12
)


def print_all(answer: Answer, pieces: list[str]) -> list[str]:
    """Everything that is printed, with a frame drawn after every piece."""
    lines: list[str] = []
    for piece in pieces:
        answer.feed(piece)
        lines += answer.take()
        answer.open_lines()
    return lines + answer.finish()


def render(text: str, width: int = 80, styles: Styles = PLAIN) -> list[str]:
    return print_all(MarkdownAnswer(lambda: width, styles), [text])


@given(cut_texts())
def test_the_pieces_in_which_a_text_arrives_make_no_difference(given: tuple[str, list[str]]) -> None:
    text, pieces = given
    assert print_all(MarkdownAnswer(lambda: 60, PLAIN), pieces) == render(text, 60)


@given(st.lists(st.lists(words, min_size=1, max_size=12).map(" ".join), max_size=6), st.data())
def test_every_word_is_printed_once_and_in_order(paragraphs: list[str], data: st.DataObject) -> None:
    text = "\n\n".join(paragraphs)
    cut = data.draw(st.integers(0, len(text)))
    printed = " ".join(print_all(MarkdownAnswer(lambda: 40, PLAIN), [text[:cut], text[cut:]]))

    assert "".join(printed.split()) == "".join(text.split())


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 200))
def test_plain_text_is_printed_once_and_in_order(text: str, cut: int) -> None:
    whole = print_all(PlainAnswer(lambda: 40), [text])

    assert print_all(PlainAnswer(lambda: 40), [text[:cut], text[cut:]]) == whole


def test_each_kind_of_block_looks_like_one() -> None:
    text = (
        "# Title\n\nA **bold** and `code` [link](https://example.com/x).\n\n"
        "1. one\n1. two\n   - inner\n\n| a | b |\n|---|---|\n| 1 | 你好 |\n\n"
        "> quoted\n\n```py\nx = 1\n\n\ty\n```\nEnd <b>\n"
    )
    assert render(text) == [
        "Title",
        "",
        "A bold and code link (https://example.com/x).",
        "",
        " 1. one",
        " 2. two",
        "     • inner",
        "",
        " a  b",
        " ───────",
        " 1  你好",
        "",
        "▌ quoted",
        "",
        "```py",
        "x = 1",
        "",
        "\ty",
        "```",
        "",
        "End <b>",
    ]


def test_nothing_but_code_is_wider_than_the_window() -> None:
    text = "# A title that is long\n\n- an item that is long enough\n\n"
    text += "| first | second column |\n|---|---|\n| 你好你好 | x |\n"

    assert all(cell_width(line) <= 20 for line in render(text, 20))


def test_no_colour_leaves_bold_and_removes_colours() -> None:
    text = "**bold** and `code`\n\n```\nx\n```\n"

    assert {code for line in render(text, styles=Styles(color=False)) for code in SGR.findall(line)} == {
        "\x1b[1m",
        "\x1b[2m",
        "\x1b[0m",
    }
    assert "\x1b[36mcode\x1b[0m" in render(text, styles=Styles())[0]


def test_escapes_in_any_disguise_have_no_effect() -> None:
    text = "a\x1b[31m \x1b]0;t\x07 &#x202e;evil &#27;[2J `\x9bm`\n\n```\x1b[1m\n\x1b[5m\n```\n\n[x\x1b[0m](http://e/\x1b[1m)\n"
    printed = "\n".join(render(text))

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", printed)
    assert "\\x1b[31m" in printed


def test_link_references_and_images_are_shown_as_they_are_written() -> None:
    assert render("See [the page][1].\n\n[1]: https://example.com\n") == [
        "See [the page][1].",
        "",
        "[1]: https://example.com",
    ]
    assert render("![alt](http://x/y.png)") == ["!alt (http://x/y.png)"]


def test_the_open_block_is_shown_as_it_looks_so_far() -> None:
    answer = MarkdownAnswer(lambda: 80, PLAIN)
    answer.feed("Done.\n\nSome **bold** te")

    assert answer.take() == ["Done."]
    assert answer.open_lines() == ["", "Some bold te"]
    assert answer.finish() == ["", "Some bold te"]


def test_only_the_end_of_a_block_that_is_very_long_is_shown_live() -> None:
    answer = MarkdownAnswer(lambda: 80, PLAIN)
    answer.feed("start " + "word " * 20_000 + "end")

    assert answer.take() == []
    assert answer.open_lines()[-1].endswith("end")
    assert len(answer.open_lines()) < 200
    assert answer.finish()[0].startswith("start word")
