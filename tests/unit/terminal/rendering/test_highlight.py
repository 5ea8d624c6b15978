"""Colours of code in answers and diffs: they never change the text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.terminal.rendering.details import compare, paint_diff, proposed_lines
from parley.terminal.rendering.highlight import find_lexer, highlight
from parley.terminal.rendering.markdown import MarkdownAnswer
from parley.terminal.rendering.style import THEMES, Styles
from parley.terminal.rendering.text import reveal_text
from tests.helpers.hostile_text import SEQUENCES

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
PYTHON = 'def f(a: int) -> str:\n    """Say\n    it."""\n    return "x"  # why\n'


def strip(text: str) -> str:
    return COLOURS.sub("", text)


def render(markdown: str, chars: int, styles: Styles) -> list[str]:
    answer, lines = MarkdownAnswer(lambda: 80, styles), []
    for at in range(0, len(markdown), chars):
        answer.feed(markdown[at : at + chars])
        lines += answer.take()
    return [*lines, *answer.finish()]


@pytest.mark.parametrize("chars", [1, 7, 1000])
def test_code_has_the_same_colours_however_it_arrives(chars: int) -> None:
    lines = render(f"```python\n{PYTHON}```\n", chars, Styles())

    assert [strip(line) for line in lines] == ["```python", *PYTHON.splitlines(), "```"]
    assert "\x1b[35mdef\x1b[0m" in lines[1]
    assert lines[3] == '\x1b[32m    it."""\x1b[0m'  # inside of a string that began above
    assert "\x1b[2m# why\x1b[0m" in lines[4]


def test_code_of_an_unknown_language_and_text_without_colours_are_plain() -> None:
    assert render("```nolanguage\nif x\n```\n", 1000, Styles())[1] == "\x1b[36mif x\x1b[0m"
    assert render(f"```python\n{PYTHON}```\n", 1000, Styles(color=False))[1] == "def f(a: int) -> str:"


@pytest.mark.parametrize("language", ["python", "bash", "json", "html", "c++", "diff", "toml", "sql"])
@given(st.text(max_size=200) | st.sampled_from([f"a{one}b" for one in SEQUENCES.values()]))
def test_colours_never_change_a_text(language: str, text: str) -> None:
    lexer = find_lexer(language)
    assert lexer is not None
    safe = reveal_text(text)
    painted = highlight(safe, lexer, Styles(theme=THEMES["light"]))

    assert painted is None or strip(painted) == safe


def test_an_edit_is_shown_with_the_numbers_of_its_lines_and_what_is_around_it() -> None:
    before = "".join(f"line {number}\n" for number in range(1, 3001))
    given = {"file_path": "/a.py", "old_string": "line 2000", "new_string": "line two\nthousand"}
    styles = Styles(attributes=False)

    assert paint_diff(proposed_lines(given, before), styles, 60, None) == [
        *(f"    {number}  line {number}" for number in (1997, 1998, 1999)),
        "    2000 -line 2000",
        "    2000 +line two",
        "    2001 +thousand",
        *(f"    {number + 1}  line {number}" for number in (2001, 2002, 2003)),
    ]
    assert paint_diff(proposed_lines(given, "other"), styles, 60, None) == [
        "    -line 2000",
        "    +line two",
        "    +thousand",
    ]
    assert paint_diff(proposed_lines({"content": "a\nB"}, "a\nb"), styles, 60, None)[1:] == ["    2 -b", "    2 +B"]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_a_diff_has_all_that_changed(old: list[str], new: list[str]) -> None:
    lines = compare("\n".join(old), "\n".join(new))
    removed = sum(line.startswith("-") for line in lines)
    added = sum(line.startswith("+") for line in lines)

    assert len(new) - len(old) == added - removed
    assert (lines == []) == (old == new)
