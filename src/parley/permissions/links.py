"""The links that a reader meets in folders, where it follows them."""

from __future__ import annotations

from collections.abc import Iterable

from parley.permissions.base import View
from parley.permissions.rules import Rules
from parley.permissions.view import MOST_ENTRIES
from parley.protocol.base import Struct


class Met(Struct, frozen=True):
    links: tuple[str, ...] = ()
    doubt: str = ""
    """Why there may be others."""


def met(followed: Iterable[tuple[str, bool]], rules: Rules, view: View) -> Met:
    """The links in some folders, at any depth where that is said. One that leads out is not entered."""
    links: dict[str, None] = {}
    waiting, known = list(followed), set[tuple[str | None, bool]]()
    while waiting:
        folder, deep = waiting.pop()
        here = (view.way(folder).real, deep)
        if here in known:
            continue
        known.add(here)
        names = view.entries(folder, MOST_ENTRIES)
        if names is None:
            return Met(tuple(links), f"There are too many files below {folder} to see where every link in it leads")
        for name, kind in names.items():
            path = f"{folder.rstrip('/')}/{name}"
            if kind == "link":
                links[path] = None
            if deep and (kind == "folder" or (kind == "link" and rules.is_at_hand(view.way(path), view))):
                waiting.append((path, deep))
    return Met(tuple(links))
