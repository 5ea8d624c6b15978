"""Texts with stars in them, matched in time that grows with the text only, whatever the pattern."""

from __future__ import annotations

from collections.abc import Sequence


def matches(pattern: str, text: str) -> bool:
    """Whether a text is what a pattern says in which each `*` stands for any text."""
    return matches_pieces(pattern.split("*"), text)


def matches_pieces(pieces: Sequence[str], text: str) -> bool:
    """The same for the texts between the stars."""
    if len(pieces) == 1:
        return text == pieces[0]
    if not text.startswith(pieces[0]):
        return False
    index = len(pieces[0])
    for piece in pieces[1:-1]:
        index = text.find(piece, index)
        if index < 0:
            return False
        index += len(piece)
    return len(text) - len(pieces[-1]) >= index and text.endswith(pieces[-1])
