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

from parley.permissions.wildcards import fits_pieces
from parley.protocol.base import Struct

STAR = re.compile(r"(?<!\\)\*+")


class _Pattern(Struct, frozen=True):
    pieces: tuple[str, ...]
    """The texts between the stars; one piece if there is no star."""
    bare: tuple[str, ...] | None
    """The same without the final ` *`, which may stand for nothing at all."""


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> _Pattern:
    text = pattern.strip()
    if text.endswith(":*"):
        text = text[:-2] + " *"
    if text.strip() in ("", "*"):
        return _Pattern(("", ""), None)
    pieces = _pieces(text)
    return _Pattern(pieces, _pieces(text[:-2]) if text.endswith(" *") else None)


def _pieces(text: str) -> tuple[str, ...]:
    return tuple(piece.replace("\\*", "*") for piece in STAR.split(text))


def matches(pattern: str, command: str) -> bool:
    """Whether a rule speaks of this one simple command."""
    return _fits(_compiled(pattern), command.strip())


def _fits(found: _Pattern, text: str) -> bool:
    if not text.startswith((found.bare or found.pieces)[0]):
        return False
    return fits_pieces(found.pieces, text) or (found.bare is not None and fits_pieces(found.bare, text))


class Patterns(Struct, frozen=True):
    """Several patterns at once: those that speak of one text only are looked up."""

    exact: frozenset[str]
    starred: tuple[_Pattern, ...]
    begins: re.Pattern[str]
    """Fits what begins like one of the starred."""

    def name(self, command: str) -> bool:
        """Whether one of them is exactly this command."""
        return command.strip() in self.exact

    def fit(self, command: str) -> bool:
        """Whether one of them speaks of this command."""
        text = command.strip()
        if text in self.exact:
            return True
        return self.begins.match(text) is not None and any(_fits(found, text) for found in self.starred)


@lru_cache(maxsize=64)
def together(patterns: tuple[str, ...]) -> Patterns:
    found = [_compiled(pattern) for pattern in patterns]
    exact = frozenset(pattern.pieces[0] for pattern in found if len(pattern.pieces) == 1)
    starred = tuple(pattern for pattern in found if len(pattern.pieces) > 1)
    # A final ` *` may stand for nothing, so the blank before it need not be there.
    begins = {re.escape((pattern.bare or pattern.pieces)[0]) for pattern in starred}
    return Patterns(exact, starred, re.compile("|".join(sorted(begins)) if begins else r"(?!)"))


def may_match(pattern: str, beginning: str) -> bool:
    """Whether a rule could speak of a command that begins so."""
    first = _compiled(pattern).pieces[0]
    return first.startswith(beginning) or beginning.startswith(first)


def is_open(pattern: str) -> bool:
    """Whether the pattern ends in a star: more words never turn a match into none."""
    return _compiled(pattern).pieces[-1] == "" and not is_exact(pattern)


def is_exact(pattern: str) -> bool:
    """Whether the pattern has no star: it speaks of one text only."""
    return len(_compiled(pattern).pieces) == 1
