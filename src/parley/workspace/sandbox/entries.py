"""Protected names that no mount protects: compared after each command, and restored.

A command may have put a symlink in the place of a folder, and may still be running. So everything here is done relative
to folders that were opened without following a symlink.

Runs in the engine and in the process that cleans up after a killed engine, and uses only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

GIT = ".git"
GIT_RESTRICTED = ("config", "config.worktree", "hooks", "commondir", "gitdir")
"""Files of a repository that name programs or other repositories."""


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

    def includes(self, name: str) -> bool:
        plain = normalize(name)
        return plain in self.folders or plain in self.files


def normalize(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


class ProtectedEntries:
    """Protected names in given folders that no mount protects: compares them, and restores them."""

    def __init__(self, folders: Iterable[str], names: ProtectedNames) -> None:
        self._names = names
        self.before = {folder: self._list(folder) for folder in folders}
        """The entries to restore."""

    def accept(self) -> None:
        """Take the current entries as those to restore."""
        self.before = {folder: self._list(folder) for folder in self.before}

    def accept_change(self, path: str) -> None:
        """Take over a change of the user's."""
        for folder, before in self.before.items():
            if path.startswith(folder + "/"):
                found = self._list(folder)
                inner = path[len(folder) + 1 :]
                before |= {
                    name: target for name, target in found.items() if inner == name or inner.startswith(name + "/")
                }

    def restore(self, quarantine: str) -> list[str]:
        """Move new entries away and restore changed symlinks. Returns the paths. Raises OSError."""
        found: list[str] = []
        for folder, before in self.before.items():
            for name, target in self._list(folder).items():
                path = os.path.join(folder, name)
                if name not in before or (before[name] and target != before[name]):
                    with open_parent(path) as (opened, last):
                        move_away(opened, last, quarantine)
                    found.append(path)
            for name, target in before.items():
                path = os.path.join(folder, name)
                with contextlib.suppress(FileExistsError, NotADirectoryError, FileNotFoundError):
                    if target:
                        with open_parent(path) as (opened, last):
                            os.symlink(target, last, dir_fd=opened)
                        found.append(path)
        return list(dict.fromkeys(found))

    def to_json(self) -> dict[str, object]:
        """What another process needs to restore the entries."""
        names = self._names
        return {
            "folders": sorted(names.folders),
            "files": sorted(names.files),
            "pairs": names.pairs,
            "before": self.before,
        }

    def _list(self, folder: str) -> dict[str, str]:
        """The protected names in a folder, each with the target of a symlink or ""."""
        found: dict[str, str] = {}
        with contextlib.suppress(OSError), open_folder(folder) as opened:
            for name in os.listdir(opened):
                if self._is_protected(name, folder):
                    found[name] = read_link(opened, name)
                elif normalize(name) in {outer for outer, _ in self._names.pairs}:
                    found |= self._list_pairs(opened, name)
        return found

    def _list_pairs(self, folder: int, outer: str) -> dict[str, str]:
        """The protected subfolders of a folder that is not protected itself."""
        found: dict[str, str] = {}
        with contextlib.suppress(OSError), open_inner(folder, outer) as opened:
            for name in os.listdir(opened):
                if (normalize(outer), normalize(name)) in self._names.pairs:
                    found[os.path.join(outer, name)] = read_link(opened, name)
        return found

    def _is_protected(self, name: str, folder: str) -> bool:
        if normalize(os.path.basename(folder)) == GIT:
            return name in GIT_RESTRICTED
        return self._names.includes(name)


@contextlib.contextmanager
def open_folder(path: str) -> Iterator[int]:
    """Open a folder by its real path. Raises OSError if there is a symlink on the way, or no folder."""
    current = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.split("/"):
            if part:
                flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                inner = os.open(part, flags, dir_fd=current)
                os.close(current)
                current = inner
        opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=current)
    finally:
        os.close(current)
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def open_inner(folder: int, name: str) -> Iterator[int]:
    """Open a folder in an opened one. Raises OSError if it is not a folder."""
    opened = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def open_parent(path: str) -> Iterator[tuple[int, str]]:
    """The folder that contains a path, and the name in it. Raises OSError."""
    folder, name = os.path.split(path)
    with open_folder(folder) as opened:
        yield opened, name


def move_away(folder: int, name: str, quarantine: str) -> None:
    """Move an entry of an opened folder into a private folder, whatever it contains. Raises OSError."""
    os.makedirs(quarantine, mode=0o700, exist_ok=True)
    place = os.path.join(quarantine, f"{len(os.listdir(quarantine))}-{name.lstrip('.')}")
    try:
        os.rename(name, place, src_dir_fd=folder)
    except OSError:  # on another file system
        remove_entry(folder, name)


def remove_entry(folder: int, name: str) -> None:
    """Remove a file or a whole folder. Raises OSError."""
    if not stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
        os.unlink(name, dir_fd=folder)
        return
    with open_inner(folder, name) as opened:
        for inner in os.listdir(opened):
            remove_entry(opened, inner)
    os.rmdir(name, dir_fd=folder)


def read_link(folder: int, name: str) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return ""
