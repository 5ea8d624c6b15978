"""Suggestions for a text that was not found."""

from __future__ import annotations

import re

from parley.tools.files.encoding import as_text

SEARCHED_BYTES = 2_000_000
COMPARED_LINES = 3_000
COMPARED_WORDS = 200
NUMBERED = re.compile(r"\s*\d+\t")
SHOWN_CHARS = 300


def suggest(body: bytes, wanted: str) -> str:
    """A hint for finding the right text; empty if there is none."""
    lines = wanted.split("\n")
    if all(NUMBERED.match(line) for line in lines if line):
        return "It begins with line numbers as Read shows them; they are not part of the file."
    if len(body) > SEARCHED_BYTES:
        return ""
    text = as_text(body).replace("\r\n", "\n")
    return other_space(text, wanted) or other_case(text, wanted) or like_line(text, wanted)


def other_space(text: str, wanted: str) -> str:
    words = wanted.split()
    if not 0 < len(words) <= COMPARED_WORDS:
        return ""
    found = re.search(r"\s+".join(map(re.escape, words)), text)
    return describe_position(text, *found.span(), "A text that differs only in white space") if found else ""


def other_case(text: str, wanted: str) -> str:
    lower = text.lower()
    start = lower.find(wanted.lower())
    # Some letters have a lower case of another length; then places do not compare.
    if start < 0 or len(lower) != len(text):
        return ""
    return describe_position(text, start, start + len(wanted), "A text that differs only in upper and lower case")


def describe_position(text: str, start: int, end: int, what: str) -> str:
    more = " ..." if end - start > SHOWN_CHARS else ""
    return f"{what} is at line {line_number(text, start)}:\n{text[start : min(end, start + SHOWN_CHARS)]}{more}"


def like_line(text: str, wanted: str) -> str:
    """The line most similar to the first line of the searched text."""
    from difflib import get_close_matches

    first = next((line.strip() for line in wanted.split("\n") if line.strip()), "")[:SHOWN_CHARS]
    lines = text.split("\n")[:COMPARED_LINES]
    # Only lines of about that length can be alike.
    some = {line.strip(): None for line in lines if 0.6 * len(first) <= len(line.strip()) <= 1.7 * len(first)}
    close = get_close_matches(first, some, n=1, cutoff=0.75)
    if not close:
        return ""
    number = next(number for number, line in enumerate(lines, 1) if line.strip() == close[0])
    return f"The nearest line is {number}:\n{lines[number - 1]}"


def line_number(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
