"""Find the session that a person named by its id, its title, the start of its id or its first prompt.

A whole id takes precedence, then a title, a title in another case, the start of an id, and the first prompt of a
session without a title, which lists show in place of one. For titles and prompts, the sessions of this project take
precedence over those of others. A UUID is always an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from parley.errors import SessionError
from parley.stores.base import Info, Store
from parley.stores.session_open import is_uuid

LEAST_CHARS = 4
"""How much of an id must be given."""
MOST_CHARS = 60
MOST_NAMED = 10
"""How many sessions the error for an ambiguous name lists."""
MOST_SIMILAR = 5
"""How many sessions the error for an unknown name lists."""
LEAST_SIMILAR = 0.7


def find_session(name: str, stores: Iterable[Store], project: str) -> str | None:
    """The id of the session; None if there is none. Raises SessionError if several fit."""
    all_stores = list(stores)
    if any(store.exists(name) for store in all_stores):
        return name
    if is_uuid(name) or not name.strip():
        return None

    @cache
    def list_scope(scope: str | None) -> list[Info]:
        return [info for store in all_stores for info in store.list(scope)]

    words, folded = name.split(), name.casefold().split()
    here_first, everywhere = (project, None), (None,)
    rules: tuple[tuple[tuple[str | None, ...], Callable[[Info], bool], str], ...] = (
        (here_first, lambda info: (info.title or "").split() == words, "are called"),
        (here_first, lambda info: (info.title or "").casefold().split() == folded, "are called"),
        (everywhere, lambda info: starts_id(info, name), "have an id that starts with"),
        (here_first, lambda info: info.shown_title.casefold().split() == folded, "have the first prompt"),
    )
    for scopes, fits, what in rules:
        for scope in scopes:
            if found := [info for info in list_scope(scope) if fits(info)]:
                return choose(found, f"{what} {name!r}")
    return None


def starts_id(info: Info, name: str) -> bool:
    return len(name) >= LEAST_CHARS and info.id.startswith(name.lower())


def explain_unknown(name: str, stores: Iterable[Store]) -> str:
    """What was looked for, and the sessions with a similar title, to append to the error."""
    similar = find_similar(name, [info for store in stores for info in store.list()])
    listed = "; ".join(f"{info.id} ({describe(info)})" for info in similar)
    return (
        f" (no session has this id, title or first prompt, or an id that starts with it; the start of an id needs at "
        f"least {LEAST_CHARS} characters). "
        + (f"Similar sessions: {listed}. " if listed else "")
        + "To list all sessions: parley sessions list --all"
    )


def find_similar(name: str, known: Iterable[Info]) -> list[Info]:
    """The sessions whose title contains the name or a similar word, best first."""
    from difflib import SequenceMatcher

    wanted = " ".join(name.casefold().split())

    def rate(info: Info) -> float:
        title = " ".join(info.shown_title.casefold().split())
        if wanted in title:
            return 1
        return max(SequenceMatcher(None, wanted, part).ratio() for part in (title, *title.split()))

    rated = [(rate(info), info) for info in known]
    similar = sorted(((rating, info) for rating, info in rated if rating >= LEAST_SIMILAR), key=lambda one: -one[0])
    return [info for _, info in similar[:MOST_SIMILAR]]


def choose(found: list[Info], what: str) -> str:
    """The id of the only one. Raises SessionError."""
    if len(found) == 1:
        return found[0].id
    latest = sorted(found, key=lambda info: info.modified, reverse=True)
    listed = "; ".join(f"{info.id} ({describe(info)}, {info.modified}, {info.cwd})" for info in latest[:MOST_NAMED])
    more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    raise SessionError(f"{len(found)} sessions {what}. Name one of them by its id: {listed}{more}")


def describe(info: Info) -> str:
    """The title or the start of the prompt, safe to print."""
    text = " ".join((info.shown_title or "no title").split())
    return "".join(letter for letter in text if letter.isprintable())[:MOST_CHARS]
