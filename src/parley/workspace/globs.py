"""Path patterns: `*`, `?`, `[a-z]`, `{a,b}`, `**` and `\\` before a character that is meant as it is.

A pattern is cut at its slashes; each piece matches one name. Matching goes down a tree
name by name, so that a folder in which nothing can match is never entered:

    glob = Glob.of("src/**/test_*.py")
    below = glob.enter(glob.start, "src")     # frozenset(): nothing in there can match
    glob.names(below)("test_read.py")         # does a file of this name match here?

Patterns may come from a hostile tree. No pattern takes more than time in proportion to
the name and the pattern. Standard library only: search/python_grep.py runs this without our packages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

MOST_ALTERNATIVES = 1000
MOST_BRACES = 50
"""Braces are written out; `{a,b}` twenty times in a row would be a million patterns."""
WILD = re.compile(r"[*?\[{\\]")

Name = Callable[[str], bool]
"""Whether a name matches one piece of a pattern."""
Places = frozenset[tuple[int, int]]
"""How far a path has matched: rows of the pattern, and the next piece in each."""


class BadGlob(Exception):
    """The pattern cannot be used, and why."""


class Glob:
    """A pattern for whole paths, relative to the folder where matching starts."""

    def __init__(self, rows: list[tuple[Name | None, ...]]) -> None:
        self._rows = rows
        """One row for each way to read the braces; None is `**`, any number of folders."""
        self._names: dict[Places, Name] = {}
        self.start = self._settled((number, 0) for number in range(len(rows)))

    @classmethod
    def of(cls, *patterns: str) -> Glob:
        """Matches what one of these does. Raises BadGlob."""
        written_out = [single for pattern in patterns for single in alternatives(pattern)]
        return cls([row(single) for single in written_out])

    def enter(self, places: Places, name: str) -> Places:
        """The places after a folder of this name; empty if nothing in it can match."""
        moved = []
        for number, place in places:
            piece = self._rows[number][place]
            if piece is None:
                moved.append((number, place))
            elif place + 1 < len(self._rows[number]) and piece(name):
                moved.append((number, place + 1))
        return self._settled(moved)

    def names(self, places: Places) -> Name:
        """Which files match in a folder with these places."""
        found = self._names.get(places)
        if found is None:
            last = [self._rows[number][place] for number, place in places if place + 1 == len(self._rows[number])]
            found = self._names[places] = any_of(last)
        return found

    def matches(self, path: str) -> bool:
        *folders, name = path.split("/")
        places = self.start
        for folder in folders:
            places = self.enter(places, folder)
            if not places:
                return False
        return self.names(places)(name)

    def matches_beginning(self, names: list[str]) -> bool:
        """Whether a path, given by its names, or a folder above it matches."""
        places = self.start
        for name in names:
            if self.names(places)(name):
                return True
            places = self.enter(places, name)
            if not places:
                return False
        return False

    def _settled(self, places: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> Places:
        """With the places behind every `**`, which may stand for no folder at all."""
        settled = set()
        for number, place in places:
            row = self._rows[number]
            settled.add((number, place))
            if row[place] is None and place + 1 < len(row):
                settled.add((number, place + 1))  # two `**` never follow each other
        return frozenset(settled)


def any_of(pieces: list[Name | None]) -> Name:
    if any(piece is None for piece in pieces):
        return anything
    tests = [piece for piece in pieces if piece is not None]
    if len(tests) == 1:
        return tests[0]
    return lambda name: any(test(name) for test in tests)


def anything(name: str) -> bool:
    return True


def row(pattern: str) -> tuple[Name | None, ...]:
    """The pieces of a pattern without braces."""
    pieces: list[Name | None] = []
    for piece in pattern.split("/"):
        if piece in ("", "."):
            continue
        if piece != "**":
            pieces.append(name_test(piece))
        elif not pieces or pieces[-1] is not None:
            pieces.append(None)
    return tuple(pieces) or (name_test(""),)


@lru_cache(maxsize=1024)
def name_test(piece: str) -> Name:
    """A test for one piece; the common forms without a regular expression."""
    if not WILD.search(piece):
        return piece.__eq__
    if piece == "*":
        return anything
    if piece[0] == "*" and not WILD.search(piece, 1):
        ending = piece[1:]
        return lambda name: name.endswith(ending)
    fits = re.compile(name_regex(piece), re.DOTALL).fullmatch
    return lambda name: fits(name) is not None


def name_regex(piece: str) -> str:
    """The expression for one piece. Each star takes as little as it can and never reconsiders (`(?>`).

    That finds every match, as what stands between two stars has a fixed length, and it
    keeps `*a*a*a*a*b` from taking for ever.
    """
    first, *others = fixed_parts(piece)
    if not others:
        return first
    between = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return f"{first}{between}.*{others[-1]}"


def fixed_parts(piece: str) -> list[str]:
    """What stands before, between and behind the stars, each as a regular expression."""
    parts, at = [""], 0
    while at < len(piece):
        char = piece[at]
        at += 1
        if char == "*":
            parts.append("")
        elif char == "?":
            parts[-1] += "."
        elif char == "[" and (end := class_end(piece, at)):
            parts[-1] += class_regex(piece[at : end - 1])
            at = end
        elif char == "\\" and at < len(piece):
            parts[-1] += re.escape(piece[at])
            at += 1
        else:
            parts[-1] += re.escape(char)
    return parts


def class_end(piece: str, at: int) -> int:
    """Where the `[...]` that begins before `at` is over; 0 if it never is and the bracket is a plain one."""
    first = at + 1 if piece.startswith(("!", "^"), at) else at
    # A bracket that comes first is a member of the class.
    return piece.find("]", first + 1) + 1


def class_regex(members: str) -> str:
    negated = members[0] in "!^"
    rest = members[negated:]
    made, at = "", 0
    while at < len(rest):
        if rest[at + 1 : at + 2] == "-" and at + 2 < len(rest):
            low, high = rest[at], rest[at + 2]
            made += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
            at += 3
        else:
            made += re.escape(rest[at])
            at += 1
    if not made:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{made}]"


def alternatives(pattern: str) -> list[str]:
    """The pattern with its braces written out. Raises BadGlob if there are too many ways."""
    if pattern.count("{") > MOST_BRACES:
        raise BadGlob(f"there are more than {MOST_BRACES} braces in {pattern[:80]!r}")
    begin = plain_index(pattern, "{", 0)
    if begin < 0:
        return [pattern]
    choices, end = choices_at(pattern, begin)
    if not choices:  # a brace without its partner is a plain character
        return [pattern[:begin] + "\\{" + rest for rest in alternatives(pattern[end:])]
    before = pattern[:begin]
    made = []
    for choice in choices:
        made += [before + rest for rest in alternatives(choice + pattern[end:])]
        if len(made) > MOST_ALTERNATIVES:
            raise BadGlob(f"the braces in {pattern[:80]!r} stand for more than {MOST_ALTERNATIVES} patterns")
    return made


def choices_at(pattern: str, begin: int) -> tuple[list[str], int]:
    """The choices of the brace at `begin` and where it is over; no choices if it is never closed."""
    depth, at, last = 0, begin, begin + 1
    choices = []
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif char == "{":
            depth += 1
        elif char == "," and depth == 1:
            choices.append(pattern[last:at])
            last = at + 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return [*choices, pattern[last:at]], at + 1
        at += 1
    return [], begin + 1


def plain_index(pattern: str, wanted: str, at: int) -> int:
    """Where a character stands that no backslash protects; -1 if nowhere."""
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == wanted:
            return at
        at += 1
    return -1


def split_prefix(pattern: str) -> tuple[str, str]:
    """The folders a pattern names outright, and the rest: `src/lib/**/*.py` -> `src/lib`, `**/*.py`."""
    pieces = pattern.split("/")
    count = 0
    while count < len(pieces) - 1 and not WILD.search(pieces[count]):
        count += 1
    return "/".join(pieces[:count]) or ("/" if count else ""), "/".join(pieces[count:])
