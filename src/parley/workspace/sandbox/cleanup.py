"""Undo what commands did to protected files, and leave nothing of the sandbox behind, even if the engine is killed.

    contents = ProtectedContents(paths)
    contents.save()              # before a command
    contents.restore(quarantine) # after it; returns the paths that it changed

Contents are for files that no mount protects: Landlock cannot keep commands from changing them. As in
`protected_entries.py`, nothing is done by a path that a command could have changed.

A placeholder is an empty folder that gives a mask a mount point. Removing it removes the mask in every sandbox that
uses it. So each sandbox holds a shared lock on a record of its writable folder, and only one that is alone with the
record removes the placeholders that are written there. The next sandbox in the folder removes what is left.

A second process waits for the end of the engine and of the sandbox, and cleans up in their place (`main`). It runs in a
bare interpreter and uses only the standard library.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import select
import shutil
import socket
import stat
import sys
import time
from collections.abc import Iterable
from typing import Any

from parley.workspace import private_files
from parley.workspace.sandbox.protected_entries import (
    SETTLED_NANOSECONDS,
    FolderIndex,
    move_away,
    open_inner,
    open_parent,
    restore_entries,
)

ALONE_SECONDS = 2.0
"""How long the cleaner of a killed engine waits for its locks, and for other cleaners."""
GONE_SECONDS = 30.0
"""How long it waits for processes that were killed."""
MAX_BYTES = 32 << 20
"""How much of each path is kept in memory. What is beyond it is moved away if it was changed."""
MAX_DEPTH = 32
Saved = dict[str, Any]
"""The `mode`, and `data` of a file, `target` of a symlink, `entries` of a folder or `version` of what is not kept.
Empty for what does not exist."""


class PlaceholderRecord:
    """The placeholders in one writable folder, of this sandbox and others. Holding it keeps them in place."""

    def __init__(self, records: str, root: str) -> None:
        """Raises OSError."""
        self._root = root
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(os.path.join(records, name), flags, 0o600)

    def hold(self) -> None:
        """Remove what is left of sandboxes that were killed, and keep what is created from now on. Raises OSError."""
        self._remove_if_alone()
        private_files.lock(self._file, shared=True)

    def create(self, path: str) -> bool:
        """Create a placeholder. Returns False if the path exists by now. Raises OSError."""
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            return False
        os.write(self._file, json.dumps([path, os.lstat(path).st_ino]).encode() + b"\n")
        return True

    def release(self) -> None:
        """Remove the placeholders, unless another sandbox uses them."""
        if self._file >= 0:
            self._remove_if_alone()
            os.close(self._file)
            self._file = -1

    def release_when_alone(self) -> None:
        """The same for an engine that was killed and may not be quite gone. Does not wait long for other sandboxes."""
        deadline = time.monotonic() + ALONE_SECONDS
        while not self._remove_if_alone() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.close(self._file)

    def _remove_if_alone(self) -> bool:
        try:
            if not private_files.lock(self._file, timeout_seconds=0):
                return False
        except OSError:
            return False
        for line in reversed(os.pread(self._file, 1 << 20, 0).splitlines()):
            with contextlib.suppress(OSError, ValueError):
                path, inode = json.loads(line)
                if not path.startswith(self._root.rstrip("/") + "/"):
                    continue  # a command that may write to our folder has added it
                with open_parent(path) as (folder, last):
                    if os.lstat(last, dir_fd=folder).st_ino == inode:
                        os.rmdir(last, dir_fd=folder)  # fails if it is not an empty folder
        os.ftruncate(self._file, 0)
        return True


class ProtectedFiles:
    """What commands must leave as it is, and what no mount protects: names, and the contents of some files."""

    def __init__(self, index: FolderIndex, paths: Iterable[str]) -> None:
        self._index = index
        self._before = index.entries
        """The names to restore, by folder."""
        self._contents = ProtectedContents(paths)

    def look(self) -> None:
        """Find protected names that have appeared."""
        self._index.refresh()

    def save(self) -> None:
        """Take the current contents, and the names that were found last, as the state to restore."""
        self._before = self._index.entries
        self._contents.save()

    def accept(self, path: str) -> bool:
        """Take over a change of the user's, which must not be undone. Returns whether the path is protected."""
        if not self._index.may_cover(path):
            return False
        self._index.refresh()
        accepted = dict(self._before)
        for folder, entries in self._index.entries.items():
            for name, target in entries.items():
                entry = os.path.join(folder, name)
                if path == entry or path.startswith(entry + "/"):
                    accepted[folder] = {**accepted.get(folder, {}), name: target}
        self._before = accepted
        self._contents.accept(path)
        return True

    def restore(self, quarantine: str) -> list[str]:
        """Returns the paths that were restored. Raises OSError."""
        changed = self._contents.restore(quarantine)
        return list(dict.fromkeys([*changed, *restore_entries(self._index, self._before, quarantine)]))

    def to_json(self) -> dict[str, Any]:
        """What another process needs to restore the files."""
        return {
            "before": self._before,
            "searched": self._index.roots,
            "beyond": sorted(self._index.beyond),
            "saved": self._contents.saved,
            "parents": self._contents.folders,
        }

    @classmethod
    def from_json(cls, job: dict[str, Any]) -> ProtectedFiles:
        files = cls(FolderIndex(job["searched"], job["beyond"]), ())
        files._before = job["before"]
        files._contents.saved, files._contents.folders = job["saved"], job["parents"]
        return files


def encode_job(folders: dict[str, str], roots: tuple[str, ...], watched: ProtectedFiles) -> bytes:
    """What `main` has to do. `folders`: where `records`, `temp` and `quarantine` are."""
    return json.dumps({**folders, "roots": roots, **watched.to_json()}).encode()


def main(alive: int, job_file: int) -> None:
    """Clean up when no process holds the other end of the socket `alive`: the engine and the sandbox are gone."""
    with open(job_file, "rb") as file:
        job: dict[str, Any] = json.load(file)
    os.chdir("/")
    hangup = select.poll()
    hangup.register(alive, 0)
    hangup.poll()
    with contextlib.suppress(OSError):
        _, first_processes, _, _ = socket.recv_fds(socket.socket(fileno=alive), 1, 1, socket.MSG_DONTWAIT)
        for process in first_processes:  # the last of the sandbox to end
            select.select([process], [], [], GONE_SECONDS)
    with contextlib.suppress(OSError):
        ProtectedFiles.from_json(job).restore(job["quarantine"])
    for root in job["roots"]:
        with contextlib.suppress(OSError):
            PlaceholderRecord(job["records"], root).release_when_alone()
    shutil.rmtree(job["temp"], ignore_errors=True)
    sys.exit(0)


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
