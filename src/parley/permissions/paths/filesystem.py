"""The file system as it is, for decisions on paths.

Not here: opening what was decided on. Between the decision and the opening a name may
change its meaning; the reach of the decision keeps the opener from following it.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from itertools import islice
from typing import Any

from parley.permissions.base import EntryKind, Filesystem, RawFilesystem, ResolvedPath
from parley.permissions.budget import OverBudget, describe_excess
from parley.permissions.paths.patterns import MAX_PATH_CHARACTERS, normalize_name

MAX_LINKS = 40
"""As many as the kernel follows."""
MAX_ENTRIES = 10_000
"""So many names in folders are looked at for one decision."""
MAX_LISTED = 256
"""A folder with more names is not listed ahead."""
MAX_PARTS = 256
PROCESS_CWD = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/cwd")
"""A link that leads to where a process is: for a command it is another place than for us."""
MAX_STEPS = 4_000
"""Names that are looked at and compared in one decision, of files and of rules."""


class RealFilesystem:
    def __init__(self, home: str, now: Callable[[], int] = time.time_ns) -> None:
        self.home = home
        self.now = now
        self.memo: dict[Hashable, Any] | None = {}
        """What memo.py keeps from one decision to the next."""

    def readlink(self, path: str) -> str | None:
        try:
            return os.readlink(path)
        except (OSError, ValueError):
            return None

    def exists(self, path: str) -> bool:
        try:
            return os.path.lexists(path)
        except ValueError:
            return False

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        try:
            return _scan(path, limit)
        except (OSError, ValueError):
            return {}

    def listing(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        """As `entries`, but empty only where nothing can be: None also for a folder that cannot be listed."""
        try:
            return _scan(path, limit)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError):
            return None

    def is_folder(self, path: str) -> bool:
        try:
            return os.access(f"{path}/.", os.X_OK)  # what is no folder, or cannot be entered, has no such name in it
        except ValueError:
            return False

    def read(self, path: str, max_bytes: int) -> bytes | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except (OSError, ValueError):
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
                return None
            data = os.read(descriptor, status.st_size + 1)
            while len(data) <= max_bytes and (more := os.read(descriptor, 4096)):  # it may grow meanwhile
                data += more
            return data if len(data) <= max_bytes else None
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

    def state(self, path: str) -> tuple[int, ...] | None:
        """As `signature`, of a link itself. Of a folder it changes with the names in it."""
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def resolve(self, path: str) -> ResolvedPath:
        return resolve_path(path, self.readlink)


def _scan(path: str, limit: int) -> Mapping[str, EntryKind] | None:
    found: dict[str, EntryKind] = {}
    with os.scandir(path) as folder:
        for entry in islice(folder, limit + 1):
            is_folder = entry.is_dir(follow_symlinks=False)
            found[entry.name] = "folder" if is_folder else "link" if entry.is_symlink() else "file"
    return found if len(found) <= limit else None


def _unsupported(*_: object) -> None:
    """The answer of a view that does not have a method."""


class CachedFilesystem:
    """A view for one decision: during it, a link leads to one place only, and is looked at once."""

    def __init__(self, fs: RawFilesystem) -> None:
        self.home = fs.home
        self._fs = fs
        self._resolved: dict[str, ResolvedPath] = {}
        self._links: dict[str, str | None] = {}
        self._aliases: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.steps = 0
        self._entries: dict[str, Mapping[str, EntryKind] | None] = {}
        self._entries_left = MAX_ENTRIES
        self._prefetched: dict[str, tuple[Mapping[str, EntryKind], frozenset[str]]] = {}
        """Folders that were listed ahead: the names in them, and these in the spelling that is compared."""
        self.real = fs if isinstance(fs, RealFilesystem) else None
        # A view that cannot list folders knows of no folder what is in it.
        self._list = getattr(fs, "entries", _unsupported)

    def spend(self, steps: int) -> None:
        """Raises OverBudget for a call that names more than can be looked at."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise OverBudget("It names too many files to judge, or too many for the number of rules")

    def readlink(self, path: str) -> str | None:
        if path not in self._links:
            if (self._prefetched or self._entries) and self._is_known_non_link(path):
                return None
            self.spend(2)
            self._links[path] = self._fs.readlink(path)
        return self._links[path]

    def prefetch(self, folder: str) -> None:
        """List a folder of which many names are wanted: for those that are not in it, no further look is taken.

        A folder that cannot be listed, or has many names, is looked at name by name. So is a name that is there in
        another spelling, which some file systems take for the same.
        """
        if folder in self._prefetched:
            return
        self.spend(4)
        found: Mapping[str, EntryKind] | None = getattr(self._fs, "listing", _unsupported)(folder, MAX_LISTED)
        if found is not None:
            self._prefetched[folder] = found, frozenset(normalize_name("/".join(found)).split("/"))

    def _is_known_non_link(self, path: str) -> bool:
        """Whether a folder that was listed has the name as something else, or was listed ahead and does not have it."""
        folder, _, name = path.rpartition("/")
        known = self._prefetched.get(folder)
        names = known[0] if known is not None else self._entries.get(folder or "/")
        kind = names.get(name) if names else None
        if kind is not None:
            return kind != "link"
        return known is not None and normalize_name(name) not in known[1]

    def possible_names(self, folder: str, names: Collection[str]) -> Collection[str]:
        known = self._prefetched.get(folder)
        return names if known is None else known[1].intersection(names)

    def _is_prefetched(self, path: str) -> bool | None:
        """Whether a name is in a folder that was listed ahead; None if that has to be looked up."""
        folder, _, name = path.rpartition("/")
        known = self._prefetched.get(folder)
        if known is None:
            return None
        return True if name in known[0] else None if normalize_name(name) in known[1] else False

    def folder_aliases(self, folders: tuple[str, ...]) -> tuple[str, ...]:
        """The folders as they are given, and what they are called without links."""
        known = self._aliases.get(folders)
        if known is None:
            reals = [self.resolve(folder).real or folder for folder in folders]
            known = self._aliases[folders] = tuple(dict.fromkeys([*folders, *reals]))
        return known

    def exists(self, path: str) -> bool:
        if self._prefetched and (known := self._is_prefetched(path)) is not None:
            return known
        self.spend(2)
        return self._fs.exists(path)

    def entries(self, path: str, limit: int) -> Mapping[str, EntryKind] | None:
        real = self.resolve(path).real
        if real is None:
            return {}
        if real not in self._entries:
            found = self._entries[real] = self._list(real, min(limit, self._entries_left))
            self._entries_left -= len(found) if found is not None else self._entries_left
        return self._entries[real]

    def is_folder(self, path: str) -> bool:
        return bool(getattr(self._fs, "is_folder", _unsupported)(path))

    def read(self, path: str, max_bytes: int) -> bytes | None:
        # A view that cannot read files knows of none what is in it.
        found: bytes | None = getattr(self._fs, "read", _unsupported)(path, max_bytes)
        return found

    def identity(self, path: str) -> tuple[int, int] | None:
        found: tuple[int, int] | None = getattr(self._fs, "identity", _unsupported)(path)
        return found

    def signature(self, path: str) -> tuple[int, ...] | None:
        found: tuple[int, ...] | None = getattr(self._fs, "signature", _unsupported)(path)
        return found

    def watch_folder(self, folder: str) -> None:
        getattr(self._fs, "watch_folder", _unsupported)(folder)

    def state(self, path: str) -> tuple[int, ...] | None:
        found: tuple[int, ...] | None = getattr(self._fs, "state", _unsupported)(path)
        return found

    def resolve(self, path: str) -> ResolvedPath:
        known = self._resolved.get(path)
        if known is None:
            self.spend(4)
            known = self._resolved[path] = self._resolve_beside(path) or resolve_path(path, self.readlink)
            self.spend(max(0, len(known.names) - 3))  # past the first link, each costs as much as a way
        return known

    def _resolve_beside(self, path: str) -> ResolvedPath | None:
        """The way to a file right in a folder that was gone to before, if neither is reached by a link."""
        folder, _, name = path.rpartition("/")
        known = self._resolved.get(folder)
        if known is None or known.names != (folder,) or name in ("", ".", "..") or path.count("/") >= MAX_PARTS:
            return None
        return ResolvedPath((path,), path) if len(path) <= MAX_PATH_CHARACTERS and self.readlink(path) is None else None


