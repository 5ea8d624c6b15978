"""The contents of a Bash rule.

    git status        exactly this command
    npm run test:*    this command, alone or followed by a blank and anything; the same as `npm run test *`
    git * main        `*` matches any text, blanks included
    ls*               no blank before the star: matches `lsof` too

`\\*` is a literal star. Matching takes time linear in the text, whatever the pattern.
"""

from __future__ import annotations

import re
from functools import lru_cache

from parley.permissions.wildcards import matches_pieces
from parley.protocol.base import Struct

STAR = re.compile(r"(?<!\\)\*+")


class _CompiledPattern(Struct, frozen=True):
    pieces: tuple[str, ...]
    """The texts between the stars; one piece if there is no star."""
    without_star: tuple[str, ...] | None
    """The pieces without a final ` *`, which may match nothing; None if there is no such end."""


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> _CompiledPattern:
    text = pattern.strip()
    if text.endswith(":*"):
        text = text[:-2] + " *"
    if text.strip() in ("", "*"):
        return _CompiledPattern(("", ""), None)
    pieces = _split_pieces(text)
    return _CompiledPattern(pieces, _split_pieces(text[:-2]) if text.endswith(" *") else None)


def _split_pieces(text: str) -> tuple[str, ...]:
    return tuple(piece.replace("\\*", "*") for piece in STAR.split(text))


def matches(pattern: str, command: str) -> bool:
    """Whether a rule matches one simple command."""
    return _matches(_compile(pattern), command.strip())


def _matches(found: _CompiledPattern, text: str) -> bool:
    if not text.startswith((found.without_star or found.pieces)[0]):
        return False
    return matches_pieces(found.pieces, text) or (
        found.without_star is not None and matches_pieces(found.without_star, text)
    )


class PatternSet(Struct, frozen=True):
    """Several patterns, matched together; exact ones by a lookup."""

    exact: frozenset[str]
    starred: tuple[_CompiledPattern, ...]
    prefix: re.Pattern[str]
    """Matches the beginning of each starred pattern."""

    def has_exact(self, command: str) -> bool:
        """Whether one of the patterns is exactly this command."""
        return command.strip() in self.exact

    def matches(self, command: str) -> bool:
        """Whether one of the patterns matches this command."""
        text = command.strip()
        if text in self.exact:
            return True
        return self.prefix.match(text) is not None and any(_matches(found, text) for found in self.starred)


@lru_cache(maxsize=64)
def compile_patterns(patterns: tuple[str, ...]) -> PatternSet:
    found = [_compile(pattern) for pattern in patterns]
    exact = frozenset(pattern.pieces[0] for pattern in found if len(pattern.pieces) == 1)
    starred = tuple(pattern for pattern in found if len(pattern.pieces) > 1)
    # A final ` *` may match nothing, so the blank before it is optional.
    begins = {re.escape((pattern.without_star or pattern.pieces)[0]) for pattern in starred}
    return PatternSet(exact, starred, re.compile("|".join(sorted(begins)) if begins else r"(?!)"))


def may_match(pattern: str, beginning: str) -> bool:
    """Whether a rule could match a command with this beginning."""
    first = _compile(pattern).pieces[0]
    return first.startswith(beginning) or beginning.startswith(first)


def is_open_ended(pattern: str) -> bool:
    """Whether the pattern ends in a star, so that a match stays a match with more words."""
    return _compile(pattern).pieces[-1] == "" and not is_exact(pattern)


def is_exact(pattern: str) -> bool:
    """Whether the pattern has no star, so that it matches one text only."""
    return len(_compile(pattern).pieces) == 1
