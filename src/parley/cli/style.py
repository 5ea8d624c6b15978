"""Colours and tables for people at a terminal. Piped output has no escape sequences.

    style = choose_style()
    style.bold("Options:"), style.red("error")

Colours are on if stdout is a terminal that can show them. `NO_COLOR` turns them off, `FORCE_COLOR` turns them on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from parley.protocol.base import Struct


class Style(Struct, frozen=True):
    """Wraps text in escape sequences, or leaves it as it is."""

    is_on: bool

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def red(self, text: str) -> str:
        return self._wrap("31", text)

    def green(self, text: str) -> str:
        return self._wrap("32", text)

    def yellow(self, text: str) -> str:
        return self._wrap("33", text)

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_on and text else text


PLAIN = Style(False)


def choose_style(environment: Mapping[str, str] = os.environ, descriptor: int = 1) -> Style:
    """The style for a stream of this process."""
    if environment.get("NO_COLOR"):
        return PLAIN
    if environment.get("FORCE_COLOR", "0") not in ("", "0"):
        return Style(True)
    return Style(os.isatty(descriptor) and environment.get("TERM", "dumb") != "dumb")


def terminal_width(most: int, descriptor: int = 1) -> int:
    """The columns of the terminal, at most this many; this many if the stream is not a terminal."""
    if not os.isatty(descriptor):
        return most
    import shutil

    return min(most, shutil.get_terminal_size().columns)


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), width: int | None = None
) -> list[str]:
    """Align the columns of rows; those named in `right` to the right. `width` cuts off the end of longer lines."""
    table = [header, *rows]
    widths = [max(map(display_width, column)) for column in zip(*table, strict=True)]
    places = [(name in right, size) for name, size in zip(header, widths, strict=True)]
    lines = ["  ".join(pad(cell, *place) for cell, place in zip(row, places, strict=True)).rstrip() for row in table]
    return [line if width is None else cut(line, width) for line in lines]


def pad(text: str, to_right: bool, width: int) -> str:
    space = " " * (width - display_width(text))
    return space + text if to_right else text + space


def cut(text: str, width: int) -> str:
    """Shorten a text to this many columns."""
    if display_width(text) <= width:
        return text
    while text and display_width(text) >= width:
        text = text[:-1]
    return f"{text}…"


def display_width(text: str) -> int:
    """The columns that a text takes: a wide letter takes two, a combining one none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


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


def can_ask() -> bool:
    """Whether a person can be asked: stdin and stderr are terminals."""
    return os.isatty(0) and os.isatty(2)


def confirm(question: str) -> bool:
    """Ask a person at the terminal; only `y` or `yes` confirms."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
