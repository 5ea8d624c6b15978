"""Text that is safe to write to a terminal, and its width in cells. Pure.

Text of models, tools and servers may contain escape sequences, control characters and direction overrides.
`reveal_text` and `reveal_line` show them as escapes such as `\\x1b`, so that they have no effect and nothing is lost.
`mask_hidden` does the same for text that is being edited, where each character has a place. At the end are tables and
figures.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from parley.mcp.content import HIDDEN, STRAY, reveal

SEPARATORS = re.compile("[\r\u2028\u2029\ud800-\udfff]")
"""Beyond what `reveal` shows: other line ends, and lone surrogates."""
MARKS = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
STACKED = re.compile(f"({MARKS}{{8}}){MARKS}+")
"""More marks on one letter than any language has: they would cover the lines around it."""
SPACE = re.compile(r"\s+")
JOINER = "\u200d"
EMOJI_STYLE = "\ufe0f"
SKIN_TONES = range(0x1F3FB, 0x1F400)
ELLIPSIS = "…"
MASK = "\ufffd"


def reveal_text(text: str) -> str:
    """The text with line ends and tabs, and with everything else that is not printable as escapes."""
    text = reveal(text.replace("\r\n", "\n"))
    text = STACKED.sub(rf"\1{ELLIPSIS}", text)
    return SEPARATORS.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def reveal_line(text: str) -> str:
    """The same on one line: white space becomes one space."""
    return reveal_text(SPACE.sub(" ", text).strip())


def mask_hidden(text: str) -> str:
    """The text in as many characters: signs stand for those that are invisible or act on the terminal."""
    if text.isascii() and text.isprintable():
        return text
    text = STACKED.sub(lambda found: found[1].ljust(len(found[0]), ELLIPSIS), text)
    for pattern in (HIDDEN, STRAY, SEPARATORS):
        text = pattern.sub(MASK, text)
    return text


def cell_width(text: str) -> int:
    """How many cells a terminal needs for the text."""
    if text.isascii():
        return len(text)
    cells, last, joined = 0, 0, False
    for char in text:
        if char == EMOJI_STYLE:
            cells, last = cells + (last == 1), 2
        elif joined or (ord(char) in SKIN_TONES and last == 2):
            joined = False
        elif char == JOINER:
            joined = True
        elif unicodedata.category(char) not in ("Mn", "Me", "Cf"):
            last = 2 if unicodedata.east_asian_width(char) in "WF" else 1
            cells += last
    return cells


def shorten(text: str, cells: int) -> str:
    """The start of a line that fits, with an ellipsis if something is missing."""
    if cell_width(text) <= cells:
        return text
    end = min(len(text), max(0, cells - 1))
    while end and cell_width(text[:end]) > cells - 1:
        end -= 1
    return text[:end] + ELLIPSIS if cells > 0 else ""


def wrap(text: str, cells: int) -> list[str]:
    """The lines of a text, broken at spaces where they do not fit. Spaces at a break are dropped."""
    lines: list[str] = []
    for line in text.split("\n"):
        rest = line
        while cell_width(rest) > cells:
            head = shorten(rest, cells + 1)[:-1] or rest[:1]
            at = head.rfind(" ")
            if at > 0 and head[:at].strip() and rest[len(head)] != " ":
                head = head[:at]
            lines.append(head.rstrip())
            rest = rest[len(head) :].lstrip(" ")
        lines.append(rest)
    return lines


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), width: int | None = None
) -> list[str]:
    """Align the columns of rows; those named in `right` to the right. `width` cuts off the end of longer lines."""
    table = [header, *rows]
    widths = [max(map(cell_width, column)) for column in zip(*table, strict=True)]
    places = [(name in right, size) for name, size in zip(header, widths, strict=True)]
    lines = ["  ".join(pad(cell, *place) for cell, place in zip(row, places, strict=True)).rstrip() for row in table]
    return [line if width is None else shorten(line, width) for line in lines]


def pad(text: str, to_right: bool, width: int) -> str:
    space = " " * (width - cell_width(text))
    return space + text if to_right else text + space


def format_size(size_bytes: int) -> str:
    """`812 B`, `4.2 kB`, `13 MB`."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    size, units = size_bytes / 1000, ["kB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.{0 if size >= 9.95 else 1}f} {units[0]}"


def format_age(seconds: float) -> str:
    """`just now`, `5 min ago`, `3 h ago`, `12 d ago`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit} ago"
    return "just now"


def format_count(count: int) -> str:
    """A short form of a number of tokens: 950, 1.7k, 1m."""
    for size, letter in ((1_000_000, "m"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + letter
    return str(count)


def format_quantity(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