def prefetch(fs: Filesystem, folder: str) -> None:
    """Look at a folder once for many names; only a view for one decision keeps what it saw."""
    if isinstance(fs, CachedFilesystem):
        fs.prefetch(folder)


def watch_folder(fs: Filesystem, folder: str) -> None:
    """Before single names in a folder are looked at: memo.py can tell by the folder that they are as they were."""
    if isinstance(fs, CachedFilesystem):
        fs.watch_folder(folder)


def possible_names(fs: Filesystem, folder: str, names: Collection[str]) -> Collection[str]:
    """Those of some names in lower case that a folder may have, as far as it was listed ahead."""
    return fs.possible_names(folder, names) if isinstance(fs, CachedFilesystem) else names


def signature(fs: Filesystem, path: str) -> tuple[int, ...] | None:
    """None where a file cannot be told from itself after a change."""
    return fs.signature(path) if isinstance(fs, CachedFilesystem) else None


def resolve_path(path: str, readlink: Callable[[str], str | None]) -> ResolvedPath:
    """Go along a path as the kernel does, part by part, and keep every name that it had. Raises OverBudget."""
    if len(path) > MAX_PATH_CHARACTERS:
        raise OverBudget(describe_excess("The path is too long", len(path), MAX_PATH_CHARACTERS, "characters"))
    name = normalize_path(path)
    if name == path and path.count("/") <= MAX_PARTS and _has_no_link(path, readlink):
        return ResolvedPath((path,), path)
    names = [name]
    here, rest, links, steps, is_known = "/", split_path(path)[::-1], 0, 0, True
    while rest:
        part = rest.pop()
        steps += 1
        if steps + len(rest) > MAX_PARTS:
            raise OverBudget(
                describe_excess("The path goes through too many folders", steps + len(rest), MAX_PARTS, "folders")
            )
        if part == "..":
            here = os.path.dirname(here)
            continue
        there = f"{here}/{part}" if here != "/" else f"/{part}"
        target = readlink(there)
        if target is None:
            here = there
            continue
        links += 1
        is_known = is_known and PROCESS_CWD.fullmatch(there) is None
        if links > MAX_LINKS:
            return ResolvedPath(tuple(dict.fromkeys(names)), None)
        names.append(normalize_path("/".join([there, *reversed(rest)])))
        here = "/" if target.startswith("/") else here
        rest += reversed(split_path(target))
        names.append(normalize_path("/".join([here, *reversed(rest)])))
    return ResolvedPath(tuple(dict.fromkeys([*names, here])), here if is_known else None)


def _has_no_link(path: str, target_of: Callable[[str], str | None]) -> bool:
    """Whether neither a plain path nor a folder above it is a link."""
    end = path.find("/", 1)
    while end > 0:
        if target_of(path[:end]) is not None:
            return False
        end = path.find("/", end + 1)
    return target_of(path) is None


def normalize_path(path: str) -> str:
    """Without dots and doubled slashes; `normpath` would keep two slashes in front."""
    if path[:1] == "/" and "//" not in path and "/." not in path and path[-1] != "/":
        return path
    return "/" + os.path.normpath(path).lstrip("/")


def split_path(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
