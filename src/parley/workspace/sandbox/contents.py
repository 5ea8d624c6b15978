"""The contents of protected files, to be restored after a command. Landlock cannot keep commands from changing them.

    contents = ProtectedContents(paths)
    contents.save()              # before a command
    contents.restore(quarantine) # after it; returns the paths that it changed

As in `entries.py`, nothing is done by a path that a command could have changed.

Runs in the engine and in the process that cleans up after a killed engine, and uses only the standard library.
"""

from __future__ import annotations

import base64
import contextlib
import os
import stat
import time
from collections.abc import Iterable
from typing import Any

from parley.workspace.sandbox.entries import move_away
from parley.workspace.sandbox.folders import SETTLED_NANOSECONDS, open_inner, open_parent

MAX_BYTES = 32 << 20
"""How much of each path is kept in memory. What is beyond it is moved away if it was changed."""
MAX_DEPTH = 32

Saved = dict[str, Any]
"""The `mode`, and `data` of a file, `target` of a symlink, `entries` of a folder or `version` of what is not kept.
Empty for what does not exist."""


class ProtectedContents:
    """Protected files and folders, with what is in them."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)
        self.saved: dict[str, Saved] = {}
        self.folders: dict[str, int] = {}
        """The folders above them, with their inodes."""
        self._versions: dict[str, list[int]] = {}
        """Of files that were saved and had not changed for a while: they need not be read to be compared."""

    def save(self) -> None:
        before, self.saved, self.folders = self.saved, {}, {}
        for path in self._paths:
            if not os.path.lexists(path):
                self.saved[path] = {}
                continue
            if self._is_unchanged(path):
                self.saved[path] = before[path]
            else:
                self._read(path)
            for above in folders_above(path):
                if above not in self.folders:
                    self.folders[above] = os.lstat(above).st_ino

    def accept(self, changed: str) -> None:
        """Take over a change of the user's."""
        for path in self._paths:
            if changed == path or changed.startswith(path + "/"):
                self._read(path)

    def restore(self, quarantine: str) -> list[str]:
        """Undo changes; what was replaced is moved into a private folder. Raises OSError."""
        for folder, inode in sorted(self.folders.items()):
            move_back(folder, inode, quarantine)
        changed: list[str] = []
        problem: OSError | None = None
        for path, saved in self.saved.items():
            if self._is_unchanged(path) or not (saved or os.path.lexists(path)):
                continue
            try:
                with open_parent(path) as (folder_above, name):
                    if restore_tree(folder_above, name, saved, quarantine):
                        changed.append(path)
            except OSError as exc:  # the others are restored all the same
                problem = problem or OSError(exc.errno, exc.strerror, path)
        if problem is not None:
            raise problem
        return changed

    def _read(self, path: str) -> None:
        self._versions.pop(path, None)
        with contextlib.suppress(OSError), open_parent(path) as (folder, name):
            self.saved[path] = read_tree(folder, name, [MAX_BYTES]) or {}
            status = os.lstat(name, dir_fd=folder)
            # The version of a folder says nothing about what is below it.
            if stat.S_ISREG(status.st_mode) and status.st_ctime_ns < time.time_ns() - SETTLED_NANOSECONDS:
                self._versions[path] = version_of(status)

    def _is_unchanged(self, path: str) -> bool:
        version = self._versions.get(path)
        try:
            return version is not None and version_of(os.lstat(path)) == version
        except OSError:
            return False


def folders_above(path: str) -> list[str]:
    found = []
    while (path := os.path.dirname(path)) != "/":
        found.append(path)
    return found


def read_tree(folder: int, name: str, budget: list[int], depth: int = MAX_DEPTH) -> Saved | None:
    """What an entry of an opened folder is; None if there is none."""
    try:
        status = os.lstat(name, dir_fd=folder)
    except OSError:
        return None
    saved: Saved = {"mode": stat.S_IMODE(status.st_mode)}
    not_kept = {**saved, "version": version_of(status)}
    try:
        if stat.S_ISLNK(status.st_mode):
            return {**saved, "target": os.readlink(name, dir_fd=folder)}
        if stat.S_ISDIR(status.st_mode) and depth > 0:
            with open_inner(folder, name) as opened:
                inner = {each: read_tree(opened, each, budget, depth - 1) for each in sorted(os.listdir(opened))}
            return {**saved, "entries": {each: tree for each, tree in inner.items() if tree is not None}}
        if not stat.S_ISREG(status.st_mode) or status.st_size > budget[0]:
            return not_kept
        budget[0] -= status.st_size
        with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
            return {**saved, "data": base64.b64encode(file.read()).decode()}
    except OSError:
        return not_kept


def version_of(status: os.stat_result) -> list[int]:
    """What differs after every change of an entry."""
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def move_back(path: str, inode: int, quarantine: str) -> None:
    """If a folder was renamed, give it its name again; if it is gone, create it. Raises OSError."""
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        if status.st_ino == inode and stat.S_ISDIR(status.st_mode):
            return
    with open_parent(path) as (parent, name):
        if find_folder(parent, name) == inode:
            return
        if exists(parent, name):
            move_away(parent, name, quarantine)
        for other in os.listdir(parent):
            if find_folder(parent, other) == inode:
                os.rename(other, name, src_dir_fd=parent, dst_dir_fd=parent)
                return
        os.mkdir(name, dir_fd=parent)


def find_folder(parent: int, name: str) -> int | None:
    """The inode of a folder; None for anything else."""
    try:
        status = os.lstat(name, dir_fd=parent)
    except OSError:
        return None
    return status.st_ino if stat.S_ISDIR(status.st_mode) else None


def exists(parent: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    return True


def restore_tree(folder: int, name: str, saved: Saved, quarantine: str) -> bool:
    """Returns whether something had changed. Raises OSError."""
    if "version" in saved or not saved:
        if exists(folder, name) and version_of(os.lstat(name, dir_fd=folder)) != saved.get("version"):
            move_away(folder, name, quarantine)
            return True
        return False
    if "entries" in saved and find_folder(folder, name) is not None:
        changed = False
        with open_inner(folder, name) as opened:
            for inner in sorted({*saved["entries"], *os.listdir(opened)}):
                if inner in saved["entries"]:
                    changed |= restore_tree(opened, inner, saved["entries"][inner], quarantine)
                else:
                    move_away(opened, inner, quarantine)
                    changed = True
        return changed
    found = read_tree(folder, name, [MAX_BYTES])
    if found is not None and all(found.get(kind) == saved.get(kind) for kind in ("data", "target", "mode")):
        return False
    if exists(folder, name):
        move_away(folder, name, quarantine)
    write_tree(folder, name, saved)
    return True


def write_tree(folder: int, name: str, saved: Saved) -> None:
    if "version" in saved:
        return
    if "target" in saved:
        os.symlink(saved["target"], name, dir_fd=folder)
    elif "entries" in saved:
        os.mkdir(name, 0o700, dir_fd=folder)
        with open_inner(folder, name) as opened:
            for inner, tree in saved["entries"].items():
                write_tree(opened, inner, tree)
            os.fchmod(opened, saved["mode"])
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(base64.b64decode(saved["data"]))
            os.fchmod(file.fileno(), saved["mode"])
