"""Texts that act on a terminal: what hostile models, tools, files and servers may send.

    for case in make_cases("model"): case.text

Each text ends with a mark of its own after the sequence, so that a test can tell whether the sequence reached the
terminal: `sequence + mark` is then in what was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SEQUENCES = {
    "cursor": "\x1b[1337;7H",
    "erase": "\x1b[2J",
    "colour": "\x1b[38;5;213m",
    "private mode": "\x1b[?1049h",
    "reply": "\x1b[>0q",
    "window title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://evil.test/\x1b\\",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "unfinished": "\x1b]52;c;",
    "device control": "\x1bP+q544e\x1b\\",
    "application": "\x1b_Gi=1;AAAA\x1b\\",
    "privacy": "\x1b^secret\x1b\\",
    "reset": "\x1bc",
    "escape": "\x1b",
    "bell": "\x07",
    "backspaces": "\x08\x08\x08\x08",
    "delete": "\x7f",
    "return": "\r",
    "shift out": "\x0e",
    "form feed": "\x0c",
    "c1 sequence": "\x9b31m",
    "c1 command": "\x9d0;owned\x9c",
    "override": "\u202e",
    "isolate": "\u2066",
    "zero width": "\u200b\u2060\ufeff",
    "tag": "\U000e0041\U000e0042",
    "separator": "\u2028",
    "combining": "\u0301" * 400,
}
ALLOWED_SEQUENCE = re.compile(
    # What the terminal writes itself: cursor, erasing, colours, bracketed paste, cursor and wrapping modes, frames.
    r"\x1b\[(?:\d*[ABCDGJK]|\d*(?:;\d+)?H|[\d;]*m|\?(?:1|7|12|25|2004|2026)[hl]|6n|[0-6] q|>?\d*[mu]|\?u)"
)
FORBIDDEN = re.compile(
    "[\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)
MOST_COMBINING = re.compile("[\u0300-\u036f]{32,}")


@dataclass(frozen=True)
class HostileCase:
    """One text in one place."""

    place: str
    kind: str
    number: int

    @property
    def mark(self) -> str:
        return f"z{self.number}k"

    @property
    def text(self) -> str:
        return f"a{self.number}k{SEQUENCES[self.kind]}{self.mark}"


def make_cases(place: str, first: int) -> list[HostileCase]:
    """One case for each sequence, numbered from `first`."""
    return [HostileCase(place, kind, first + index) for index, kind in enumerate(SEQUENCES)]


def find_leaks(written: bytes, cases: list[HostileCase]) -> list[str]:
    """What acts on a terminal in these bytes: sequences that the terminal does not write itself, or those of a case."""
    text = written.decode(errors="surrogateescape")
    leaks = [f"{case.place}: {case.kind}" for case in cases if SEQUENCES[case.kind] + case.mark in text]
    rest = ALLOWED_SEQUENCE.sub("", text)
    leaks += sorted({repr(rest[max(0, at.start() - 20) : at.end() + 20]) for at in FORBIDDEN.finditer(rest)})
    leaks += [f"{len(found[0])} combining characters" for found in MOST_COMBINING.finditer(rest)]
    leaks += sorted({repr(char) for char in rest if "\udc80" <= char <= "\udcff"})
    return leaks


def count_shown(written: bytes, cases: list[HostileCase]) -> int:
    text = written.decode(errors="replace")
    return sum(case.mark in text for case in cases)
