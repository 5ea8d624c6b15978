"""Protected names that no mount protects: compared after each command, and restored.

A command may have put a symlink in the place of a folder, and may still be running. So everything here is done relative
to folders that were opened without following a symlink.

Runs in the engine and in the process that cleans up after a killed engine, and uses only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import secrets
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
        problem: OSError | None = None
        for folder, before in self.before.items():
            for name, target in self._list(folder).items():
                path = os.path.join(folder, name)
                if name not in before or (before[name] and target != before[name]):
                    try:
                        with open_parent(path) as (opened, last):
                            move_away(opened, last, quarantine)
                    except OSError as exc:  # the others are restored all the same
                        problem = problem or OSError(exc.errno, exc.strerror, path)
                    found.append(path)
            for name, target in before.items():
                path = os.path.join(folder, name)
                with contextlib.suppress(FileExistsError, NotADirectoryError, FileNotFoundError):
                    if target:
                        with open_parent(path) as (opened, last):
                            os.symlink(target, last, dir_fd=opened)
                        found.append(path)
        if problem is not None:
            raise problem
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


def move_away(folder: int, name: str, quarantine: str) -> None:
    """Move an entry of an opened folder into a private folder, whatever it contains. Raises OSError."""
    give_rights(folder)
    try:
        with open_folder(quarantine, create=True) as opened:
            place = f"{len(os.listdir(opened))}-{name.lstrip('.')}"
            os.rename(name, place, src_dir_fd=folder, dst_dir_fd=opened)
    except OSError:  # on another file system, or a command has replaced it
        remove_entry(folder, name)


def remove_entry(folder: int, name: str) -> None:
    """Remove a file or a whole folder, however deep it is. Raises OSError."""
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if not is_folder_in(folder, current):
            os.unlink(current, dir_fd=folder)
            continue
        with open_inner(folder, current) as opened:
            give_rights(opened)
            for inner in os.listdir(opened):
                if is_folder_in(opened, inner):
                    waiting.append(f".parley-{secrets.token_hex(8)}")
                    os.rename(inner, waiting[-1], src_dir_fd=opened, dst_dir_fd=folder)
                else:
                    os.unlink(inner, dir_fd=opened)
        os.rmdir(current, dir_fd=folder)


def is_folder_in(folder: int, name: str) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode)


def read_link(folder: int, name: str) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return ""
