"""How words become a query of SQLite's full-text search. Pure."""

from __future__ import annotations

from parley.stores.words import words

MOST_WORDS = 64


def queries(text: str) -> list[str]:
    """One that wants all the words, then one that is content with any; none for a text without a word."""
    quoted = [f'"{word}"' for word in dict.fromkeys(words(text))][:MOST_WORDS]
    if len(quoted) < 2:
        return quoted
    return [" ".join(quoted), " OR ".join(quoted)]
