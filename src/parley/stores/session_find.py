"""Find the session that a person named by its id, its title or the start of its id.

A whole id takes precedence, then a title of this project, a title of any project, and the start of an id. A UUID is
always an id.
"""

from __future__ import annotations

from collections.abc import Iterable

from parley.errors import SessionError
from parley.stores.base import Info, Store
from parley.stores.session_open import is_uuid

LEAST_CHARS = 4
"""How much of an id must be given."""
MOST_CHARS = 60
MOST_NAMED = 10
"""How many sessions the error for an ambiguous name lists."""


def find_session(name: str, stores: Iterable[Store], project: str) -> str | None:
    """The id of the session; None if there is none. Raises SessionError if several fit."""
    all_stores = list(stores)
    if any(store.exists(name) for store in all_stores):
        return name
    if is_uuid(name) or not name.strip():
        return None
    for scope in (project, None):
        found = [info for store in all_stores for info in store.list(scope) if has_title(info, name)]
        if found:
            return choose(found, f"are called {name!r}")
    if len(name) < LEAST_CHARS:
        return None
    found = [info for store in all_stores for info in store.list() if info.id.startswith(name.lower())]
    return choose(found, f"have an id that starts with {name!r}") if found else None


def has_title(info: Info, title: str) -> bool:
    return info.title is not None and info.title.split() == title.split()


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
    text = " ".join((info.title or info.first_prompt or "no title").split())
    return "".join(letter for letter in text if letter.isprintable())[:MOST_CHARS]
