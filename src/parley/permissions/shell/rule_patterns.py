"""What the text in the parentheses of a Bash rule means.

    git status        exactly this command
    npm run test:*    this, alone or followed by a blank and anything; the same as `npm run test *`
    git * main        `*` stands for any text, blanks included
    ls*               no blank before the star: `lsof` too

`\\*` is a star. Matching is linear in the text, whatever the pattern.
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
    """The same without the final ` *`, which may stand for nothing at all."""


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
    """Whether a rule speaks of this one simple command."""
    return _matches(_compile(pattern), command.strip())


def _matches(found: _CompiledPattern, text: str) -> bool:
    if not text.startswith((found.without_star or found.pieces)[0]):
        return False
    return matches_pieces(found.pieces, text) or (
        found.without_star is not None and matches_pieces(found.without_star, text)
    )


class PatternSet(Struct, frozen=True):
    """Several patterns at once: those that speak of one text only are looked up."""

    exact: frozenset[str]
    starred: tuple[_CompiledPattern, ...]
    prefix: re.Pattern[str]
    """Fits what begins like one of the starred."""

    def has_exact(self, command: str) -> bool:
        """Whether one of them is exactly this command."""
        return command.strip() in self.exact

    def matches(self, command: str) -> bool:
        """Whether one of them speaks of this command."""
        text = command.strip()
        if text in self.exact:
            return True
        return self.prefix.match(text) is not None and any(_matches(found, text) for found in self.starred)


@lru_cache(maxsize=64)
def compile_patterns(patterns: tuple[str, ...]) -> PatternSet:
    found = [_compile(pattern) for pattern in patterns]
    exact = frozenset(pattern.pieces[0] for pattern in found if len(pattern.pieces) == 1)
    starred = tuple(pattern for pattern in found if len(pattern.pieces) > 1)
    # A final ` *` may stand for nothing, so the blank before it need not be there.
    begins = {re.escape((pattern.without_star or pattern.pieces)[0]) for pattern in starred}
    return PatternSet(exact, starred, re.compile("|".join(sorted(begins)) if begins else r"(?!)"))


def may_match(pattern: str, beginning: str) -> bool:
    """Whether a rule could speak of a command that begins so."""
    first = _compile(pattern).pieces[0]
    return first.startswith(beginning) or beginning.startswith(first)


def is_open_ended(pattern: str) -> bool:
    """Whether the pattern ends in a star: more words never turn a match into none."""
    return _compile(pattern).pieces[-1] == "" and not is_exact(pattern)


def is_exact(pattern: str) -> bool:
    """Whether the pattern has no star: it speaks of one text only."""
    return len(_compile(pattern).pieces) == 1
