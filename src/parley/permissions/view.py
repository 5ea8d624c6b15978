"""The file system as it is, for decisions on paths.

Not here: opening what was decided on. Between the decision and the opening a name may
change its meaning; the reach of the decision keeps the opener from following it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping

from parley.permissions.base import Entry, Links, Way
from parley.permissions.budget import OverBudget, too_much
from parley.permissions.paths import LONGEST_PATH

MOST_LINKS = 40
"""As many as the kernel follows."""
MOST_ENTRIES = 10_000
"""So many names in folders are looked at for one decision."""
MOST_PARTS = 256
CWD_OF_A_PROCESS = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/cwd")
"""A link that leads to where a process is: for a command it is another place than for us."""
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

    def is_folder(self, path: str) -> bool:
        try:
            return os.path.isdir(path) and os.access(path, os.X_OK)
        except ValueError:
            return False

    def read(self, path: str, most_bytes: int) -> bytes | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except (OSError, ValueError):
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
                return None
            data = b""
            while len(data) <= most_bytes and (more := os.read(descriptor, most_bytes + 1 - len(data))):
                data += more
            return data if len(data) <= most_bytes else None
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def identity(self, path: str) -> tuple[int, int] | None:
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return status.st_dev, status.st_ino

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
        self._entries: dict[str, Mapping[str, Entry] | None] = {}
        self._left = MOST_ENTRIES
        # A view that cannot list folders knows of no folder what is in it.
        self._list = getattr(view, "entries", lambda path, most: None)
        # A view that cannot read files knows of none what is in it.
        self._read = getattr(view, "read", lambda path, most_bytes: None)
        self._is_folder = getattr(view, "is_folder", lambda path: False)
        self._identity = getattr(view, "identity", lambda path: None)

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

    def is_folder(self, path: str) -> bool:
        return bool(self._is_folder(path))

    def read(self, path: str, most_bytes: int) -> bytes | None:
        found: bytes | None = self._read(path, most_bytes)
        return found

    def identity(self, path: str) -> tuple[int, int] | None:
        found: tuple[int, int] | None = self._identity(path)
        return found

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
    here, rest, links, steps, is_known = "/", parts(path)[::-1], 0, 0, True
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
        is_known = is_known and CWD_OF_A_PROCESS.fullmatch(there) is None
        if links > MOST_LINKS:
            return Way(tuple(dict.fromkeys(names)), None)
        names.append(plain("/".join([there, *reversed(rest)])))
        here = "/" if target.startswith("/") else here
        rest += reversed(parts(target))
        names.append(plain("/".join([here, *reversed(rest)])))
    return Way(tuple(dict.fromkeys([*names, here])), here if is_known else None)


def plain(path: str) -> str:
    """Without dots and doubled slashes; `normpath` would keep two slashes in front."""
    return "/" + os.path.normpath(path).lstrip("/")


def parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
