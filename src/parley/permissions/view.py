"""The file system as it is, for decisions on paths.

Not here: opening what was decided on. Between the decision and the opening a name may
change its meaning; the reach of the decision keeps the opener from following it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from parley.permissions.base import Entry, Links, Way

MOST_LINKS = 40
"""As many as the kernel follows."""
MOST_ENTRIES = 10_000
"""So many names in folders are looked at for one decision."""


class RealView:
    def __init__(self, home: str) -> None:
        self.home = home

    def link(self, path: str) -> str | None:
        try:
            return os.readlink(path)
        except (OSError, ValueError):
            return None

    def has(self, path: str) -> bool:
        try:
            return os.path.lexists(path)
        except ValueError:
            return False

    def entries(self, path: str, most: int) -> Mapping[str, Entry] | None:
        found: dict[str, Entry] = {}
        try:
            with os.scandir(path) as folder:
                for entry in folder:
                    if len(found) >= most:
                        return None
                    is_folder = entry.is_dir(follow_symlinks=False)
                    found[entry.name] = "folder" if is_folder else "link" if entry.is_symlink() else "file"
        except (OSError, ValueError):
            return {}
        return found

    def way(self, path: str) -> Way:
        return follow(path, self.link)


class Glance:
    """A view for one decision: during it, a link leads to one place only, and is looked at once."""

    def __init__(self, view: Links) -> None:
        self.home = view.home
        self._view = view
        self._ways: dict[str, Way] = {}
        self._links: dict[str, str | None] = {}
        self._entries: dict[str, Mapping[str, Entry] | None] = {}
        self._left = MOST_ENTRIES
        # A view that cannot list folders knows of no folder what is in it.
        self._list = getattr(view, "entries", lambda path, most: None)

    def link(self, path: str) -> str | None:
        if path not in self._links:
            self._links[path] = self._view.link(path)
        return self._links[path]

    def has(self, path: str) -> bool:
        return self._view.has(path)

    def entries(self, path: str, most: int) -> Mapping[str, Entry] | None:
        real = self.way(path).real
        if real is None:
            return {}
        if real not in self._entries:
            found = self._entries[real] = self._list(real, min(most, self._left))
            self._left -= len(found) if found is not None else self._left
            top = real.rstrip("/")
            self._links.update((f"{top}/{name}", None) for name, kind in (found or {}).items() if kind != "link")
        return self._entries[real]

    def way(self, path: str) -> Way:
        known = self._ways.get(path)
        if known is None:
            known = self._ways[path] = follow(path, self.link)
        return known


def follow(path: str, target_of: Callable[[str], str | None]) -> Way:
    """Go along a path as the kernel does, part by part, and keep every name that it had."""
    names = [plain(path)]
    here, rest, links = "/", parts(path), 0
    while rest:
        part = rest.pop(0)
        if part == "..":
            here = os.path.dirname(here)
            continue
        there = f"{here}/{part}" if here != "/" else f"/{part}"
        target = target_of(there)
        if target is None:
            here = there
            continue
        links += 1
        if links > MOST_LINKS:
            return Way(tuple(dict.fromkeys(names)), None)
        names.append(plain("/".join([there, *rest])))
        here = "/" if target.startswith("/") else here
        rest = parts(target) + rest
        names.append(plain("/".join([here, *rest])))
    return Way(tuple(dict.fromkeys([*names, here])), here)


def plain(path: str) -> str:
    """Without dots and doubled slashes; `normpath` would keep two slashes in front."""
    return "/" + os.path.normpath(path).lstrip("/")


def parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
