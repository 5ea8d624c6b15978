"""The protected names in all folders below the writable ones, found again after each command at little cost.

    index = FolderIndex(roots, names)
    index.refresh()                  # lists the folders that have changed since
    index.entries                    # folder -> {name: target of a symlink, or ""}

A folder is listed again only if its change time differs, which a command cannot set. So a tree that did not change
costs one `lstat` for each folder. In folders of installed and built files (`NOT_ENTERED`) only the top is listed:
packages contain such names, and no one starts programs there.

Runs in the engine and in the process that cleans up after a killed engine, and uses only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

GIT = ".git"
GIT_RESTRICTED = ("config", "config.worktree", "hooks", "commondir", "gitdir")
"""Files of a repository that name programs or other repositories."""
NOT_ENTERED = frozenset({"node_modules", "__pycache__", ".venv", "venv", "target", "dist", "build"})
MAX_FOLDERS = 20_000
"""How many folders are listed at first, the upper ones before the lower ones. Those that appear later always are."""
SETTLED_NANOSECONDS = 100_000_000
"""A change that is not older than this could be followed by another one with the same time."""
UNSETTLED = -1

Entries = dict[str, str]
"""Names in a folder, each with the target of a symlink or ""."""


class ProtectedNames(NamedTuple):
    """Which names are protected, in lower case."""

    folders: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    pairs: tuple[tuple[str, str], ...] = ()
    """A folder and its subfolder."""
    exempt: tuple[tuple[str, str], ...] = ()
    """Folders below protected ones that commands may change."""
    masked: frozenset[str] = frozenset()
    """The folders that are masked if they do not exist."""

    def include(self, name: str, folder: str) -> bool:
        """Whether a name is protected in a folder. Both are normalized, except in a repository."""
        if folder == GIT:
            return name in GIT_RESTRICTED
        return name in self.folders or name in self.files or (folder, name) in self.pairs

    def cover(self, path: str) -> bool:
        """Whether a path is protected, or below something that is."""
        parts = [normalize(part) for part in path.split("/")]
        return any(self.include(name, folder) for folder, name in pairwise(parts))


def normalize(name: str) -> str:
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()


class Folder(NamedTuple):
    """A folder as it was when it was listed."""

    inode: int
    changed_ns: int
    inner: tuple[str, ...] = ()
    """The paths of the folders in it that are listed, too."""
    entries: Entries = {}


class FolderIndex:
    """All folders below some others, with the protected names in them."""

    def __init__(self, roots: Iterable[str], names: ProtectedNames, beyond: Iterable[str] = ()) -> None:
        """`beyond`: folders that are not listed, because another index has found too many."""
        self.names = names
        self.roots = tuple(roots)
        self.entries: dict[str, Entries] = {}
        """The folders that have protected names. Replaced by a refresh, never changed."""
        self.beyond = set(beyond)
        self._limit = MAX_FOLDERS if not self.beyond else 0
        self._folders: dict[str, Folder] = {}
        self._paths: list[str] = []
        self._times: list[int] = []
        self.refresh()
        self._limit = 0

    def refresh(self) -> None:
        """Look at the folders that have changed."""
        with contextlib.suppress(OSError):
            if self._paths and [os.lstat(path).st_ctime_ns for path in self._paths] == self._times:
                return
        found: dict[str, Folder] = {}
        waiting = deque(self.roots)
        while waiting:
            path = waiting.popleft()
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if path in found or not stat.S_ISDIR(status.st_mode):
                continue
            if self._limit and len(found) >= self._limit:
                self.beyond.add(path)
                continue
            known = self._folders.get(path)
            if known is None or (known.inode, known.changed_ns) != (status.st_ino, status.st_ctime_ns):
                known = self._list(path, status)
            found[path] = known
            waiting += known.inner
        self._folders = found
        self._paths = list(found)
        self._times = [folder.changed_ns for folder in found.values()]
        self.entries = {path: folder.entries for path, folder in found.items() if folder.entries}

    def _list(self, path: str, status: os.stat_result) -> Folder:
        is_settled = status.st_ctime_ns < time.time_ns() - SETTLED_NANOSECONDS
        base = normalize(os.path.basename(path))
        is_entered = base != GIT and (base not in NOT_ENTERED or path in self.roots)
        inner: list[str] = []
        entries: Entries = {}
        for name, is_folder in self._read(path):
            plain = normalize(name)
            inside = os.path.join(path, name)
            if self.names.include(name if base == GIT else plain, base):
                entries[name] = "" if is_folder else read_link(inside)
                if plain == GIT and is_folder:
                    inner.append(inside)
            elif is_folder and is_entered and inside not in self.beyond:
                inner.append(inside)
        return Folder(status.st_ino, status.st_ctime_ns if is_settled else UNSETTLED, tuple(inner), entries)

    def _read(self, path: str) -> list[tuple[str, bool]]:
        """The names in a folder, each with whether it is a folder."""
        try:
            with os.scandir(path) as found:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        except PermissionError:
            if not self._folders:
                return []  # commands cannot read it, either
        except OSError:
            return []
        with contextlib.suppress(OSError), open_folder(path) as opened, os.scandir(opened) as found:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        return []


@contextlib.contextmanager
def open_folder(path: str, *, create: bool = False) -> Iterator[int]:
    """Open a folder by its real path. Raises OSError if there is a symlink on the way, or no folder."""
    current = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in filter(None, path.split("/")):
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=current)
            inner = open_own(current, part, os.O_PATH)
            os.close(current)
            current = inner
        opened = open_own(current, ".", os.O_RDONLY)
    finally:
        os.close(current)
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def open_inner(folder: int, name: str) -> Iterator[int]:
    """Open a folder in an opened one. Raises OSError if it is not a folder."""
    opened = open_own(folder, name, os.O_RDONLY)
    try:
        yield opened
    finally:
        os.close(opened)


def open_own(folder: int, name: str, access: int) -> int:
    """Open a folder in an opened one, although a command has taken away our rights to one of them. Raises OSError."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(PermissionError):
        return os.open(name, access | flags, dir_fd=folder)
    give_rights(folder)
    inner = os.open(name, os.O_PATH | flags, dir_fd=folder)
    try:
        give_rights(inner)
        return os.open(name, access | flags, dir_fd=folder)
    finally:
        os.close(inner)


def give_rights(folder: int) -> None:
    """Let the owner list and change an opened folder. Raises OSError."""
    status = os.fstat(folder)
    if status.st_uid == os.geteuid() and status.st_mode & 0o700 != 0o700:
        os.chmod(f"/proc/self/fd/{folder}", stat.S_IMODE(status.st_mode) | 0o700)


@contextlib.contextmanager
def open_parent(path: str) -> Iterator[tuple[int, str]]:
    """The folder that contains a path, and the name in it. Raises OSError."""
    folder, name = os.path.split(path)
    with open_folder(folder) as opened:
        yield opened, name


def read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
