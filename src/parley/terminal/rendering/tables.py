"""Tables and figures for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from parley.terminal.rendering.text import cell_width, shorten


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
