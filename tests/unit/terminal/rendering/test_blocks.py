"""Markdown is split into blocks while it arrives: every character once, however it is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.terminal.rendering.markdown import BlockSplitter, MarkdownBlock

LINES = (
    *("", "text", "more *text* `code`", "# Title", "===", "---", "- item", "* other", "  - nested", "1. one", "1. two"),
    *("   continued", "```", "```py", "~~~", "   ```", "````", "    indented", "> quote", "| a | b |", "|---|---|"),
    *("| 1 | 2 |", "[x]: http://y", "<div>", "\tx", "-", "2)", "- ```", "  ```", "a\rb", "你好 👩‍👧"),
)
markdown = st.lists(st.sampled_from(LINES), max_size=14).map("\n".join) | st.text(
    st.sampled_from("`~-#>| \n\r\tab1.*\\")
)


def split(pieces: list[str]) -> list[MarkdownBlock]:
    splitter = BlockSplitter()
    return [*(block for piece in pieces for block in splitter.feed(piece)), *splitter.finish()]


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(markdown)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=20)))
    return text, [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(cut_texts())
def test_the_blocks_are_the_text_every_character_once(given: tuple[str, list[str]]) -> None:
    text, pieces = given
    assert "".join(block.source for block in split(pieces)) == text


@given(cut_texts())
def test_how_the_text_is_cut_into_pieces_makes_no_difference(given: tuple[str, list[str]]) -> None:
    text, pieces = given
    assert split(pieces) == split([text])


@given(cut_texts())
def test_the_finished_blocks_and_the_open_text_are_what_has_arrived(given: tuple[str, list[str]]) -> None:
    splitter, arrived, finished = BlockSplitter(), "", ""
    for piece in given[1]:
        arrived += piece
        finished += "".join(block.source for block in splitter.feed(piece))
        assert finished + splitter.open == arrived == finished + splitter.open_block.source


@pytest.mark.parametrize(
    ("arrived", "finished", "rest"),
    [
        ("One\n\nTwo", ["One\n\n"], "Two"),
        ("One\nstill one\n", [], "One\nstill one\n"),
        ("- a\n- b\n- c", ["- a\n"], "- b\n- c"),
        ("# Title\ntext\n", ["# Title\n"], "text\n"),
        ("- a\n\n", [], "- a\n\n"),
        ("    code\n\n", [], "    code\n\n"),
        ("Title\n-", [], "Title\n-"),
        ("```py\nx = 1\ny", ["```py\n", "x = 1\n"], "y"),
        ("a | b\n", [], "a | b\n"),
    ],
)
def test_a_block_is_finished_when_nothing_can_change_it(arrived: str, finished: list[str], rest: str) -> None:
    splitter = BlockSplitter()

    assert [block.source for block in splitter.feed(arrived)] == finished
    assert splitter.open == rest


def test_items_of_a_list_keep_counting_however_they_are_numbered() -> None:
    numbers = [block.number for block in split(["1. a\n", "1. b\n", "1. c\n"])]

    assert numbers == [1, 2, 3]


def test_a_fence_ends_with_one_of_its_kind_that_is_as_long() -> None:
    kinds = [block.kind for block in split(["````\n", "```\n", "~~~~\n", "    ````\n", "````  \n", "text"])]

    assert kinds == ["fence", "code", "code", "code", "end", "block"]
