"""Sessions by their titles: `--resume "Fix the parser"`.

An id always comes first, and what looks like one is never taken for a title. A title names a
session if exactly one has it: in this project, or else in any.
"""

from __future__ import annotations

from collections.abc import Iterable

from parley.errors import SessionError
from parley.stores.base import Info, Store
from parley.stores.session_open import is_uuid

MOST_NAMED = 10


def titled(name: str, stores: Iterable[Store], project: str) -> str | None:
    """The id of the session with this title; None if there is none. Raises SessionError if there are several."""
    if is_uuid(name):
        return None
    places = list(stores)
    for where in (project, None):
        found = [info for store in places for info in store.list(where) if is_called(info, name)]
        if len(found) > 1:
            raise SessionError(several(name, found))
        if found:
            return found[0].id
    return None


def is_called(info: Info, name: str) -> bool:
    return info.title is not None and info.title.split() == name.split()


def several(name: str, found: list[Info]) -> str:
    latest = sorted(found, key=lambda info: info.modified, reverse=True)
    named = "; ".join(f"{info.id} ({info.modified}, {info.cwd})" for info in latest[:MOST_NAMED])
    more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"{len(found)} sessions are called {name!r}. Resume one of them by its id: {named}{more}"
