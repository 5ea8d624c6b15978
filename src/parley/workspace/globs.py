"""Path patterns with `*`, `?`, `[a-z]`, `{a,b}`, `**`, and `\\` to escape a character.

A pattern is split at its slashes; each piece matches one name. A tree is matched name by name from the top, so folders
in which nothing can match are never entered:

    glob = PathGlob.of("src/**/test_*.py")
    below = glob.enter(glob.start, "src")     # frozenset() if nothing in there can match
    glob.names(below)("test_read.py")         # does a file of this name match here?

Patterns may come from an untrusted tree. Matching takes time proportional to the name and the pattern. Uses only the
standard library, because search/python_grep.py runs it without our dependencies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

MOST_ALTERNATIVES = 1000
MOST_BRACES = 50
"""Braces are expanded; `{a,b}` twenty times in a row would be a million patterns."""
WILD = re.compile(r"[*?\[{\\]")

NameTest = Callable[[str], bool]
"""A test whether a name matches one piece of a pattern."""
GlobState = frozenset[tuple[int, int]]
"""The matching state of a path: rows of the pattern, and the next piece in each."""


class BadGlob(Exception):
    """The pattern cannot be used. The message gives the reason."""


class PathGlob:
    """A pattern for whole paths, relative to the folder where matching starts."""

    def __init__(self, rows: list[tuple[NameTest | None, ...]]) -> None:
        self._rows = rows
        """One row per expansion of the braces. None is `**`, any number of folders."""
        self._names: dict[GlobState, NameTest] = {}
        self.start = self._skip_double_stars((number, 0) for number in range(len(rows)))

    @classmethod
    def of(cls, *patterns: str) -> PathGlob:
        """A glob that matches what one of these patterns matches. Raises BadGlob."""
        expanded = [single for pattern in patterns for single in expand_braces(pattern)]
        return cls([parse_row(single) for single in expanded])

    def enter(self, state: GlobState, name: str) -> GlobState:
        """The state after entering a folder of this name; empty if nothing in it can match."""
        next_states = []
        for number, index in state:
            piece = self._rows[number][index]
            if piece is None:
                next_states.append((number, index))
            elif index + 1 < len(self._rows[number]) and piece(name):
                next_states.append((number, index + 1))
        return self._skip_double_stars(next_states)

    def names(self, state: GlobState) -> NameTest:
        """The test for file names in a folder with this state."""
        found = self._names.get(state)
        if found is None:
            last = [self._rows[number][index] for number, index in state if index + 1 == len(self._rows[number])]
            found = self._names[state] = match_any_of(last)
        return found

    def matches(self, path: str) -> bool:
        *folders, name = path.split("/")
        state = self.start
        for folder in folders:
            state = self.enter(state, folder)
            if not state:
                return False
        return self.names(state)(name)

    def matches_beginning(self, names: list[str]) -> bool:
        """Whether a path, given by its names, or one of its parent folders matches."""
        state = self.start
        for name in names:
            if self.names(state)(name):
                return True
            state = self.enter(state, name)
            if not state:
                return False
        return False

    def _skip_double_stars(self, state: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> GlobState:
        """Add the states after each `**`, which also matches no folder at all."""
        states = set()
        for number, index in state:
            row = self._rows[number]
            states.add((number, index))
            if row[index] is None and index + 1 < len(row):
                states.add((number, index + 1))  # `parse_row` merges adjacent `**`
        return frozenset(states)


def match_any_of(pieces: list[NameTest | None]) -> NameTest:
    if any(piece is None for piece in pieces):
        return match_any
    tests = [piece for piece in pieces if piece is not None]
    if len(tests) == 1:
        return tests[0]
    return lambda name: any(test(name) for test in tests)


def match_any(name: str) -> bool:
    return True


def parse_row(pattern: str) -> tuple[NameTest | None, ...]:
    """The pieces of a pattern without braces."""
    pieces: list[NameTest | None] = []
    for piece in pattern.split("/"):
        if piece in ("", "."):
            continue
        if piece != "**":
            pieces.append(name_test(piece))
        elif not pieces or pieces[-1] is not None:
            pieces.append(None)
    return tuple(pieces) or (name_test(""),)


@lru_cache(maxsize=1024)
def name_test(piece: str) -> NameTest:
    """The test for one piece. Common forms do not need a regular expression."""
    if not WILD.search(piece):
        return piece.__eq__
    if piece == "*":
        return match_any
    if piece[0] == "*" and not WILD.search(piece, 1):
        ending = piece[1:]
        return lambda name: name.endswith(ending)
    match = re.compile(name_regex(piece), re.DOTALL).fullmatch
    return lambda name: match(name) is not None


def name_regex(piece: str) -> str:
    """The regular expression for one piece. Each star matches as little as possible, without backtracking (`(?>`).

    That finds every match, because the part between two stars has a fixed length, and it prevents exponential time for
    patterns such as `*a*a*a*a*b`.
    """
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
    first, *others = parts
    if not others:
        return first
    between = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return f"{first}{between}.*{others[-1]}"


def class_end(piece: str, at: int) -> int:
    """The end of the `[...]` that starts before `at`; 0 if it is not closed and the bracket is literal."""
    first = at + 1 if piece.startswith(("!", "^"), at) else at
    # A leading `]` is a member of the class.
    return piece.find("]", first + 1) + 1


def class_regex(members: str) -> str:
    negated = members[0] in "!^"
    rest = members[negated:]
    ranges, at = "", 0
    while at < len(rest):
        if rest[at + 1 : at + 2] == "-" and at + 2 < len(rest):
            low, high = rest[at], rest[at + 2]
            ranges += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
            at += 3
        else:
            ranges += re.escape(rest[at])
            at += 1
    if not ranges:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{ranges}]"


def expand_braces(pattern: str) -> list[str]:
    """Expand the braces of a pattern. Raises BadGlob if that gives too many patterns."""
    if pattern.count("{") > MOST_BRACES:
        raise BadGlob(f"{pattern[:80]!r} has more than {MOST_BRACES} braces")
    begin = plain_index(pattern, "{", 0)
    if begin < 0:
        return [pattern]
    choices, end = choices_at(pattern, begin)
    if not choices:  # an unclosed brace is a literal character
        return [pattern[:begin] + "\\{" + rest for rest in expand_braces(pattern[end:])]
    before = pattern[:begin]
    made = []
    for choice in choices:
        made += [before + rest for rest in expand_braces(choice + pattern[end:])]
        if len(made) > MOST_ALTERNATIVES:
            raise BadGlob(f"the braces in {pattern[:80]!r} expand to more than {MOST_ALTERNATIVES} patterns")
    return made


def choices_at(pattern: str, begin: int) -> tuple[list[str], int]:
    """The alternatives of the brace at `begin` and its end; no alternatives if it is not closed."""
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


def plain_index(pattern: str, char: str, at: int) -> int:
    """The index of an unescaped character; -1 if there is none."""
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == char:
            return at
        at += 1
    return -1


def split_prefix(pattern: str) -> tuple[str, str]:
    """The folders before the first wildcard, and the rest: `src/lib/**/*.py` -> `src/lib`, `**/*.py`."""
    pieces = pattern.split("/")
    count = 0
    while count < len(pieces) - 1 and not WILD.search(pieces[count]):
        count += 1
    return "/".join(pieces[:count]) or ("/" if count else ""), "/".join(pieces[count:])
