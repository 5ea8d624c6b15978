"""Match texts against patterns with `*`, in time linear in the text."""

from __future__ import annotations

from collections.abc import Sequence


def matches(pattern: str, text: str) -> bool:
    """Whether a text matches a pattern in which each `*` stands for any text."""
    return matches_pieces(pattern.split("*"), text)


def matches_pieces(pieces: Sequence[str], text: str) -> bool:
    """As `matches`, with the pattern split at its stars."""
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
