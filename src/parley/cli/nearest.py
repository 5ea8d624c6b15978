"""Find the known word that a mistyped one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable

LETTERS_PER_TYPO = 4
"""A word of eight letters may have two typos; a shorter one may have one."""
SHORT = 4
"""Names of up to this many letters are too close to ordinary words: `lint` and `unit` are not `link` and `init`."""


def find_nearest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)`, or nothing if no known word is similar."""
    from difflib import get_close_matches

    names = {name.lstrip("-"): name for name in known}
    near = get_close_matches(word.lstrip("-"), names, n=1)
    return f" (did you mean {names[near[0]]}?)" if near else ""


def find_mistyped(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that differs by a typo or two; None if none does.

    Stricter than `find_nearest`: a word that is probably something else must not be taken for a mistake.
    """
    typos, name = min(((count_typos(word, name), name) for name in known), default=(0, ""))
    if typos > max(1, len(name) // LETTERS_PER_TYPO):
        return None
    is_swapped = sorted(word) == sorted(name)
    if len(name) <= SHORT and not is_swapped and (len(name) < SHORT or len(word) == len(name)):
        return None
    return name or None


def count_typos(one: str, other: str) -> int:
    """How many letters must be inserted, removed, replaced or swapped with the next to make the words equal."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, wanted in enumerate(other, 1):
            best = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted:
                best = min(best, before[column - 2] + 1)
            current.append(best)
        before, last = last, current
    return last[-1]
