"""An excerpt of a text by line numbers. Only the lines that are shown are decoded."""

from __future__ import annotations

from parley.protocol.base import Struct
from parley.tools.files.encoding import as_text

DEFAULT_LINES = 2_000
LONGEST_LINE_CHARS = 2_000
MOST_CHARS = 100_000
"""The limit of an excerpt: about 25,000 tokens."""
MOST_LARGE_CHARS = 400_000
"""The limit with `allow_large`: about 100,000 tokens, and what fits on a line of the protocol twice."""
MOST_BYTES_A_CHAR = 4


class Excerpt(Struct, frozen=True, kw_only=True):
    lines: list[str]
    first: int
    total: int
    """The lines of the whole text. After a final line feed there is one more, empty line. 0 for an empty text."""
    some_cut: bool
    """A line was too long to be shown whole."""
    out_of_room: bool
    """Lines were omitted although `limit` includes them."""

    @property
    def whole(self) -> bool:
        return self.first == 1 and len(self.lines) == self.total and not self.some_cut


def excerpt(body: bytes, first: int, limit: int | None, *, allow_large: bool = False) -> Excerpt:
    """The lines from `first` on, as many as fit."""
    total = body.count(b"\n") + 1 if body else 0
    most = limit or (total if allow_large else DEFAULT_LINES)
    last = min(total, first + most - 1)
    lines: list[str] = []
    some_cut, room = False, MOST_LARGE_CHARS if allow_large else MOST_CHARS
    position = line_position(body, first) if first <= total else 0
    if first <= last == total and (short := short_lines(body, position, room)) is not None:
        return Excerpt(lines=short, first=first, total=total, some_cut=False, out_of_room=False)
    for _ in range(first, last + 1):
        end = body.find(b"\n", position)
        line, was_cut = number_lines(body, position, len(body) if end < 0 else end)
        room -= len(line) + 1
        if room < 0:
            break
        some_cut |= was_cut
        lines.append(line)
        position = end + 1
    return Excerpt(lines=lines, first=first, total=total, some_cut=some_cut, out_of_room=room < 0)


def short_lines(body: bytes, start: int, room: int) -> list[str] | None:
    """The lines from a position to the end, decoded at once; None if one may be too long, or all of them together."""
    if len(body) - start >= room:
        return None
    rest = body[start:] if start else body
    lines = (as_text(rest) if start == 0 else rest.decode(errors="replace")).split("\n")
    if max(map(len, lines)) > LONGEST_LINE_CHARS:
        return None
    return [line.removesuffix("\r") for line in lines] if b"\r" in rest else lines


def line_position(body: bytes, number: int) -> int:
    """The position of an existing line."""
    position = 0
    for _ in range(number - 1):
        position = body.find(b"\n", position) + 1
    return position


def number_lines(body: bytes, start: int, end: int) -> tuple[str, bool]:
    """A line without its ending, truncated if it is too long, and whether it was."""
    if end > start and body[end - 1] == 0x0D:
        end -= 1
    some = body[start : min(end, start + MOST_BYTES_A_CHAR * (LONGEST_LINE_CHARS + 1))]
    line = as_text(some) if start == 0 else some.decode(errors="replace")
    if len(line) <= LONGEST_LINE_CHARS:
        return line, False
    return f"{line[:LONGEST_LINE_CHARS]}... (cut: the line has {end - start} bytes)", True
