"""The files that a glob matches now, as bash would find them.

    expand("src/*.py", "/w", lookup)      the names, and the folders that were listed

The result contains at least what bash finds, in every locale and version: a character class that is not simple matches
any character, and `.*` matches `..` too. Only folders that bash would list are listed.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from parley.permissions.base import EntryKind
from parley.permissions.shell.strict_parser import TOKEN
from parley.protocol.base import Struct

MAX_TESTS = 50_000
"""Names that are compared with the globs of one line."""
MAX_WORD_CHARACTERS = 1_024
STATUS = "\0"
"""Stands for `$?` in a word."""
MEMBERS = re.compile(r"\[((?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|[A-Za-z0-9_.])+)\]")
IN_QUOTES = re.compile(r'\\([\\"$`])|\$\?')
RANGE = re.compile(r"(.)-(.)|(.)")

Char = tuple[str, bool]
"""A character of a word, and whether it is literal."""


class GlobLookup:
    """File system access for globs, with a limit."""

    def __init__(self, entries: Callable[[str], Mapping[str, EntryKind] | None], exists: Callable[[str], bool]) -> None:
        self.entries = entries
        self.exists = exists
        self.tests_left = MAX_TESTS


class Expansion(Struct, frozen=True):
    words: tuple[str, ...]
    """What bash may replace the glob with: the names, or the glob itself if nothing matches."""
    folders: tuple[str, ...]
    """The folders that were listed."""
    non_links: tuple[str, ...]
    """The matching paths that are not symlinks, in folders that were listed."""


class _Match(Struct, frozen=True):
    word: str
    kind: EntryKind | None = None
    """The kind of the last name, if its folder was listed."""


def expand(raw: str, folder: str, lookup: GlobLookup) -> Expansion | None:
    """The names that a word, as written, matches in a folder; None if there are too many to check."""
    if len(raw) > MAX_WORD_CHARACTERS or "<<" in raw:
        return None  # longer than a path, or with a here-document
    pieces = _split_pieces(raw)
    found, folders = [_Match("")], dict[str, None]()
    listed = False
    for index, piece in enumerate(pieces):
        end = "/" if index + 1 < len(pieces) else ""
        matches_name = _compile_piece(piece)
        if matches_name is None:
            text = "".join(char for char, _ in piece)
            found = [_Match(f"{one.word}{text}{end}") for one in found]
            if listed and text:
                found = [one for one in found if lookup.exists(posixpath.join(folder, one.word.rstrip("/")))]
                folders.update((posixpath.dirname(posixpath.join(folder, one.word.rstrip("/"))), None) for one in found)
            continue
        following: list[_Match] = []
        for one in found:
            where = posixpath.join(folder, one.word)
            names = lookup.entries(where)
            lookup.tests_left -= 0 if names is None else len(names)
            if names is None or lookup.tests_left < 0:
                return None
            if names or not listed:
                folders[where] = None
            following += [
                _Match(f"{one.word}{name}{end}", kind) for name, kind in _match_names(names, piece, matches_name, end)
            ]
        found, listed = following, True
    plain = [posixpath.join(folder, one.word) for one in found if one.kind in ("file", "folder")]
    words = tuple(one.word for one in found) if listed else ()
    itself = "/".join(map(_format_piece, pieces))
    # We may match more than bash does; where bash matches nothing, it keeps the word as it is.
    if not words or (itself not in words and lookup.exists(posixpath.join(folder, itself))):
        words = (itself, *words)
    return Expansion(words, tuple(folders), tuple(plain))


def is_pattern(raw: str) -> bool:
    """Whether a word is a glob. A word with `$?` is unknown until it runs, but not a glob."""
    return len(raw) > MAX_WORD_CHARACTERS or any(_compile_piece(piece) is not None for piece in _split_pieces(raw))


def _match_names(
    names: Mapping[str, EntryKind], piece: Sequence[Char], matches_name: Callable[[str], bool], end: str
) -> Iterator[tuple[str, EntryKind]]:
    hidden = piece[0] == (".", True)
    for name, kind in names.items():
        if (name[0] != "." or hidden) and not (end and kind == "file") and matches_name(name):
            yield name, kind
    if hidden:
        yield from ((name, "link") for name in (".", "..") if matches_name(name))


def _format_piece(piece: Sequence[Char]) -> str:
    return "".join("$?" if char == STATUS else char for char, _ in piece)


@lru_cache(maxsize=64)
def _split_pieces(raw: str) -> tuple[tuple[Char, ...], ...]:
    """The characters between the slashes of a word."""
    pieces: list[list[Char]] = [[]]
    for char, literal in _iter_chars(raw):
        if char == "/":
            pieces.append([])
        else:
            pieces[-1].append((char, literal))
    return tuple(map(tuple, pieces))


def _iter_chars(raw: str) -> Iterator[Char]:
    """The characters of a word without its quotes."""
    for token in TOKEN.finditer(raw):
        kind, text = token.lastgroup, token[0]
        if kind == "bare":
            # These are special within a character class.
            yield from ((char, char not in "]!^-") for char in text)
        elif kind == "glob":
            yield (STATUS if text == "$?" else text), False
        elif kind == "double":
            inner = IN_QUOTES.sub(lambda found: found[1] or STATUS, text[1:-1])
            yield from ((char, char != STATUS) for char in inner)
        else:
            inner = text[1:-1] if kind == "single" else text[1:] if kind == "escape" else text
            yield from ((char, True) for char in inner)


@lru_cache(maxsize=64)
def _compile_piece(piece: tuple[Char, ...]) -> Callable[[str], bool] | None:
    """A test whether a name matches a piece; None if the piece has no wildcard."""
    if not any(not literal and char in "*?[" for char, literal in piece):
        return None
    strict, loose = (re.compile(_build_regex(piece, loose), re.DOTALL).fullmatch for loose in (False, True))
    # The number of characters in a non-ASCII name depends on the locale.
    return lambda name: (strict if name.isascii() else loose)(name) is not None


def _build_regex(piece: Sequence[Char], loose: bool) -> str:
    """Between two stars the length is fixed, so each star can match as little as possible (workspace/globs.py)."""
    parts, index = [""], 0
    while index < len(piece):
        char, literal = piece[index]
        index += 1
        closed = 0
        if not literal and char == "[":
            closed = max((at for at in range(index + 1, len(piece)) if piece[at][0] == "]"), default=0)
        if not literal and char in ("*", STATUS):
            parts.append("")
        elif closed:
            regex, index = _build_class(piece, index, closed, loose)
            parts += [""] if regex is None else []
            parts[-1] += regex or ""
        elif not literal and char == "?":
            parts += [""] if loose else []
            parts[-1] += "" if loose else "."
        else:
            parts[-1] += re.escape(char)
    first, *others = parts
    if not others:
        return first
    return f"{first}{''.join(f'(?>.*?{part})' for part in others[:-1] if part)}.*{others[-1]}"


def _build_class(piece: Sequence[Char], begin: int, closed: int, loose: bool) -> tuple[str | None, int]:
    """The regex of a character class, or None for any text, and where the class ends."""
    chars = piece[begin - 1 : closed + 1]
    simple = MEMBERS.match("".join(char if literal != (char in "[]-") else STATUS for char, literal in chars))
    if simple is None or loose:
        # It may end at any bracket, or not be a class.
        return None, closed + 1
    members = "".join(_build_range(*found.groups("")) for found in RANGE.finditer(simple[1]))
    return f"[{members}]", begin - 1 + simple.end()


def _build_range(low: str, high: str, single: str) -> str:
    """The members of a range in upper and lower case: the order of letters depends on the locale."""
    if single:
        return re.escape(single)
    first, last = sorted((low.lower(), high.lower()))
    return f"{first}-{last}" if first.isdigit() else f"{first}-{last}{first.upper()}-{last.upper()}"
