"""The file system as it is, for decisions on paths.

Not here: opening what was decided on. Between the decision and the opening a name may
change its meaning; the reach of the decision keeps the opener from following it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from itertools import islice

from parley.permissions.base import Entry, Links, View, Way
from parley.permissions.budget import OverBudget, too_much
from parley.permissions.paths.patterns import LONGEST_PATH, folded

MOST_LINKS = 40
"""As many as the kernel follows."""
MOST_ENTRIES = 10_000
"""So many names in folders are looked at for one decision."""
MOST_LISTED = 256
"""A folder with more names is not listed ahead."""
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
        try:
            return _scan(path, most)
        except (OSError, ValueError):
            return {}

    def listing(self, path: str, most: int) -> Mapping[str, Entry] | None:
        """As `entries`, but empty only where nothing can be: None also for a folder that cannot be listed."""
        try:
            return _scan(path, most)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError):
            return None

    def is_folder(self, path: str) -> bool:
        try:
            return os.access(f"{path}/.", os.X_OK)  # what is no folder, or cannot be entered, has no such name in it
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
            data = os.read(descriptor, status.st_size + 1)
            while len(data) <= most_bytes and (more := os.read(descriptor, 4096)):  # it may grow meanwhile
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

    def signature(self, path: str) -> tuple[int, ...] | None:
        """What changes with the contents of a file, links followed; at the end the time of its last change, in
        nanoseconds, which no program can set, but which is only as fine as the kernel's clock."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def way(self, path: str) -> Way:
        return follow(path, self.link)


def _scan(path: str, most: int) -> Mapping[str, Entry] | None:
    found: dict[str, Entry] = {}
    with os.scandir(path) as folder:
        for entry in islice(folder, most + 1):
            is_folder = entry.is_dir(follow_symlinks=False)
            found[entry.name] = "folder" if is_folder else "link" if entry.is_symlink() else "file"
    return found if len(found) <= most else None


def _unknown(*_: object) -> None:
    """The answer of a view that does not have a method."""


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
        self._ahead: dict[str, tuple[Mapping[str, Entry], frozenset[str]]] = {}
        """Folders that were listed ahead: the names in them, and these in the spelling that is compared."""
        # A view that cannot list folders knows of no folder what is in it.
        self._list = getattr(view, "entries", _unknown)

    def spend(self, steps: int) -> None:
        """Raises OverBudget for a call that names more than can be looked at."""
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise OverBudget("It names too many files to judge, or too many for the number of rules")

    def link(self, path: str) -> str | None:
        if path not in self._links:
            if (self._ahead or self._entries) and self._is_known_not_to_be_a_link(path):
                return None
            self.spend(2)
            self._links[path] = self._view.link(path)
        return self._links[path]

    def list_ahead(self, folder: str) -> None:
        """List a folder of which many names are wanted: for those that are not in it, no further look is taken.

        A folder that cannot be listed, or has many names, is looked at name by name. So is a name that is there in
        another spelling, which some file systems take for the same.
        """
        if folder in self._ahead:
            return
        self.spend(4)
        found: Mapping[str, Entry] | None = getattr(self._view, "listing", _unknown)(folder, MOST_LISTED)
        if found is not None:
            self._ahead[folder] = found, frozenset(folded("/".join(found)).split("/"))

    def _is_known_not_to_be_a_link(self, path: str) -> bool:
        """Whether a folder that was listed has the name as something else, or was listed ahead and does not have it."""
        folder, _, name = path.rpartition("/")
        known = self._ahead.get(folder)
        names = known[0] if known is not None else self._entries.get(folder or "/")
        kind = names.get(name) if names else None
        if kind is not None:
            return kind != "link"
        return known is not None and folded(name) not in known[1]

    def may_be_in(self, folder: str, names: Collection[str]) -> Collection[str]:
        known = self._ahead.get(folder)
        return names if known is None else known[1].intersection(names)

    def _is_listed(self, path: str) -> bool | None:
        """Whether a name is in a folder that was listed ahead; None if that has to be looked up."""
        folder, _, name = path.rpartition("/")
        known = self._ahead.get(folder)
        if known is None:
            return None
        return True if name in known[0] else None if folded(name) in known[1] else False

    def spellings(self, folders: tuple[str, ...]) -> tuple[str, ...]:
        """The folders as they are given, and what they are called without links."""
        known = self._spellings.get(folders)
        if known is None:
            reals = [self.way(folder).real or folder for folder in folders]
            known = self._spellings[folders] = tuple(dict.fromkeys([*folders, *reals]))
        return known

    def has(self, path: str) -> bool:
        if self._ahead and (known := self._is_listed(path)) is not None:
            return known
        self.spend(2)
        return self._view.has(path)

    def entries(self, path: str, most: int) -> Mapping[str, Entry] | None:
        real = self.way(path).real
        if real is None:
            return {}
        if real not in self._entries:
            found = self._entries[real] = self._list(real, min(most, self._left))
            self._left -= len(found) if found is not None else self._left
        return self._entries[real]

    def is_folder(self, path: str) -> bool:
        return bool(getattr(self._view, "is_folder", _unknown)(path))

    def read(self, path: str, most_bytes: int) -> bytes | None:
        # A view that cannot read files knows of none what is in it.
        found: bytes | None = getattr(self._view, "read", _unknown)(path, most_bytes)
        return found

    def identity(self, path: str) -> tuple[int, int] | None:
        found: tuple[int, int] | None = getattr(self._view, "identity", _unknown)(path)
        return found

    def signature(self, path: str) -> tuple[int, ...] | None:
        found: tuple[int, ...] | None = getattr(self._view, "signature", _unknown)(path)
        return found

    def way(self, path: str) -> Way:
        known = self._ways.get(path)
        if known is None:
            self.spend(4)
            known = self._ways[path] = self._beside(path) or follow(path, self.link)
            self.spend(max(0, len(known.names) - 3))  # past the first link, each costs as much as a way
        return known

    def _beside(self, path: str) -> Way | None:
        """The way to a file right in a folder that was gone to before, if neither is reached by a link."""
        folder, _, name = path.rpartition("/")
        known = self._ways.get(folder)
        if known is None or known.names != (folder,) or name in ("", ".", "..") or path.count("/") >= MOST_PARTS:
            return None
        return Way((path,), path) if len(path) <= LONGEST_PATH and self.link(path) is None else None


def list_ahead(view: View, folder: str) -> None:
    """Look at a folder once for many names; only a view for one decision keeps what it saw."""
    if isinstance(view, Glance):
        view.list_ahead(folder)


def may_be_in(view: View, folder: str, names: Collection[str]) -> Collection[str]:
    """Those of some names in lower case that a folder may have, as far as it was listed ahead."""
    return view.may_be_in(folder, names) if isinstance(view, Glance) else names


def signature(view: View, path: str) -> tuple[int, ...] | None:
    """None where a file cannot be told from itself after a change."""
    return view.signature(path) if isinstance(view, Glance) else None


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
