"""The file system as it is, for decisions on paths.

Not here: opening what was decided on. Between the decision and the opening a name may
change its meaning; the reach of the decision keeps the opener from following it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from parley.permissions.base import Links, Way
from parley.permissions.budget import OverBudget, too_much

MOST_LINKS = 40
"""As many as the kernel follows."""
LONGEST_PATH = 4096
"""As the kernel has it."""
MOST_PARTS = 256
MOST_STEPS = 4_000
"""Names that are looked at and compared in one decision, of files and of rules."""


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

    def way(self, path: str) -> Way:
        return follow(path, self.link)


class Glance:
    """A view for one decision: during it, a link leads to one place only, and is looked at once."""

    def __init__(self, view: Links) -> None:
        self.home = view.home
        self._view = view
        self._ways: dict[str, Way] = {}
        self._links: dict[str, str | None] = {}
        self._spellings: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._steps = 0

    def spend(self, steps: int) -> None:
        """Raises OverBudget for a call that names more than can be looked at."""
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise OverBudget("It names too many files to judge, or too many for the number of rules")

    def link(self, path: str) -> str | None:
        if path not in self._links:
            self.spend(2)
            self._links[path] = self._view.link(path)
        return self._links[path]

    def spellings(self, folders: tuple[str, ...]) -> tuple[str, ...]:
        """The folders as they are given, and what they are called without links."""
        known = self._spellings.get(folders)
        if known is None:
            reals = [self.way(folder).real or folder for folder in folders]
            known = self._spellings[folders] = tuple(dict.fromkeys([*folders, *reals]))
        return known

    def has(self, path: str) -> bool:
        self.spend(2)
        return self._view.has(path)

    def way(self, path: str) -> Way:
        known = self._ways.get(path)
        if known is None:
            self.spend(4)
            known = self._ways[path] = follow(path, self.link)
        return known


def follow(path: str, target_of: Callable[[str], str | None]) -> Way:
    """Go along a path as the kernel does, part by part, and keep every name that it had. Raises OverBudget."""
    if len(path) > LONGEST_PATH:
        raise OverBudget(too_much("The path is too long", len(path), LONGEST_PATH, "characters"))
    names = [plain(path)]
    here, rest, links, steps = "/", parts(path)[::-1], 0, 0
    while rest:
        part = rest.pop()
        steps += 1
        if steps + len(rest) > MOST_PARTS:
            raise OverBudget(
                too_much("The path goes through too many folders", steps + len(rest), MOST_PARTS, "folders")
            )
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
        names.append(plain("/".join([there, *reversed(rest)])))
        here = "/" if target.startswith("/") else here
        rest += reversed(parts(target))
        names.append(plain("/".join([here, *reversed(rest)])))
    return Way(tuple(dict.fromkeys([*names, here])), here)


def plain(path: str) -> str:
    """Without dots and doubled slashes; `normpath` would keep two slashes in front."""
    return "/" + os.path.normpath(path).lstrip("/")


def parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
