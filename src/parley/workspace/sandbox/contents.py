"""The contents of protected files, to be restored after a command. Landlock cannot keep commands from changing them.

    contents = ProtectedContents(paths)
    contents.save()              # before a command
    contents.restore(quarantine) # after it; returns the paths that it changed

Runs in the engine and in the process that cleans up after a killed engine, and uses only the standard library.
"""

from __future__ import annotations

import base64
import contextlib
import os
import stat
from collections.abc import Iterable
from typing import Any

from parley.workspace.sandbox.entries import move_away

MAX_BYTES = 32 << 20
"""How much is kept in memory; what is beyond it is not restored."""

Saved = dict[str, Any]
"""The `mode`, and `data` of a file, `target` of a symlink or `entries` of a folder."""


class ProtectedContents:
    """Protected files and folders, with what is in them."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)
        self.saved: dict[str, Saved] = {}
        self.folders: dict[str, int] = {}
        """The folders that contain them, with their inodes."""

    def save(self) -> None:
        budget = [MAX_BYTES]
        parents = sorted({os.path.dirname(path) for path in self._paths})
        self.folders = {folder: os.lstat(folder).st_ino for folder in parents if os.path.isdir(folder)}
        found = {path: read_tree(path, budget) for path in self._paths}
        self.saved = {path: saved for path, saved in found.items() if saved is not None}

    def restore(self, quarantine: str) -> list[str]:
        """Undo changes; what was replaced is moved into a private folder. Raises OSError."""
        for folder, inode in sorted(self.folders.items()):
            move_back(folder, inode, quarantine)
        changed: list[str] = []
        for path, saved in self.saved.items():
            changed += restore_tree(path, saved, quarantine)
        return changed


def read_tree(path: str, budget: list[int]) -> Saved | None:
    """What is at a path; None if nothing is, or it is too large."""
    try:
        status = os.lstat(path)
        saved: Saved = {"mode": stat.S_IMODE(status.st_mode)}
        if stat.S_ISLNK(status.st_mode):
            return {**saved, "target": os.readlink(path)}
        if stat.S_ISDIR(status.st_mode):
            inner = {name: read_tree(os.path.join(path, name), budget) for name in sorted(os.listdir(path))}
            return {**saved, "entries": {name: tree for name, tree in inner.items() if tree is not None}}
        if not stat.S_ISREG(status.st_mode) or status.st_size > budget[0]:
            return None
        budget[0] -= status.st_size
        with open(path, "rb") as file:
            return {**saved, "data": base64.b64encode(file.read()).decode()}
    except OSError:
        return None


def move_back(folder: str, inode: int, quarantine: str) -> None:
    """If a folder was renamed, give it its name again; if it is gone, create it."""
    if os.path.lexists(folder):
        if os.lstat(folder).st_ino == inode:
            return
        move_away(folder, quarantine)
    parent = os.path.dirname(folder)
    for name in os.listdir(parent):
        with contextlib.suppress(OSError):
            if os.lstat(os.path.join(parent, name)).st_ino == inode:
                os.rename(os.path.join(parent, name), folder)
                return
    os.mkdir(folder)


def restore_tree(path: str, saved: Saved, quarantine: str) -> list[str]:
    found = read_tree(path, [MAX_BYTES])
    if found is not None and "entries" in saved and "entries" in found:
        changed: list[str] = []
        for name in sorted({*saved["entries"], *found["entries"]}):
            inner = os.path.join(path, name)
            if name in saved["entries"]:
                changed += restore_tree(inner, saved["entries"][name], quarantine)
            elif os.path.lexists(inner):
                move_away(inner, quarantine)
                changed.append(inner)
        return changed
    kinds = ("data", "target")
    if found is not None and all(found.get(kind) == saved.get(kind) for kind in (*kinds, "mode")):
        return []
    if os.path.lexists(path):
        move_away(path, quarantine)
    write_tree(path, saved)
    return [path]


def write_tree(path: str, saved: Saved) -> None:
    if "target" in saved:
        os.symlink(saved["target"], path)
    elif "entries" in saved:
        os.mkdir(path, 0o700)
        for name, inner in saved["entries"].items():
            write_tree(os.path.join(path, name), inner)
        os.chmod(path, saved["mode"])
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(base64.b64decode(saved["data"]))
            os.fchmod(file.fileno(), saved["mode"])
